"""``python -m bench.mutants [PROTOCOL ...]``: who notices when one rule of a protocol is changed.

Each mutant is one change: a ``require`` dropped, a comparison shifted, a field not written, a message not sent. A few
quick configurations of its protocol look at each, one after the other, up to the first that notices. After that, what
these do not notice is looked at by the simulator and its traces, for rules that roles run, and by other configurations.

    python -m bench.mutants ledger-chaining              every mutant of one protocol
    python -m bench.mutants --sample 20 --seed 1         some of every protocol
    python -m bench.mutants --again log                  those by more that nothing, or counts alone, noticed
    python -m bench.mutants --summary                    the table of docs/check/mutants.md

Results are added to a file, a line each, so a campaign can be ended and goes on where it was. A result counts as long
as neither the protocol nor the tool's limits have changed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

from bench.mutants import protocols
from bench.mutants.judging import NOBODY, Notice, baselines, by_configurations, by_simulator, warm
from bench.mutants.mutate import Mutant, mutants_of
from bench.mutants.results import Results
from bench.mutants.summary import reasons, summary

RESULTS = Path("build/mutants.jsonl")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.mutants", description=__doc__.split("\n\n")[0])
    parser.add_argument("protocol", nargs="*", help=f"of {', '.join(protocols.SUBJECTS)}; by default all")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many mutants of each protocol")
    parser.add_argument("--seed", type=int, default=0, help="which those are (default: 0)")
    parser.add_argument("--only", metavar="TEXT", help="only mutants whose name has this in it")
    parser.add_argument("--again", action="store_true", help="those by more that nothing, or counts alone, noticed")
    parser.add_argument(
        "--states", type=int, default=400_000, help="the largest configuration (default: 400,000 states)"
    )
    parser.add_argument("--minutes", type=float, help="begin no mutant after so many minutes")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"where results are kept (default: {RESULTS})")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run none")
    parser.add_argument("--json", action="store_true", help="print results as JSON lines")
    parser.add_argument("--summary", action="store_true", help="print a table of all results")
    given = parser.parse_args()
    for name in given.protocol:
        if name not in protocols.SUBJECTS:
            parser.error(f"{name}: there are {', '.join(protocols.SUBJECTS)}")
    return given


class _Campaign:
    """The mutants of a protocol that are to be judged, up to a time."""

    def __init__(self, subject: protocols.Subject, given: argparse.Namespace, results: Results, until: float) -> None:
        self.subject = subject
        self.given = given
        self.results = results
        self.until = until
        sources = subject.sources()
        self.texts = dict(sources)
        self.mutants, self.skipped = mutants_of(sources)
        if given.only:
            self.mutants = [mutant for mutant in self.mutants if given.only in mutant.name]
        if given.sample is not None:
            self.mutants = random.Random(given.seed).sample(self.mutants, min(given.sample, len(self.mutants)))

    def begin(self) -> bool:
        """Let few look at the mutants that are not judged yet; whether there was time for all."""
        new = [mutant for mutant in self.mutants if self.results.row(self.subject, mutant) is None]
        known = len(self.mutants) - len(new)
        self._say(f"{len(self.mutants)} mutants, {known} known, {len(self.skipped)} that change nothing")
        return self._judge(new, by_all=False)

    def go_on(self) -> bool:
        """Let more look at those that few have not noticed; whether there was time for all."""
        return self._judge(self._unnoticed(), by_all=True)

    def _unnoticed(self) -> list[Mutant]:
        rows = [(mutant, self.results.row(self.subject, mutant)) for mutant in self.mutants]
        if self.given.again:
            return [mutant for mutant, row in rows if row is not None and row.by in ("counts", "nothing")]
        return [mutant for mutant, row in rows if row is not None and row.by == "nothing" and not row.by_all]

    def _judge(self, left: list[Mutant], by_all: bool) -> bool:
        if not left:
            return True
        warm()
        subject = self.subject
        unchanged = baselines(subject, self.given.again or not by_all, by_all, self.given.states)
        self._say(f"looked at by {', '.join(one.configuration for one in unchanged)}")
        began = time.monotonic()
        for done, mutant in enumerate(left):
            if time.monotonic() > self.until:
                return False
            text = mutant.mutated(self.texts[mutant.module])
            notice = by_simulator(subject, mutant.module, text) if by_all else NOBODY
            if notice is NOBODY:
                notice = by_configurations(subject, mutant, text, unchanged, self.given.again)
            self.results.add(subject, mutant, notice, by_all)
            if by_all or notice.by != "nothing":
                self._tell(mutant, notice)
            each = (time.monotonic() - began) / (done + 1)
            if (done + 1) % 10 == 0:
                rest = each * (len(left) - done - 1) / 60
                self._say(f"{done + 1} of {len(left)}, {each:.1f} s each, {rest:.0f} min left")
        return True

    def _say(self, what: str) -> None:
        print(f"{self.subject.name}: {what}", file=sys.stderr, flush=True)

    def _tell(self, mutant: Mutant, notice: Notice) -> None:
        if self.given.json:
            row = {"protocol": self.subject.name, "name": mutant.name, "by": notice.by, "how": notice.how}
            print(json.dumps(row), flush=True)
            return
        place = f"{protocols.path_of(mutant.module).name}:{mutant.line}"
        how = f" ({notice.how})" if notice.how else ""
        print(f"{notice.by:<13} {place}  {mutant.name.partition(': ')[2]}{how}", flush=True)


def main() -> int:
    """Run what is asked for."""
    given = _arguments()
    subjects = protocols.of(given.protocol)
    results = Results(given.results)
    if given.summary:
        print(summary(results, reasons()), end="")
        return 0
    if given.list:
        for subject in subjects:
            for mutant in mutants_of(subject.sources())[0]:
                print(f"{protocols.path_of(mutant.module).name}:{mutant.line}  {mutant.name}")
        return 0
    until = float("inf") if given.minutes is None else time.monotonic() + given.minutes * 60
    try:
        campaigns = [_Campaign(subject, given, results, until) for subject in subjects]
        _ = all(one.begin() for one in campaigns) and all(one.go_on() for one in campaigns)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
