"""What a check has found, at the author's lines: diagnostics in the words of any editor, as plain data."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fencepost.api.result import Result
from fencepost.checker.findings import Violation
from fencepost.editor import places
from fencepost.editor.cases import Case
from fencepost.editor.places import Place
from fencepost.errors import FencepostError
from fencepost.language.protocol import Protocol
from fencepost.language.seam import Model, language_of
from fencepost.report.text import story
from fencepost.text.numbers import plural

ERROR, WARNING, INFORMATION = "error", "warning", "information"

STEPS = 30
"""The most steps of a behaviour that a diagnostic points at."""


@dataclass(frozen=True)
class Diagnostic:
    """What is wrong at a place. ``about``: further places, each with words. ``behaviour``: whether there is one to
    show, and ``configuration`` the title of its case.
    """

    place: Place
    message: str
    severity: str = ERROR
    code: str = ""
    about: tuple[tuple[Place, str], ...] = ()
    configuration: str = ""


def plain(found: Diagnostic) -> dict[str, Any]:
    """A diagnostic as plain data."""
    return {
        **vars(found.place),
        "message": found.message,
        "severity": found.severity,
        "code": found.code,
        "about": [{**vars(place), "message": text} for place, text in found.about],
        "configuration": found.configuration,
    }


def of_failure(error: BaseException, file: str) -> Diagnostic:
    """Why a file cannot be checked."""
    found = places.of_error(error, file)
    text = str(error) if isinstance(error, FencepostError) else f"{type(error).__name__}: {error}"
    return _at(found, file, _without_place(text, file), code="load")


def _at(found: Sequence[Place], file: str, message: str, code: str) -> Diagnostic:
    here, *others = found or [Place(os.path.abspath(file), 1)]
    if here.file != os.path.abspath(file):  # nothing of this file took part
        here, others = Place(os.path.abspath(file), 1), [here, *others]
    return Diagnostic(here, message, ERROR, code, tuple((place, "it was raised here") for place in others))


def _without_place(text: str, file: str) -> str:
    """An error's first line, without the place that the diagnostic stands at."""
    line = text.strip().split("\n")[0]
    for name in (file, os.path.abspath(file)):
        beginnings = r"(?: cannot be loaded(?:, line \d+)?| is not Python|:\d+:\d+):( line \d+:)? "
        found = re.match(re.escape(name) + beginnings, line)
        if found:
            return line[found.end() :]
    return line


# -- checks ------------------------------------------------------------------------------------------------------------


def of_result(case: Case, result: Result, file: str, as_expected: bool | None, seconds: float) -> list[Diagnostic]:
    """The diagnostics of one check. A verdict that its configuration expects is none."""
    title, model = case.title, result.protocol
    home = protocol_place(model, file)
    found: list[Diagnostic] = []
    states = plural(result.distinct_states, "state")
    if result.error is not None:
        found.append(replace(_raised(model, result, file), configuration=title))
    elif result.failure is not None:
        found.append(Diagnostic(home, f"{title}: {result.failure}", code="failed"))
    elif as_expected is False:
        found += [_violated(result, each, home, case) for each in result.violations]
        if not result.violations:
            wanted = "a deadlock" if case.expect == "deadlock" else f"{case.expect} to be violated"
            place = case_place(case, file) or home
            found.append(
                Diagnostic(place, f"{title}: the check expects {wanted}, and all {states} are right", code="expected")
            )
    elif not result.complete and not result.reached and not result.violations:
        limit = f"within {seconds:g} s" if result.limit and "time" in result.limit else f"up to {result.limit}"
        found.append(Diagnostic(home, f"{title}: no violation in {states} {limit}", INFORMATION, "limit"))
    return found


def _raised(model: Model, result: Result, file: str) -> Diagnostic:
    error = result.error
    assert error is not None
    cause = error.__cause__
    found = places.of_error(cause, file) if cause is not None else []
    declared = _declared(model, error.where.partition("(")[0])
    if not any(place.file == os.path.abspath(file) for place in found) and declared is not None:
        found = [declared, *found]
    steps = len(result.error_trace.steps) if result.error_trace is not None else 0
    after = f" (after {plural(steps, 'step')})" if result.error_trace is not None else ""
    one = _at(found, file, f"{_without_place(str(error), file)}{after}", code="raised")
    return replace(one, about=(*one.about, *_steps(result.error_trace, model)))


def _violated(result: Result, violation: Violation, home: Place, case: Case) -> Diagnostic:
    model, trace = result.protocol, violation.trace
    place = _declared(model, violation.name) or home
    if trace is None:
        never = f" for {', '.join(violation.never)}" if violation.never not in ((), (violation.name,)) else ""
        said = f"{violation.name} is {f'never true{never}' if violation.kind == 'sometimes' else 'false'}"
        return Diagnostic(place, f"{case.title}: {said}", code=violation.name, configuration=case.title)
    steps = plural(len(trace.steps), "step")
    if violation.kind == "deadlock":
        said = f"a deadlock after {steps}"
        place = (_declared(model, trace.steps[-1].action) if trace.steps else None) or home
    elif violation.kind in ("invariant", "step_invariant", "refinement", "initially"):
        said = f"{violation.name} is violated after {steps}"
    else:
        said = f"{violation.name} is violated by a behaviour of {steps}, which then repeats"
    return Diagnostic(
        place, f"{case.title}: {said}", ERROR, violation.name or violation.kind, _steps(trace, model), case.title
    )


def _steps(trace: Any, model: Model) -> tuple[tuple[Place, str], ...]:
    """The actions of a behaviour, where they are defined."""
    found = []
    for number, step in enumerate(trace.steps if trace is not None else (), 1):
        place = _declared(model, step.action)
        if place is not None:
            found.append((place, f"step {number}: {step.title}"))
    return tuple(found[:STEPS])


def never_taken(results: Iterable[tuple[Case, Result]], file: str) -> list[Diagnostic]:
    """The actions that no step of any configuration takes, if all were explored to their end."""
    every = list(results)
    if not every or not all(result.complete and result.error is None for _, result in every):
        return []
    counts: dict[str, int] = {}
    for _, result in every:
        for action in result.actions:
            counts[action.name] = counts.get(action.name, 0) + action.taken
    model = every[-1][0].model
    where = "any state of any configuration" if len(every) > 1 else "any state"
    return [
        Diagnostic(
            _declared(model, name) or protocol_place(model, file), f"{name} is not enabled in {where}", WARNING, "never"
        )
        for name, count in counts.items()
        if not count
    ]


# -- places ------------------------------------------------------------------------------------------------------------


def _declared(model: Model, name: str) -> Place | None:
    every = language_of(model).declarations(model)
    declared = every.get(name) or next((d for n, d in every.items() if n.partition(":")[0] == name), None)
    return None if declared is None else places.of_declaration(declared, model)


def protocol_place(model: Model, file: str) -> Place:
    """Where a protocol begins: the name of its class, or of its module."""
    if isinstance(model, Protocol):
        for node in places.classes(type(model), file):
            return places.of_class(node, file)
    specification = getattr(getattr(model, "setup", None), "specification", None)
    if specification is not None:
        return places.of_specification(specification.root.place)
    return Place(os.path.abspath(file), 1)


def case_place(case: Case, file: str) -> Place | None:
    """Where a configuration is named."""
    if case.name is None or not isinstance(case.model, Protocol):
        return None
    return places.configurations(type(case.model), file).get(case.name)


def told(result: Result, width: int) -> str:
    """The verdict and the behaviours of a result as text, without the numbers that differ from run to run."""
    return story(replace(result, generated_states=0), width=width)
