"""A behaviour as TLC prints it: whole states, or what ``ALIAS`` says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fencepost.behaviours import Step, Trace
from fencepost.semantics import State
from fencepost.tla import show
from fencepost.tla.ast import Place
from fencepost.tla.protocol import TlaModel
from fencepost.tla.values import EvaluationError, Function, Value


def whole_states(trace: Trace) -> str:
    """The states of a behaviour of a specification, one after the other."""
    return "\n\n".join(_states(trace))


def _states(trace: Trace) -> Iterator[str]:
    model = trace.protocol
    assert isinstance(model, TlaModel)
    states, shown = trace.states, _Shown(model)
    stays = trace.loop is not None and trace.loop == len(trace.steps)
    closes = trace.loop is not None and not stays
    for number, state in enumerate(states[:-1] if closes else states, 1):
        title = _title(model, trace.steps[number - 2]) if number > 1 else "Initial predicate"
        following = states[number] if number < len(states) else state
        yield f"State {number}: <{title}>\n{show.state(shown(state, following, number))}"
    if stays:
        yield f"State {len(states) + 1}: Stuttering"
    elif trace.loop is not None:
        yield f"Back to state {trace.loop + 1}: <{_title(model, trace.steps[-1])}>"


def _title(model: TlaModel, step: Step) -> str:
    at = next((each.at for each in model.every_declaration if each.name == step.action), None)
    return step.title if at is None else f"{step.title} {_where(at)}"


def _where(at: Place) -> str:
    return f"line {at.line}, col {at.column} to line {at.end_line}, col {at.end_column} of module {Path(at.file).stem}"


class _Shown:
    """The variables of a state, or the fields of the record that ``ALIAS`` makes of it and the state after it."""

    def __init__(self, model: TlaModel) -> None:
        self._alias = model.alias
        self._has_failed = False

    def __call__(self, state: State, following: State, number: int) -> list[tuple[str, Value]]:
        values = [(name, held.value) for name, held in state.variables().items()]
        if self._alias is None:
            return values
        try:
            made = self._alias(state, following, number)
        except EvaluationError as error:
            return [*values, *self._failed(error)]
        return list(made.items()) if isinstance(made, Function) and made.is_record() else values

    def _failed(self, error: EvaluationError) -> list[tuple[str, Value]]:
        """Why there is no record. It is said once for each behaviour, as TLC names it."""
        if self._has_failed:
            return []
        self._has_failed = True
        return [("_ALIASEvalError", str(error).split("\n")[0])]
