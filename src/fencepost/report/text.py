"""A result as text: the verdict, the counterexample step by step, statistics, coverage.

:func:`story` is plain text for assertion messages and files; :func:`render` prints the same text in colour. Both use
the same :class:`Line`, so they show the same content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fencepost.behaviours import Step, Trace
from fencepost.behaviours import messages as fate
from fencepost.behaviours.evidence import Evidence, after, looked_at
from fencepost.behaviours.formatting import (
    ARROW,
    abridged,
    briefly,
    changed,
    channel_lines,
    kind_of,
    lines,
    wrap,
)
from fencepost.behaviours.lasso import DISABLED, NEVER_ENABLED, TAKEN, Met
from fencepost.behaviours.messages import At, Passage, channels, passages
from fencepost.behaviours.refinement import Refuted, difference_texts, refuted, why
from fencepost.checker.engines.interface import Walks
from fencepost.checker.findings import Findings, Violation, Witness
from fencepost.language.context import Slot, slot_name
from fencepost.language.network import Channel, NetworkShape
from fencepost.language.values import Value, constant_text, show
from fencepost.report.advice import EXPLODING, advice
from fencepost.report.verdict import BAD, GOOD, OPEN, Verdict, never_taken, reached, unfinished, verdict, violated
from fencepost.semantics import State
from fencepost.semantics.symmetry import listed
from fencepost.text import numbers
from fencepost.text.plain import printable

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
"""The width of plain text, in characters."""

NARROWEST = 40

STYLES = {
    "heading": "bold",
    "number": "bold",
    "actor": "bold cyan",
    "action": "bold",
    "dim": "dim",
    "sent": "green",
    "received": "cyan",
    "lost": "red",
    "timed out": "yellow",
    "dropped": "red",
    "warning": "yellow",
    "loop": "magenta",
    GOOD: "bold green",
    BAD: "bold red",
    OPEN: "bold yellow",
}
"""Rich's style for each name of a style."""

FEW = 4
"""The most never-enabled fairness conditions that are named."""

MAX_EVIDENCE = 30
"""The most parts of the state that are listed as evidence."""

Span = tuple[str, str]


@dataclass(frozen=True)
class Line:
    """One line: pieces of text, each with the name of its style (empty for none)."""

    spans: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        """The line without styles and trailing blanks. Unprintable characters of names and errors are escaped."""
        return printable("".join(text for text, _ in self.spans)).rstrip()


Told = Callable[[Trace], str]
"""Tells a behaviour in other words than the story does."""


def story(result: Findings, *, width: int = WIDTH, profile: bool = False, told: Told | None = None) -> str:
    """The whole result as plain text of at most ``width`` columns (longer words are not broken). ``told`` tells its
    behaviours.
    """
    return "\n".join(line.text for line in story_lines(result, width, profile, told)) + "\n"


def trace_story(trace: Trace, *, width: int = WIDTH) -> str:
    """A behaviour as plain text: its numbered steps with their changes."""
    return "\n".join(line.text for line in _Story(max(width, NARROWEST)).steps(trace)) + "\n"


def steps_story(trace: Trace, *, width: int = WIDTH) -> str:
    """The same without the initial state, for the end of a longer behaviour."""
    _, *moments = _Story(max(width, NARROWEST)).moments(trace)
    return "\n".join(line.text for lines in moments for line in lines) + "\n"


def state_story(state: State, *, width: int = WIDTH) -> str:
    """A state as plain text: every variable, and of networks the messages."""
    return "\n".join(line.text for line in _Story(max(width, NARROWEST)).state(state)) + "\n"


def render(result: Findings, console: Console, *, profile: bool = False, told: Told | None = None) -> None:
    """Print the whole result in colour, in the width of a Rich console. ``profile`` adds the measurements of the
    compiler and the engine. ``told`` tells its behaviours.
    """
    from rich.text import Text

    for line in story_lines(result, console.width, profile, told):
        text = Text(no_wrap=True, overflow="fold")
        for piece, style in line.spans:
            text.append(printable(piece), STYLES.get(style, ""))
        console.print(text)


