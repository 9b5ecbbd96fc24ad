"""A behaviour as TLC prints it: whole states, or what ``ALIAS`` says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fencepost.behaviours import Step, Trace
from fencepost.semantics import State
from fencepost.tla import show
from fencepost.tla.ast import Place
from fencepost.tla.protocol import TlaModel, explained
from fencepost.tla.values import Function, Value


def whole_states(trace: Trace) -> str:
    """The states of a behaviour of a specification, one after the other."""
    return "\n\n".join(_states(trace))


def _states(trace: Trace) -> Iterator[str]:
    model = trace.protocol
    assert isinstance(model, TlaModel)
    states = trace.states
    stays = trace.loop is not None and trace.loop == len(trace.steps)
    closes = trace.loop is not None and not stays
    for number, state in enumerate(states[:-1] if closes else states, 1):
        title = _title(model, trace.steps[number - 2]) if number > 1 else "Initial predicate"
        following = states[number] if number < len(states) else state
        yield f"State {number}: <{title}>\n{show.state(_shown(model, state, following))}"
    if stays:
        yield f"State {len(states) + 1}: Stuttering"
    elif trace.loop is not None:
        yield f"Back to state {trace.loop + 1}: <{_title(model, trace.steps[-1])}>"


def _title(model: TlaModel, step: Step) -> str:
    at = next((each.at for each in model.every_declaration if each.name == step.action), None)
    return step.title if at is None else f"{step.title} {_where(at)}"


def _where(at: Place) -> str:
    return f"line {at.line}, col {at.column} to line {at.end_line}, col {at.end_column} of module {Path(at.file).stem}"


def _shown(model: TlaModel, state: State, following: State) -> list[tuple[str, Value]]:
    """The variables of a state, or the fields of the record that ``ALIAS`` makes of it and the state after it."""
    values = [(name, held.value) for name, held in state.variables().items()]
    if model.alias is None:
        return values
    with explained("while evaluating the alias"):
        made = model.alias(state, following)
    return list(made.items()) if isinstance(made, Function) and made.is_record() else values
