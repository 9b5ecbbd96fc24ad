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
false, an operand or a bound dropped, a field not written, a message or another effect left out. `python -m
bench.mutants PROTOCOL` makes all mutants of a protocol from its source, and finds out what notices each. This page is
its output. A mutant can be noticed by

- *configuration*: the result of a shipped configuration changes. It violates another property, or none, or the protocol
  raises.
- *refinement*: a step is not allowed by the refined protocol.
- *simulator*: the same rule, run by roles in the simulator, breaks a promise. *traces*: the trace of such a run is
  refused. These two are used only for rules that roles run, and only if no configuration notices.
- *counts*: only the number of states, levels or steps changes. This is the weakest evidence: the mutant forbids or
  allows something harmless, and no promise was broken in the states searched. Tests compare states and levels.
- *nothing*: all configurations have the same result and the same counts. The reason for each is below.

A few quick configurations check every mutant, until one notices: tens of thousands of states, half a second. If none
does, the simulator checks it, and then the other configurations that are not too expensive. Those that do not end
within `--states` check as many levels as do. A configuration checks a mutant only if it runs the changed line. A mutant
noticed by its counts is not checked again (except with `--again`), although more of them would then be noticed by a
property. Limits are numbers of states and levels, and a mutant is searched up to twice as far as the protocol. So the
speed of a machine has no influence, except if the Python of a mutant does not end (30 CPU seconds, *counts*).
`tests/protocols/test_mutants.py` also has mutants made by hand. Where one guard repeats another, they change both.
"""


def reasons() -> dict[str, dict[str, str]]:
    """Why nothing notices a mutant, by protocol and the name of the mutant."""
    found: dict[str, dict[str, str]] = tomllib.loads(REASONS.read_text())
    return found


def page(results: Results, why: Mapping[str, Mapping[str, str]]) -> str:
    """The page: a table of all protocols that were run, and the mutants that nothing noticed, each with its reason."""
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
