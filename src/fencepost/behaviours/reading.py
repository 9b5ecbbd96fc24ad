"""Reads a behaviour from a file: the JSON of a check, a behaviour in it, or the Informal Trace Format.

A file is not trusted. It lists steps and the states after them. The protocol takes these steps again, and each state
must match. So no value is ever parsed: the protocol's own states are written in the file's format and compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.behaviours.behaviour import Step, Trace
from fencepost.behaviours.itf import NONE, expression
from fencepost.behaviours.json import loads, plain
from fencepost.behaviours.replay import taken
from fencepost.errors import OptionError
from fencepost.language.seam import Model
from fencepost.language.values import Value, show
from fencepost.semantics import Outcome, Root, State, Stepper
from fencepost.text.plain import whole_number


@dataclass(frozen=True)
class WrittenStep:
    """A step of a file. Missing parts are None. ``state`` is the state after the step, by variable."""

    action: str | None
    parameters: Mapping[str, Any] | None
    choices: list[Any] | None
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Written:
    """A behaviour of a file. ``constants`` are text, as on the command line.

    ``value`` and ``parameter`` convert a value of a state, and of a parameter, to this file's format.
    """

    protocol: str
    constants: Mapping[str, Any]
    initial: Mapping[str, Any]
    steps: list[WrittenStep]
    loop: int | None
    value: Callable[[Value], Any]
    parameter: Callable[[Value], Any]


def read(text: str | bytes) -> Written:
    """The behaviour in a file. Raises :class:`fencepost.OptionError` if it holds none."""
    document = loads(text)
    if not isinstance(document, dict):
        raise OptionError("it holds no behaviour: it is not what fencepost check --json or --itf writes")
    try:
        return _from_itf(document) if "states" in document else _from_json(document)
    except RecursionError:
        raise OptionError("it is nested too deeply") from None
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise OptionError(
            f"it holds a behaviour in a form that is not known: {type(error).__name__}: {error}"
        ) from None


def _from_json(document: dict[str, Any]) -> Written:
    behaviour = document
    if "trace" not in document:
        violations = document.get("violation") or {}, *document.get("violations", ())
        ways = [*violations, document.get("error") or {}, *document.get("witnesses", ())]
        behaviour = next((way for way in ways if way.get("trace")), {})
    if not behaviour.get("trace"):
        raise OptionError("it holds no behaviour: the check that wrote it found no counterexample and no witness")
    first, *rest = behaviour["trace"]
    if type(behaviour.get("loop")) not in (int, type(None)):
        raise TypeError("its loop is no number")
    steps = [WrittenStep(s["action"], s["parameters"], s["choices"], s["state"]) for s in rest]
    constants = {name: _text(value) for name, value in document.get("constants", {}).items()}
    return Written(document.get("protocol", ""), constants, first["state"], steps, behaviour.get("loop"), plain, plain)


def _from_itf(document: dict[str, Any]) -> Written:
    names, states, about = document["vars"], document["states"], document.get("#meta", {})
    loop = document.get("loop")
    if type(loop) not in (int, type(None)):
        raise TypeError("its loop is no number")
    entries = [(state.get("#meta", {}), state) for state in states]
    if loop is not None and "closing" in about:
        entries.append((about["closing"], states[loop]))
    steps = [
        WrittenStep(meta.get("action"), meta.get("parameters"), None, {name: state[name] for name in names})
        for meta, state in entries[1:]
    ]
    constants = {name: _text(_plainly(states[0][name])) for name in document.get("params", ())}
    initial = {name: states[0][name] for name in names}
    return Written(about.get("source", ""), constants, initial, steps, loop, expression, show)


def _plainly(written: Any) -> Any:
    """A value in the Informal Trace Format, converted to plain JSON."""
    if written == NONE:
        return None
    if isinstance(written, dict) and len(written) == 1:
        ((tag, inner),) = written.items()
        if tag == "#bigint":
            return whole_number(inner)
        if tag in ("#tup", "#set"):
            return [_plainly(element) for element in inner]
    return written


def _text(value: Any) -> Any:
    """A constant's value as text for the command line. Empty lists and null, which have no such text, are returned
    unchanged.
    """
    if isinstance(value, list) and value:
        return ",".join(str(_text(element)) for element in value)
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, (int, float)) else value


def protocol_of(written: Written, protocol: type[Model]) -> Model:
    """``protocol`` with the constants of the behaviour.

    Raises :class:`fencepost.OptionError` if it has no such constants.
    """
    return protocol(**{name: () if value == [] else value for name, value in written.constants.items()})


def replayed(written: Written, stepper: Stepper) -> Trace:
    """The behaviour, replayed step by step.

    Raises :class:`fencepost.OptionError` if the protocol has no such initial state or cannot take one of the steps.
    """
    initial = next((s for s in stepper.initial_states() if _is(written, s, written.initial)), None)
    if initial is None:
        raise OptionError(
            f"{stepper.protocol.name} has no such initial state with these constants: it is a behaviour of another"
            " protocol, or of other constants"
        )
    state, steps = initial, list[Step]()
    for number, step in enumerate(written.steps, 1):
        taken = _taken_again(written, step, state, stepper)
        if taken is None:
            name = step.action or "what is written"
            raise OptionError(
                f"step {number}, {name}, does not lead there in {stepper.protocol.name}: has the protocol changed?"
            )
        steps.append(taken)
        state = taken.state
    loop = written.loop
    if loop is not None and not (0 <= loop <= len(steps) and [initial, *(s.state for s in steps)][loop] == state):
        raise OptionError(f"its loop does not close: the last state is not state {loop} again")
    return Trace(stepper.protocol, initial, tuple(steps), loop)


def _taken_again(written: Written, step: WrittenStep, state: State, stepper: Stepper) -> Step | None:
    """The step of the file, if it can be taken from ``state``. If several lead to the same state, the one with the same
    choices.
    """
    matches = None
    for root, outcome in _candidates(written, step, state, stepper):
        again = taken(stepper, state, root, outcome)
        if _is(written, again.state, step.state):
            if step.choices is None or _alike([plain(choice) for choice in again.choices], step.choices):
                return again
            matches = matches or again
    return matches


def _candidates(written: Written, step: WrittenStep, state: State, stepper: Stepper) -> Iterator[tuple[Root, Outcome]]:
    for root in stepper.of_kind("action"):
        named = step.action is None or root.name == step.action
        bound = step.parameters is None or _alike(
            {name: written.parameter(value) for name, value in root.parameters.items()}, step.parameters
        )
        if named and bound:
            yield from ((root, outcome) for outcome in stepper.outcomes(root, state.ids))


def _is(written: Written, state: State, variables: Mapping[str, Any]) -> bool:
    return _alike({name: written.value(value) for name, value in state.variables().items()}, variables)


def _alike(one: Any, other: Any) -> bool:
    """Whether two documents are equal as JSON. Python's == would not do: 1 equals True, and 0.0 equals -0.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
