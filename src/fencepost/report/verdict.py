"""The verdict of a check in words: a headline, and sentences that explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.behaviours.formatting import kind_of
from fencepost.checker.findings import Findings, Violation, Witness
from fencepost.errors import Explained
from fencepost.language.declarations import JUDGED, TEMPORAL
from fencepost.language.values import show
from fencepost.semantics.symmetry import listed
from fencepost.text.numbers import count, plural

GOOD = "good"
BAD = "bad"
OPEN = "open"
"""The tones of a verdict: everything holds, something is wrong, or it is undecided."""


MOST_PARTS = 20
"""The most parts of the state in a sentence about an unfinished evaluation. The JSON has all of them."""

BEHAVIOUR = {
    "always_eventually": "A fair behaviour is possible in which it is never true again.",
    "eventually_always": "A fair behaviour is possible in which it becomes false again and again.",
    "leads_to": "A fair behaviour is possible in which the one happens and the other never follows.",
    "temporal": "A fair behaviour is possible for which the formula is false.",
}
"""The sentence for a violated temporal property, by its kind."""


@dataclass(frozen=True)
class Verdict:
    """``word`` (``VIOLATED``), ``subject`` (the property's name), ``sentences`` that explain it, and ``tone`` for its
    colour. A sentence that begins with a blank is a line of a file or below one, and is not wrapped.
    """

    word: str
    subject: str
    sentences: tuple[str, ...]
    tone: str

    @property
    def paragraph(self) -> str:
        """All of it as one paragraph."""
        said = (f"{self.word} {self.subject}".strip() + ".", *self.sentences)
        return " ".join(" ".join(each.split()) for each in said)


def verdict(result: Findings) -> Verdict:
    """The verdict of a whole result."""
    if result.violations:
        return violated(result, result.violations[0])
    if result.verdict == "reached":
        first, *others = result.witnesses
        if not others:
            return reached(result, first)
        return Verdict(
            "REACHED", "", (f"All {count(len(result.witnesses))} that were looked for: {_ways(result)}.",), GOOD
        )
    found = plural(result.distinct_states, "distinct state")
    so_far = tuple(f"{said}." for said in unfinished(result))
    up_to = f" up to symmetry of {listed(result.symmetry)}" if result.symmetry else ""
    up_to += "" if result.exact else " (at most: some were counted more than once)"
    explored = f"{found}{up_to} found, {count(result.queue)} of them not yet expanded."
    if result.walks is not None:
        explored = (
            f"{plural(result.walks.walks, 'walk')} of {plural(result.walks.steps, 'step')}, which do not reach every"
            " state."
        )
    if result.error is not None:
        is_explained = isinstance(result.error.__cause__, Explained)
        lines = tuple(str(result.error).split("\n")) if is_explained else (_sentence(str(result.error)),)
        return Verdict("RAISED", result.error.where, lines, BAD)
    if result.failure is not None:
        return Verdict(
            "FAILED", "", (_sentence(str(result.failure)), f"Nothing is violated so far: {explored}", *so_far), OPEN
        )
    if result.interrupted:
        return Verdict(
            "INTERRUPTED", "", (*not_returned(result), f"Nothing is violated so far: {explored}", *so_far), OPEN
        )
    if result.unjudged is not None:
        safe = f"No invariant is violated in all {plural(result.distinct_states, 'reachable state')}."
        return Verdict("NOT COMPLETE", "", (safe, f"Liveness was not judged: {result.unjudged.rstrip('.')}."), OPEN)
    if not result.complete:
        ended = f"{_sentence(result.limit)[:-1]} was reached." if result.limit else "Not every state was explored."
        if result.within_level:
            explored += " That was within a level: how many are found by then depends on the moment."
        return Verdict(
            "NOT COMPLETE", "", (ended, *not_returned(result), f"Nothing is violated so far: {explored}", *so_far), OPEN
        )
    if not result.protocol.declared("action") and not result.distinct_states:
        return Verdict("HOLDS", "", ("All assumptions hold. There is no behaviour to explore.",), GOOD)
    states = _states(result) + up_to
    checked = any(result.protocol.declared(kind) for kind in JUDGED if kind not in TEMPORAL)
    if checked or result.judged:
        said = [f"Nothing is violated in {states}.", *so_far]
        if result.judged:
            said.append(f"Every fair behaviour satisfies {_listed(result.judged)}.")
        return Verdict("HOLDS", "", tuple(said), GOOD)
    return Verdict("HOLDS", "", (f"No action raises in {states}; the protocol declares no invariant to check.",), OPEN)


def _states(result: Findings) -> str:
    found = count(result.distinct_states)
    if result.reduced:
        return f"the {plural(result.distinct_states, 'state')} that the reduction leaves, so in no reachable state"
    return "the only reachable state" if result.distinct_states == 1 else f"all {found} reachable states"


def violated(result: Findings, violation: Violation) -> Verdict:
    """The verdict on one violation."""
    sentences: tuple[str, ...]
    if violation.kind == "assumption":
        sentences = (
            *described(result, violation.kind, violation.name),
            *_excerpt(result, violation),
            "The assumption is false for these constants, so nothing was explored.",
        )
        return Verdict("ASSUMPTION VIOLATED", violation.name, sentences, BAD)
    if violation.kind == "postcondition":
        sentences = (
            *described(result, violation.kind, violation.name),
            *_excerpt(result, violation),
            f"The postcondition is false. Nothing else is violated in {_states(result)}.",
        )
        return Verdict("POSTCONDITION VIOLATED", violation.name, sentences, BAD)
    if violation.kind == "deadlock":
        return Verdict("DEADLOCK", "", ("A state is reachable in which no action is enabled.",), BAD)
    said = described(result, violation.kind, violation.name)
    if violation.kind == "sometimes":
        return Verdict("NEVER REACHED", violation.name, (*said, _never(result, violation)), BAD)
    if violation.kind in BEHAVIOUR:
        said = (*said, BEHAVIOUR[violation.kind])
    return Verdict("VIOLATED", violation.name, said, BAD)


def reached(result: Findings, witness: Witness) -> Verdict:
    """The verdict on one witness."""
    said = described(result, "sometimes", witness.name.partition("(")[0])
    if witness.walk is None:
        said = (*said, "No shorter behaviour leads to such a state.")
    return Verdict("REACHED", witness.name, said, GOOD)


def unfinished(result: Findings) -> list[str]:
    """The ``sometimes`` properties that were reached, and those not reached so far."""
    said = [f"Reached: {_ways(result)}"] if result.witnesses else []
    never = {title for violation in result.violations for title in violation.never}
    waiting = [title for title in result.unreached if title not in never]
    return [*said, f"Not reached so far: {', '.join(waiting)}"] if waiting else said


def _ways(result: Findings) -> str:
    return ", ".join(f"{witness.name} ({plural(len(witness.trace), 'state')})" for witness in result.witnesses)


def _never(result: Findings, violation: Violation) -> str:
    """That a property is never reached, and the number of states."""
    titles = violation.never
    what = "It is" if titles == (violation.name,) else f"{listed(titles)} {'is' if len(titles) == 1 else 'are'}"
    states = plural(result.distinct_states, "reachable state")
    return f"{what} true in none of the {states}."


def not_returned(result: Findings) -> tuple[str, ...]:
    """A sentence about the evaluation that had not returned when the search ended, if there is one."""
    one = result.unfinished
    if one is None:
        return ()
    said = f"{one.what[:1].upper()}{one.what[1:]} had not returned after {one.seconds:.1f} seconds"
    if one.state is None:
        return (f"{said}.",)
    held = [(kind_of(result.protocol, slot), slot.name, value) for slot, value in one.state.slots()]
    parts = [
        f"{name} = {show(value if kind == 'value' else value[0])}"
        for kind, name, value in held
        if kind == "value" or (kind == "cell" and value)
    ]
    more = f" and {len(parts) - MOST_PARTS} more parts" if len(parts) > MOST_PARTS else ""
    return (f"{said}, in the state {', '.join(parts[:MOST_PARTS])}{more}." if parts else f"{said}.",)


def described(result: Findings, kind: str, name: str) -> tuple[str, ...]:
    """The first paragraph of a property's docstring."""
    declared = next((d for d in result.protocol.declared(kind) if d.name == name), None)
    doc = declared.doc.split("\n\n")[0].replace("``", "") if declared is not None else ""
    return (" ".join(doc.split()),) if doc else ()


def _excerpt(result: Findings, violation: Violation) -> tuple[str, ...]:
    """The lines of the source that show what is violated."""
    found = (each for each in result.protocol.declared(violation.kind) if each.name == violation.name)
    return next((each.excerpt for each in found), ())


def _listed(names: Sequence[str]) -> str:
    if len(names) > 4:
        return f"all {len(names)} temporal properties"
    return listed(names)


def never_taken(result: Findings) -> str:
    """The remark on an action that was not taken: never, or not before the search ended."""
    return "never taken" if result.complete else "not taken so far"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
