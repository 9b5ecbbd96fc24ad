"""``python -m bench.chaos --minutes 10 --seed S``: a real cluster under load, hurt at random, and judged."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from bench.chaos.campaign import Campaign, Options, Outcome


def main() -> int:
    """Run a campaign and tell what came of it: exit code 0 if nothing was lost and all came back, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long everything is hurt")
    parser.add_argument("--harms", type=int, default=0, help="and until so many harms were done")
    parser.add_argument("--entries", type=int, default=0, help="and until so many entries were acknowledged")
    parser.add_argument("--seed", type=int, help="of what is hurt when; by default any")
    parser.add_argument(
        "--bookies", type=int, default=4, help="bookies; ledgers have 2 to 4 of them, of which 2 acknowledge"
    )
    parser.add_argument(
        "--members", type=int, default=1, help="members of the metadata service; one is hurt at a time, at the most"
    )
    parser.add_argument("--tolerated", type=int, default=1, help="bookies that are hurt at the same time, at the most")
    parser.add_argument("--rate", type=int, default=500, help="entries a second that each writer appends at the most")
    parser.add_argument("--writers", type=int, default=2, help="writers")
    parser.add_argument("--loggers", type=int, default=0, help="writers of one log; with any, it has a follower too")
    parser.add_argument(
        "--without-journal",
        action="store_true",
        help="bookies that have adds in memory alone, and repair themselves after a kill",
    )
    parser.add_argument(
        "--wipes",
        type=float,
        default=0.0,
        help="the share of bookies that are killed which lose their entries, and repair themselves",
    )
    parser.add_argument("--metadata-port", help="as of fencepost cluster up")
    parser.add_argument("--bookie-port", help="as of fencepost cluster up")
    parser.add_argument("--keep", type=Path, help="a new directory for all that is written, which is then not removed")
    parser.add_argument(
        "--trace",
        type=Path,
        help="a new folder for the traces of all processes: fencepost validate holds them to the protocol",
    )
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    directory = given.keep or Path(tempfile.mkdtemp(prefix="fencepost-chaos-"))
    ports = [(name, getattr(given, name.replace("-", "_"))) for name in ("metadata-port", "bookie-port")]
    options = Options(
        directory=directory,
        seed=seed,
        seconds=given.minutes * 60,
        harms=given.harms,
        entries=given.entries,
        bookies=given.bookies,
        tolerated=given.tolerated,
        rate=given.rate,
        members=given.members,
        clients=(
            ("writer", given.writers),
            ("reader", 1),
            ("tailer", 1),
            ("recoverer", 1),
            ("logger", given.loggers),
            ("follower", min(given.loggers, 1)),
        ),
        wipes=given.wipes,
        settings=(
            f"journalWriteData = {'false' if given.without_journal else 'true'}",
            f"dataIntegrityStampMissingCookies = {'true' if given.wipes else 'false'}",
        ),
        trace=given.trace and given.trace.absolute(),
        ports=tuple(word for name, port in ports if port for word in (f"--{name}", port)),
    )
    out = sys.stderr if given.json else sys.stdout
    print(f"seed {seed}, in {directory}", file=out, flush=True)
    outcome = asyncio.run(Campaign(options, lambda text: print(text, file=out, flush=True)).run())
    print(json.dumps(data(outcome, seed)) if given.json else summary(outcome, seed), flush=True)
    if not outcome.faults and given.keep is None:
        shutil.rmtree(directory)
    return 1 if outcome.faults else 0


def data(outcome: Outcome, seed: int) -> dict[str, object]:
    """The summary, for JSON."""
    judge = outcome.judge
    return {
        "seed": seed,
        "seconds": outcome.seconds,
        "faults": outcome.faults,
        "harms": dict(sorted(outcome.harms.items())),
        "ledgers": len(judge.ledgers),
        "acknowledged": judge.counts["entries acknowledged"],
        "read": judge.counts["entries read"],
        "acknowledged in the log": judge.counts["entries of the log"],
        "closed": judge.counts["closed"],
        "recovered": judge.counts["recovered"],
        "tailed to the end": judge.counts["ended"],
        "failures": dict(sorted(judge.failures.items())),
        "longest pause": outcome.longest_pause,
    }


def summary(outcome: Outcome, seed: int) -> str:
    """The summary, for people."""
    judge, faults = outcome.judge, outcome.faults
    verdict = "BROKEN" if faults else "HELD  nothing acknowledged was lost, and everything came back by itself"
    harms = ", ".join(f"{count} x {harm}" for harm, count in sorted(outcome.harms.items())) or "none"
    failures = ", ".join(f"{count} x {error}" for error, count in sorted(judge.failures.items())) or "none"
    leaders = len(judge.log.appended)
    log = (
        [f"log       {judge.counts['entries of the log']:,} entries acknowledged by {leaders} leaders"]
        if leaders
        else []
    )
    return "\n".join(
        [
            verdict,
            *(f"  {fault}" for fault in faults[:50]),
            f"seed {seed}, {outcome.seconds:.0f} s",
            f"harms     {harms}",
            (
                f"ledgers   {len(judge.ledgers):,} created, {judge.counts['closed']:,} closed by their writers, "
                f"{judge.counts['recovered']:,} recoveries, {judge.counts['ended']:,} read to the end as they grew"
            ),
            (
                f"entries   {judge.counts['entries acknowledged']:,} acknowledged, {judge.counts['entries read']:,}"
                " read meanwhile"
            ),
            *log,
            f"failures  {failures} (which clients tried again)",
            f"longest time without an acknowledgement: {outcome.longest_pause:.1f} s",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
