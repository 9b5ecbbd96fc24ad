"""``python -m bench.mutants [PROTOCOL ...]``: who notices when one rule of a protocol is changed.

Each mutant is one change: a ``require`` dropped, a comparison shifted, a field not written, a message not sent. The
configurations of its protocol look at it one after the other, the quickest first, up to the first that says something
else than it does without the change; then, for rules that roles run, the simulator and its traces.

    python -m bench.mutants ledger-chaining              every mutant of one protocol
    python -m bench.mutants --sample 20 --seed 1         some of every protocol
    python -m bench.mutants --again log                  those once more that nobody noticed
    python -m bench.mutants --page > docs/mutants.md     the page, of what was run

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
from bench.mutants.judging import Baseline, Notice, baselines, judged, warm
from bench.mutants.mutate import Mutant, mutants_of
from bench.mutants.page import page, reasons
from bench.mutants.results import Results

RESULTS = Path("build/mutants.jsonl")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.mutants", description=__doc__.split("\n\n")[0])
    parser.add_argument("protocol", nargs="*", help=f"of {', '.join(protocols.SUBJECTS)}; by default all")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many mutants of each protocol")
    parser.add_argument("--seed", type=int, default=0, help="which those are (default: 0)")
    parser.add_argument("--only", metavar="TEXT", help="only mutants whose name has this in it")
    parser.add_argument("--again", action="store_true", help="those again that nothing, or counts alone, noticed")
    parser.add_argument(
        "--states", type=int, default=400_000, help="the largest configuration (default: 400,000 states)"
    )
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="the CPU seconds that a configuration may take (default: 4)"
    )
    parser.add_argument("--minutes", type=float, help="begin no mutant after so many minutes")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"where results are kept (default: {RESULTS})")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run none")
    parser.add_argument("--json", action="store_true", help="print results as JSON lines")
    parser.add_argument("--page", action="store_true", help="print the page of all results")
    given = parser.parse_args()
    for name in given.protocol:
        if name not in protocols.SUBJECTS:
            parser.error(f"{name}: there are {', '.join(protocols.SUBJECTS)}")
    return given


def _shown(mutant: Mutant, notice: Notice) -> str:
    path = protocols.path_of(mutant.module).name
    how = f" ({notice.how})" if notice.how else ""
    return f"{notice.by:<13} {path}:{mutant.line}  {mutant.name.partition(': ')[2]}{how}"


def _run(subject: protocols.Subject, given: argparse.Namespace, results: Results, until: float) -> bool:
    """Judge the mutants of a protocol that are not judged yet; whether there was time for all."""
    sources = subject.sources()
    texts = dict(sources)
    mutants, skipped = mutants_of(sources)
    if given.only:
        mutants = [mutant for mutant in mutants if given.only in mutant.name]
    if given.sample is not None:
        mutants = random.Random(given.seed).sample(mutants, min(given.sample, len(mutants)))
    left = [mutant for mutant in mutants if not results.knows(subject, mutant, given.again)]
    print(
        f"{subject.name}: {len(mutants)} mutants, {len(mutants) - len(left)} known, {len(skipped)} that change nothing",
        file=sys.stderr,
    )
    if not left:
        return True
    warm()
    unchanged: list[Baseline] = baselines(subject, given.states, given.seconds)
    names = ", ".join(one.configuration for one in unchanged)
    print(f"{subject.name}: looked at by {names}", file=sys.stderr, flush=True)
    began = time.monotonic()
    for done, mutant in enumerate(left):
        if time.monotonic() > until:
            return False
        notice = judged(subject, mutant, mutant.mutated(texts[mutant.module]), unchanged)
        results.add(subject, mutant, notice)
        if given.json:
            print(json.dumps({"protocol": subject.name, "name": mutant.name, "by": notice.by, "how": notice.how}))
        else:
            print(_shown(mutant, notice), flush=True)
        each = (time.monotonic() - began) / (done + 1)
        if (done + 1) % 10 == 0:
            rest = each * (len(left) - done - 1) / 60
            print(f"{subject.name}: {done + 1} of {len(left)}, {each:.1f} s each, {rest:.0f} min left", file=sys.stderr)
    return True


def main() -> int:
    """Run what is asked for."""
    given = _arguments()
    subjects = protocols.of(given.protocol)
    results = Results(given.results)
    if given.page:
        print(page(results, reasons()), end="")
        return 0
    if given.list:
        for subject in subjects:
            for mutant in mutants_of(subject.sources())[0]:
                print(f"{protocols.path_of(mutant.module).name}:{mutant.line}  {mutant.name}")
        return 0
    until = float("inf") if given.minutes is None else time.monotonic() + given.minutes * 60
    try:
        for subject in subjects:
            if not _run(subject, given, results, until):
                break
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