def story_lines(result: Findings, width: int = WIDTH, profile: bool = False, told: Told | None = None) -> list[Line]:
    """The whole result, in lines of ``width`` columns."""
    return list(_Story(max(width, NARROWEST), told).result(result, profile))


class _Story:
    def __init__(self, width: int, told: Told | None = None) -> None:
        self.width = width
        self.told = told

    def result(self, result: Findings, profile: bool) -> Iterator[Line]:
        yield from self.verdict(verdict(result))
        yield from self.constants(result)
        for place, violation in enumerate(result.violations):
            if place:
                yield Line()
                yield from self.verdict(violated(result, violation))
            if violation.trace is not None:
                yield Line()
                yield from self.violation(violation, violation.trace, result.reduced)
        yield from self.witnesses(result)
        if result.error is not None:
            yield from self.error(result)
        elif result.walk is not None and not result.violations:
            yield from self.section(f"The walk: {numbers.plural(len(result.walk), 'state')}")
            yield from self.steps(result.walk)
        if result.generated_states > 0:
            yield from self.section("Statistics")
            yield from self.table(statistics(result))
            if result.actions:
                yield from self.coverage(result)
        if result.walks is not None and result.walks.unseen:
            yield from self.unseen(result.walks)
        if profile and result.profile:
            yield Line()
            yield from self.profile(result)

    # -- the verdict --------------------------------------------------------------------------------------------------

    def verdict(self, found: Verdict) -> Iterator[Line]:
        yield Line(((found.word, found.tone), ("  " if found.subject else "", ""), (found.subject, "heading")))
        for sentence in found.sentences:
            yield from [Line(((sentence, ""),))] if sentence.startswith(" ") else self.wrapped("", sentence)

    def constants(self, result: Findings) -> Iterator[Line]:
        name = result.protocol.name
        given = [abridged(f"{n}={constant_text(v)}") for n, v in result.constants.items()]
        yield from self.hanging(
            ((name, "heading"), ("  " if given else "", "")), _packed(given, self.width - len(name) - 2), "dim"
        )

    # -- a counterexample ---------------------------------------------------------------------------------------------

    def violation(self, violation: Violation, trace: Trace, reduced: bool) -> Iterator[Line]:
        yield from self.wrapped("", counterexample(trace, violation, reduced), "heading")
        yield from self.steps(trace)
        if violation.kind == "deadlock":
            yield from self.end(trace)
            return
        if violation.kind == "refinement":
            yield from self.refuted(trace, violation.name)
            return
        seen = looked_at(trace, violation.kind, violation.name)
        if seen is not None and seen.slots:
            yield from self.seen(seen)
        if violation.fairness and trace.loop is not None:
            yield from self.section("The loop is fair")
            yield from self.rows(fairness(violation.fairness, trace.loop))

    def refuted(self, trace: Trace, name: str) -> Iterator[Line]:
        """Why the last step is not a step of the refined protocol."""
        found = refuted(trace, name)
        if found is None:
            return
        heading, rows = refutation(found, name)
        yield Line()
        yield from self.wrapped("", heading, "heading")
        yield from self.rows(rows)
        if found.nearest:
            yield Line()
            yield from self.wrapped("", f"The nearest actions of {found.other.name}", "heading")
            yield from self.rows([(near.title, why(found, near)) for near in found.nearest])

    def rows(self, rows: Sequence[tuple[str, str]], margin: int = 4) -> Iterator[Line]:
        column = min(max((len(what) for what, _ in rows), default=0), max(20, self.width // 2))
        for what, how in rows:
            yield from self.row(margin, column, Happening(what, "", how))

    def witnesses(self, result: Findings) -> Iterator[Line]:
        """The behaviours of the witnesses; only their lengths if a violation is reported."""
        if result.violations:
            lines = unfinished(result)
            yield from ([Line()] if lines else ())
            for line in lines:
                yield from self.wrapped("", f"{line}.")
            return
        for witness in result.witnesses:
            yield Line()
            if result.verdict != "reached" or len(result.witnesses) > 1:
                yield from self.verdict(reached(result, witness))
            yield from self.wrapped("", counterexample(witness.trace, witness, result.reduced), "heading")
            yield from self.steps(witness.trace)
            seen = looked_at(witness.trace, "sometimes", witness.name)
            yield from self.seen(seen) if seen is not None and seen.slots else self.end(witness.trace)

    def seen(self, seen: Evidence) -> Iterator[Line]:
        """The parts of the state that a property read."""
        yield Line()
        yield from self.wrapped("", f"{seen.title} {seen.when}; it looked at:", "heading")
        yield from self.evidence(seen.slots)

    def end(self, trace: Trace) -> Iterator[Line]:
        """The state that a behaviour ends in."""
        yield from self.section(f"The state it ends in, number {len(trace)}")
        yield from self.state(trace.states[-1])

    def steps(self, trace: Trace) -> Iterator[Line]:
        """A behaviour step by step, with a line along the left of a lasso's loop."""
        if self.told is not None:
            yield from (Line(((line, ""),)) for line in self.told(trace).split("\n"))
            return
        if trace.loop is None:
            for lines in self.moments(trace):
                yield from lines
            return
        for number, lines in enumerate(_Story(self.width - 1).moments(trace)):
            for place, line in enumerate(lines):
                first = number == trace.loop + 1 and place == 0
                mark = "╭" if first else "│" if number > trace.loop else " "
                yield Line(((mark, "loop"), *line.spans))
        yield Line((("╰─ ", "loop"), (and_so_on(trace, trace.loop), "loop")))

    def moments(self, trace: Trace) -> Iterator[list[Line]]:
        """The lines of the initial state and of each step."""
        found = passages(trace)
        digits = len(str(len(trace.steps)))
        actors = max((len(step.by or "") for step in trace.steps), default=0)
        margin = digits + 3 + (actors + 2 if actors and self.width >= 80 else 0)
        start = set_up(trace)
        happened = [start, *(list(happenings(trace, number, found)) for number in range(1, len(trace)))]
        every = [h for rows in happened for h in rows]
        slots = min(max((len(h.what) for h in every if not h.style), default=0), max(20, self.width * 2 // 5))
        passed = max((len(h.what) for h in every if h.style), default=0)
        room = self.width - margin - passed - 2
        # Either all messages are shortened or none, so that a message looks the same everywhere.
        shorten = any(h.style and len(h.text) + (len(h.after) + 2 if h.after else 0) > room for h in every)
        for number, rows in enumerate(happened):
            step = trace.steps[number - 1] if number else None
            who = f"{step.by or '' if step else '':<{actors}}  " if actors else ""
            title = abridged(step.title) if step else "initial state"
            place = f"   {step.place}" if step and step.place else ""
            head = (f" {number:>{digits}}", "number"), ("  ", ""), (who, "actor"), (title, "action"), (place, "dim")
            lines = [Line(head if place else head[:-1])]
            if step and not rows:
                rows = [Happening("", "", "nothing changes")]
            for row in rows:
                if row.style and shorten:
                    row = replace(row, text=briefly(row.text, 0))
                lines += self.row(margin, passed if row.style else slots, row)
            yield lines

    def row(self, margin: int, column: int, row: Happening) -> Iterator[Line]:
        """One effect in two columns: the message or slot; the text and the message's fate."""
        what, style, text, after = row.what, row.style, row.text, row.after
        verb = next(
            (v for v in ("timed out", "sent", "received", "lost", "dropped") if style and what.startswith(v)), ""
        )
        left = " " * margin
        head: tuple[Span, ...] = ((left + verb, style), (f"{what[len(verb) :]:<{column - len(verb)}}  ", ""))
        start = margin + column + 2
        if len(what) > column:  # the name is wider than the column: the text goes below
            yield Line(((left, ""), (what, style)))
            head = ((" " * start, ""),)
        room = max(16, self.width - start)
        whole = len(text) + (2 + len(after) if after else 0)
        texts = wrap(text if whole <= room else briefly(text, 0), room)
        if after and len(texts[-1]) + 2 + len(after) <= room:
            tail: tuple[Span, ...] = (("  " + after, "dim"),)
            below: list[str] = []
        else:
            tail, below = (), wrap(after, room) if after else []
        for place, piece in enumerate(texts):
            last = tail if place == len(texts) - 1 else ()
            yield Line(((*head,) if place == 0 else ((" " * start, ""),)) + _arrowed(piece) + last)
        for piece in below:
            yield Line(((" " * start + piece, "dim"),))

    def evidence(self, seen: list[tuple[Slot, list[Value]]]) -> Iterator[Line]:
        shown = [(slot.name, ARROW.join(map(_seen_text, values))) for slot, values in seen[:MAX_EVIDENCE]]
        yield from self.rows(shown)
        if len(seen) > MAX_EVIDENCE:
            yield Line(((f"    and {len(seen) - MAX_EVIDENCE} more parts of the state", "dim"),))

    def state(self, state: State) -> Iterator[Line]:
        """Every variable of a state; of networks only the non-empty channels."""
        for name, value in state.variables().items():
            if isinstance(state.store.protocol.shapes[name], NetworkShape):
                for path, held in channels(state).items():
                    if path[0] == name:
                        for what, messages in channel_lines(held):
                            row = Happening(f"{slot_name(path)}  {what}", "", abridged(", ".join(messages)))
                            yield from self.row(4, len(slot_name(path)) + 11, row)
                for slot, connected in state.slots():
                    if slot.path[0] == name and kind_of(state.store.protocol, slot) == "connected" and not connected:
                        yield Line(((f"    {slot.name}  cut", ""),))
                continue
            shown = lines(value, max(20, self.width - 4 - len(name) - 3))
            yield Line(((f"    {name} = {shown[0]}", ""),))
            for more in shown[1:]:
                yield Line(((f"    {more}", ""),))

    # -- errors -------------------------------------------------------------------------------------------------------

    def error(self, result: Findings) -> Iterator[Line]:
        if result.error_trace is not None:
            yield from self.section(
                f"The {'' if result.walks or result.reduced else 'shortest '}way to where it was raised:"
                f" {numbers.plural(len(result.error_trace), 'state')}"
            )
            yield from self.steps(result.error_trace)
        state = getattr(result.error, "state", None)
        if isinstance(state, State):
            yield from self.section("The state it was raised in")
            yield from self.state(state)

    # -- statistics ---------------------------------------------------------------------------------------------------

    def table(self, rows: list[tuple[str, str, str]]) -> Iterator[Line]:
        """A table of names, right-aligned numbers, and remarks."""
        names = max(len(name) for name, _, _ in rows)
        values = max(len(value) for _, value, _ in rows)
        room = self.width - names - values - 6
        for name, value, remark in rows:
            fitting = remark if len(remark) <= room else remark[: room - 1] + "…" if room > 8 else ""
            yield Line(((f"  {name:<{names}}  {value:>{values}}", ""), (f"  {fitting}" if fitting else "", "dim")))

    def coverage(self, result: Findings) -> Iterator[Line]:
        taken = max(len("taken"), *(len(numbers.count(a.taken)) for a in result.actions))
        # A simulation does not know which states are new.
        new = 0 if result.walks else max(len("new states"), *(len(numbers.count(a.new_states)) for a in result.actions))
        flag = never_taken(result)
        names = max(max(len(a.name) for a in result.actions), len("Actions") - 2)
        names = max(12, min(names, self.width - 2 - 2 - taken - 2 - new - 2 - len(flag)))
        heading = f"  {'taken':>{taken}}" + (f"  {'new states':>{new}}" if new else "")
        yield Line()
        yield Line(((f"{'Actions':<{names + 2}}", "heading"), (heading, "dim")))
        for action in result.actions:
            head = f"  {action.name:<{names}}"
            if len(action.name) > names:
                yield Line(((f"  {action.name}", "" if action.taken else "warning"),))
                head = " " * (names + 2)
            numbers_ = f"  {numbers.count(action.taken):>{taken}}" + (
                f"  {numbers.count(action.new_states):>{new}}" if new else ""
            )
            if action.taken:
                yield Line(((head + numbers_, ""),))
            else:
                yield Line(((head + numbers_, "warning"), (f"  {flag}", "warning")))

    def unseen(self, walks: Walks) -> Iterator[Line]:
        yield from self.section("Values never seen")
        shown = [(name, ", ".join(map(show, values))) for name, values in walks.unseen.items()]
        yield from self.rows(shown[:MAX_EVIDENCE], 2)
        if len(walks.unseen) > MAX_EVIDENCE:
            yield Line(((f"  and in {len(walks.unseen) - MAX_EVIDENCE} more parts of the state", "dim"),))

    # -- the profile --------------------------------------------------------------------------------------------------

    def profile(self, result: Findings, most: int = 12) -> Iterator[Line]:
        yield from self._seconds(result.profile.get("seconds"))
        yield from self._rounds(result.profile.get("rounds on Spark"))
        yield from self._levels(result.profile.get("levels on Spark"), most)
        yield from self._ranked("Python calls", result.profile.get("evaluations"), result.evaluations, most)
        yield from self._values(result, result.profile.get("values"), most)

    def _seconds(self, phases: object) -> Iterator[Line]:
        if isinstance(phases, Mapping) and phases:
            yield Line((("Where the time went", "heading"),))
            whole = sum(phases.values())
            shares = [numbers.percent(round(1e6 * v), round(1e6 * whole)) for v in phases.values()]
            yield from self.table(
                [(n, numbers.seconds(v), s) for (n, v), s in zip(phases.items(), shares, strict=True)]
            )

    def _rounds(self, rounds: object) -> Iterator[Line]:
        """The work of Spark tasks in a simulation, and the number of parked walks, which the driver continued."""
        if isinstance(rounds, Sequence) and rounds:
            taken, steps, parked, seconds = (
                sum(r[name] for r in rounds) for name in ("walks", "steps", "parked", "seconds")
            )
            yield from self.section(f"Rounds on Spark: {numbers.count(len(rounds))}")
            yield from self.table(
                [
                    ("walks", numbers.count(int(taken)), ""),
                    ("parked walks", numbers.count(int(parked)), f"by round: {_parked_by_round(rounds)}"),
                    ("steps", numbers.count(int(steps)), ""),
                    ("time of tasks", numbers.seconds(seconds), ""),
                ]
            )

    def _levels(self, levels: object, most: int) -> Iterator[Line]:
        """The largest levels of a search on Spark: their seconds, the seconds of their tasks, and the shuffled bytes
        per candidate.
        """
        done = [one for one in levels if "job" in one] if isinstance(levels, Sequence) else []
        if not done:
            return
        yield from self.section(f"Levels on Spark: {numbers.count(len(done))}")
        names = ("states", "found", "seconds", "expand", "duplicates", "build", "parked", "bytes")
        least = sorted((one["states"] for one in done), reverse=True)[:most][-1]
        rows = [
            (
                numbers.count(int(one["states"])),
                numbers.count(int(one["found"])),
                *(f"{s:.1f}" for s in (one["job"] + one["complete"], one["expand"], one["deduplicate"], one["build"])),
                numbers.count(int(one["parked"])),
                f"{one['shuffled'] / max(one['candidates'], 1):.1f}",
            )
            for one in done
            if one["states"] >= least
        ]
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        for row in (names, *rows):
            text = "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))
            yield Line((("  " + text, "dim" if row is names else ""),))
        if len(done) > len(rows):
            yield Line(((f"  and {numbers.plural(len(done) - len(rows), 'smaller one')}", "dim"),))

    def _ranked(self, title: str, counts: object, total: int, most: int) -> Iterator[Line]:
        if isinstance(counts, Mapping) and counts:
            whole = total or sum(counts.values())
            yield from self.section(f"{title}: {numbers.count(whole)}")
            ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            yield from self.table([(self.shortened(n), numbers.count(c), "") for n, c in ranked[:most] if c])
            if len(ranked) > most:
                rest = sum(c for _, c in ranked[most:])
                yield Line(
                    ((f"  and {numbers.plural(len(ranked) - most, 'other')}, {numbers.count(rest)} together", "dim"),)
                )

    def _values(self, result: Findings, counts: object, most: int) -> Iterator[Line]:
        if not isinstance(counts, Mapping) or not counts:
            return
        yield from self.section(f"Values by part of the state: {numbers.plural(len(counts), 'part')}")
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        exploding = [(n, c) for n, c in ranked if c > EXPLODING]
        shown = ranked[: max(most, len(exploding))]
        yield from self.table(
            [(self.shortened(n), numbers.count(c), "too many" if c > EXPLODING else "") for n, c in shown]
        )
        for name, number in exploding:
            text = f"{name} has held {numbers.count(number)} values: {advice(result.protocol, name)}"
            yield from self.wrapped("  ", text, "warning")

    # -- layout -------------------------------------------------------------------------------------------------------

    def section(self, title: str) -> Iterator[Line]:
        """A heading after a blank line."""
        yield Line()
        yield Line(((title, "heading"),))

    def shortened(self, text: str) -> str:
        room = max(20, self.width - 30)
        return text if len(text) <= room else text[: room - 1] + "…"

    def wrapped(self, margin: str, text: str, style: str = "") -> Iterator[Line]:
        for piece in wrap(abridged(text), self.width - len(margin)):
            yield Line(((margin + piece, style),))

    def hanging(self, head: tuple[Span, ...], texts: list[str], style: str) -> Iterator[Line]:
        """``head``, then the texts, one per line, aligned with the first."""
        margin = sum(len(text) for text, _ in head)
        yield Line((*head, (texts[0] if texts else "", style)))
        for text in texts[1:]:
            yield Line(((" " * margin + text, style),))


def refutation(found: Refuted, name: str) -> tuple[str, list[tuple[str, str]]]:
    """The heading of a violated refinement, and the differences in words."""
    other, differences = found.other.name, difference_texts(found, found.differences)
    if not found.initial:
        return f"The last step is no step of {other}. Under {name} it changes", differences
    if not found.differences:
        return f"{other} has no initial state", []
    return f"This is no initial state of {other}. Under {name} it differs from the nearest one", differences


def counterexample(trace: Trace, of: Violation | Witness | None = None, reduced: bool = False) -> str:
    """The heading of a counterexample or of a witness's behaviour. Only a search finds the shortest one, and not one
    that is ``reduced``.
    """
    if of is not None and of.walk is not None:
        return _met(trace, of, of.walk)
    if reduced:
        what = "behaviour" if isinstance(of, Witness) else "counterexample"
        return f"A {what}, perhaps not the shortest: {numbers.plural(len(trace), 'state')}"
    if isinstance(of, Witness):
        return f"The shortest behaviour: {numbers.plural(len(trace), 'state')}"
    if trace.loop is None:
        return f"The shortest counterexample: {numbers.plural(len(trace), 'state')}"
    stem, around = numbers.plural(trace.loop, "step"), numbers.plural(len(trace.steps) - trace.loop, "step")
    if trace.loop == len(trace.steps):
        return f"The shortest way to a state that can be stayed in for ever: {stem}"
    if trace.loop == 0:
        return f"A loop from the start: {around}"
    return f"The shortest way into a loop: {stem}, and then {around} in the loop"


def _met(trace: Trace, of: Violation | Witness, walk: int) -> str:
    """The heading of a behaviour found by a walk of a simulation."""
    what = numbers.plural(len(trace), "state")
    if trace.loop is not None:
        around = len(trace.steps) - trace.loop
        what = (
            f"{numbers.plural(trace.loop, 'step')}, and then"
            f" {numbers.plural(around, 'step') + ' in a loop' if around else 'none'}"
        )
    shortened = "" if len(trace) == of.walked else f" after {numbers.plural(of.walked, 'state')}, and shortened"
    return (
        f"A {'behaviour' if isinstance(of, Witness) else 'counterexample'}, perhaps not the shortest, met by walk"
        f" {numbers.count(walk)}{shortened}: {what}"
    )


def and_so_on(trace: Trace, loop: int) -> str:
    """The text after the last step of a lasso."""
    if loop == len(trace.steps):
        return "and nothing more happens, for ever"
    return f"and again as {after(loop)}, for ever"


def fairness(met: Sequence[Met], loop: int) -> list[tuple[str, str]]:
    """How a loop meets each fairness condition: its title and the reason."""
    found = []
    never = [one for one in met if one.how == NEVER_ENABLED]
    for one in met:
        how = {TAKEN: f"taken in step {loop + one.at}", DISABLED: f"not enabled {after(loop + one.at)}"}.get(
            one.how, one.how
        )
        if len(never) <= FEW or one not in never:
            found.append((f"{'strong' if one.condition.strong else 'weak'} {one.condition.title}", how))
    if len(never) > FEW:
        found.append((f"{len(never)}{' others' if found else ''}", "never enabled"))
    return found


def choices(step: Step) -> list[str]:
    """The choices of a step that its messages do not show."""
    shown = {"delivered", "lost"}
    for event in step.events:
        shown |= {event.text, show(event.source), show(event.dest)}
    texts = [show(c) for c in step.choices if not (isinstance(c, str) and c in shown)]
    return [text for text in texts if text and text not in shown]


@dataclass(frozen=True)
class Happening:
    """One effect of a step: ``what`` (a message's fate and ends, or a slot), ``text`` (the message or the change), and
    ``after`` (the message's later fate).
    """

    what: str
    style: str
    text: str
    after: str = ""


def happenings(trace: Trace, number: int, found: list[Passage]) -> Iterator[Happening]:
    """The effects of step ``number`` of a behaviour. ``found``: all messages of the behaviour."""
    step = trace.steps[number - 1]
    chosen = choices(step)
    if chosen:
        yield Happening("chose", "", abridged(", ".join(chosen)))
    for place, event in enumerate(step.events):
        at = At(number, place)
        ends = f"{show(event.source)} → {show(event.dest)}"
        text = abridged(event.text.removesuffix("()"))
        if event.kind == "send":
            verb = "lost" if event.lost else "sent"
            passage = next((p for p in found if p.sent == at), None)
            became = _became(passage, number)
            if trace.loop is not None and passage is not None and passage.fate == fate.IN_FLIGHT:
                became = "in flight"  # it may be received in the next round of the loop
            yield Happening(f"{verb:<9} {ends}", verb, text, became)
        elif event.kind == "receive":
            origin = next((p.sent.step for p in found if p.ended == at), 0)
            yield Happening(f"received  {ends}", "received", text, f"← step {origin}" if origin else "")
        else:
            yield Happening(f"timed out {ends}", "timed out", text)
    for passage in found:
        if passage.fate == fate.DROPPED and passage.ended == At(number):
            ends = f"{passage.source} → {passage.dest}"
            yield Happening(f"dropped   {ends}", "dropped", abridged(passage.text.removesuffix("()")))
    for change in changed(trace.protocol, step.changes):
        yield Happening(change.name, "", change.text)


def _became(passage: Passage | None, number: int) -> str:
    if passage is None:
        return ""
    if passage.fate == fate.RECEIVED and passage.ended is not None:
        return f"→ step {passage.ended.step}"
    if passage.fate == fate.IN_FLIGHT:
        return "not received"
    if passage.fate == fate.REPEATED:
        return "already in flight"
    if passage.fate in (fate.DROPPED, fate.TIMED_OUT) and passage.ended is not None and passage.ended.step != number:
        return f"{passage.fate} → step {passage.ended.step}"
    return ""


def statistics(result: Findings) -> list[tuple[str, str, str]]:
    """The numbers of a result in words: name, value and a remark."""
    if result.walks is not None:
        return _simulated(result, result.walks)
    found = [
        ("states generated", numbers.count(result.generated_states), ""),
        ("distinct states", numbers.count(result.distinct_states), _distinct_states_are(result)),
        ("left on queue", numbers.count(result.queue), ""),
        ("depth", numbers.count(result.depth), ""),
        ("time", numbers.seconds(result.seconds), _explored_by(result) if result.engine else ""),
    ]
    if result.peak_memory_bytes:
        found.append(("peak memory", numbers.size(result.peak_memory_bytes), ""))
    if result.evaluations:
        found.append(("Python calls", numbers.count(result.evaluations), ""))
    collision = numbers.probability(result.collision_probability)
    found.append(("collision probability", collision, "that two states shared a fingerprint"))
    return found


def _explored_by(result: Findings) -> str:
    unneeded = "; Spark was not needed" if result.on_spark is False else ""
    return f"{result.engine} engine{unneeded}"


def _distinct_states_are(result: Findings) -> str:
    rate = numbers.rate(result.states_per_second) + ", reduced" * result.reduced
    return f"{rate}, up to symmetry of {listed(result.symmetry)}" if result.symmetry else rate


def _simulated(result: Findings, walks: Walks) -> list[tuple[str, str, str]]:
    mean = walks.steps / walks.walks if walks.walks else 0.0
    return [
        ("seed", str(walks.seed), f"--seed {walks.seed} does the same again, --walk N one of its walks"),
        ("walks", numbers.count(walks.walks), f"of at most {numbers.plural(walks.depth, 'state')}"),
        ("steps", numbers.count(walks.steps), f"{mean:,.1f} a walk, {numbers.rate(result.steps_per_second)}"),
        ("longest walk", numbers.count(result.depth), "states"),
        ("distinct states", numbers.count(result.distinct_states), "estimated"),
        ("time", numbers.seconds(result.seconds), _explored_by(result)),
        ("peak memory", numbers.size(result.peak_memory_bytes), ""),
        ("Python calls", numbers.count(result.evaluations), ""),
    ]


def _parked_by_round(rounds: Sequence[Mapping[str, float]], most: int = 8) -> str:
    """The share of parked walks in each of the last rounds."""
    shares = [numbers.percent(int(r["parked"]), int(r["walks"])) if r["walks"] else "-" for r in rounds[-most:]]
    return ("... " if len(rounds) > most else "") + ", ".join(shares)


def _packed(items: Iterable[str], width: int) -> list[str]:
    """Items packed into as few lines as possible."""
    found: list[str] = []
    for item in items:
        if found and len(found[-1]) + 2 + len(item) <= width:
            found[-1] += "  " + item
        else:
            found.append(item)
    return found


def _arrowed(text: str) -> tuple[Span, ...]:
    """``old → new`` with the arrow dimmed."""
    before, arrow, after = text.partition(ARROW)
    return ((before, ""), (arrow, "dim"), (after, "")) if arrow else ((text, ""),)


def set_up(trace: Trace) -> list[Happening]:
    """Where the initial state differs from the declared values of variables."""
    return [Happening(c.name, "", c.text) for c in changed(trace.protocol, trace.initial.set_up())]


def _seen_text(value: Value) -> str:
    """A value that a property read; of a channel, its messages."""
    if not isinstance(value, Channel):
        return abridged(show(value))
    return abridged("; ".join(f"{what}: {', '.join(messages)}" for what, messages in channel_lines(value)) or "empty")
