"""The page of all results, ``docs/check/mutants.md``."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from bench.mutants.judging import BY
from bench.mutants.mutate import mutants_of
from bench.mutants.protocols import SUBJECTS
from bench.mutants.results import Results

REASONS = Path(__file__).with_name("reasons.toml")

HEAD = """# Mutants of the protocols

A *mutant* is a protocol with one rule changed: a `require` dropped, a comparison shifted, a condition made true or
false, an operand or a bound dropped, a field not written, a message or another effect left out.
`python -m bench.mutants PROTOCOL` makes every one of them from the source, and asks who notices. This page is its
output.

- *configuration*: one that is shipped says something else than it does without the change: another property is
  violated, or none, or the protocol raises.
- *refinement*: a step is none of the protocol that it refines.
- *simulator*: the same rule, run by roles in the simulator, breaks a promise. *traces*: the trace of such a run is
  refused. They are asked only about rules that roles run, and only if no configuration notices.
- *counts*: only the number of states, of levels or of steps is another one. It is the weakest notice: the mutant
  forbids something that is harmless, or allows it, and no promise is broken where it was looked at. Tests compare
  states and levels.
- *nothing*: all configurations say the same, with the same counts. Each has its reason below.

A few quick configurations look at every mutant, up to the first that notices: tens of thousands of states, half a
second. After that, what none of them notices is looked at by the simulator, and by the others that are not dear: those
that do not end within `--states` look at as many levels as do. A configuration looks at a mutant only if it runs the
line that is changed. One that is noticed by its counts is not looked at again (but with `--again`): more would notice
it by a property. Limits are numbers of states and levels, a mutant is searched up to twice as far as the protocol, and
the speed of a machine decides nothing, but where the Python of a mutant does not end (30 CPU seconds, *counts*).
`tests/protocols/test_mutants.py` plants faults by hand besides, where two guards stand behind one another both of them.
"""


def reasons() -> dict[str, dict[str, str]]:
    """Why a mutant is noticed by nothing, by protocol and the name of the mutant."""
    found: dict[str, dict[str, str]] = tomllib.loads(REASONS.read_text())
    return found


def page(results: Results, why: Mapping[str, Mapping[str, str]]) -> str:
    """The page: a table of all protocols that were run, and what nothing noticed, with its reason."""
    lines = [HEAD, "| protocol | mutants | " + " | ".join(BY) + " |", "|" + "---|" * (2 + len(BY))]
    rest: list[str] = []
    open_yet: list[str] = []
    for subject in SUBJECTS.values():
        mutants = mutants_of(subject.sources())[0]
        rows = [row for mutant in mutants if (row := results.rows.get((subject.name, mutant.name))) is not None]
        if len(rows) < len(mutants) or any(row.by == "nothing" and not row.by_all for row in rows):
            begun = f" ({len(rows):,} of {len(mutants):,} begun)" if rows else ""
            open_yet.append(f"`{subject.name}`{begun}")
            continue
        by = Counter(row.by for row in rows)
        cells = [f"`{subject.name}`", f"{len(mutants):,}", *(f"{by[one]:,}" for one in BY)]
        lines.append("| " + " | ".join(cells) + " |")
        unnoticed = [row for row in rows if row.by == "nothing"]
        if unnoticed:
            rest += ["", f"## What nothing notices: {subject.name}", "", "| mutant | reason |", "|---|---|"]
            for row in unnoticed:
                reason = why.get(subject.name, {}).get(row.name, "not looked into yet")
                rest.append(f"| {_cell(row.name)} | {reason} |")
    if open_yet:
        lines += ["", f"Not run, or not to the end: {', '.join(open_yet)}."]
    return "\n".join([*lines, *rest]) + "\n"


def _cell(name: str) -> str:
    function, _, change = name.partition(": ")
    kind, _, what = change.partition(": ")
    return f"`{function}`, {kind}: `{what}`".replace("|", "\\|")
