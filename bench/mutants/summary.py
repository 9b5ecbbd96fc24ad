"""The table of all results, as in ``docs/check/mutants.md``, and the reasons why nothing notices a mutant."""

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


def reasons() -> dict[str, dict[str, str]]:
    """Why nothing notices a mutant, by protocol and the name of the mutant."""
    found: dict[str, dict[str, str]] = tomllib.loads(REASONS.read_text())
    return found


def summary(results: Results, why: Mapping[str, Mapping[str, str]]) -> str:
    """A row for each protocol that was run to the end. Below, the other protocols, the unnoticed mutants without a
    reason, and the noticed ones with one.
    """
    lines = ["| protocol | mutants | " + " | ".join(BY) + " |", "|" + "---|" * (2 + len(BY))]
    rest: list[str] = []
    for subject in SUBJECTS.values():
        mutants = mutants_of(subject.sources())[0]
        rows = [row for mutant in mutants if (row := results.rows.get((subject.name, mutant.name))) is not None]
        if len(rows) < len(mutants) or any(row.by == "nothing" and not row.by_all for row in rows):
            rest.append(f"Not run to the end: {subject.name}, {len(rows):,} of {len(mutants):,} begun.")
            continue
        by = Counter(row.by for row in rows)
        cells = [f"`{subject.name}`", f"{len(mutants):,}", *(f"{by[one]:,}" for one in BY)]
        lines.append("| " + " | ".join(cells) + " |")
        explained = why.get(subject.name, {})
        for row in rows:
            if row.by == "nothing" and row.name not in explained:
                rest.append(f"Without a reason: {subject.name}, {row.name}")
            elif row.by != "nothing" and row.name in explained:
                rest.append(f"Noticed, so its reason is wrong: {subject.name}, {row.name}")
    return "\n".join(lines + [""] * bool(rest) + rest) + "\n"
