"""``python -m bench.quorum``: hurts a quorum of metadata services while clients work, and judges what they did and saw.

    python -m bench.quorum campaign --seconds 60 --seed 1
    python -m bench.quorum compare --operations 100000 --seed 1
    python -m bench.quorum bookkeeper --seconds 600 --seed 1

or measures its speed beside etcd and ZooKeeper:

    python -m bench.quorum speed
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.quorum.campaign import Campaign, Options, Outcome, median
from bench.quorum.planted import FAULTS
from interop.processes import clean_up_when_ended


def main() -> int:
    """The command line: exit code 0 if nothing is wrong, 1 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.quorum", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    campaign = verbs.add_parser(
        "campaign", help="members are processes that are hurt, clients write down what they see"
    )
    campaign.add_argument("--seconds", type=float, default=60.0)
    campaign.add_argument("--clients", type=int, default=4)
    campaign.add_argument("--members", type=int, choices=range(3, 8), default=3, help="at first; fewer bear no harm")
    campaign.add_argument("--timeout", type=int, default=6_000, help="of sessions, in milliseconds")
    campaign.add_argument("--rest", type=float, default=0.01, help="mean seconds that a client rests between two calls")
    campaign.add_argument("--harm", action="append", default=[], help="this kind alone; repeatable")
    campaign.add_argument("--fault", choices=FAULTS, default="none", help="plant a fault, which is to be noticed")
    campaign.set_defaults(run=_campaign)
    compare = verbs.add_parser(
        "compare",
        help=(
            "random operations on our quorum, whose leader is killed meanwhile, and on a ZooKeeper ensemble (needs a"
            " JDK and Maven)"
        ),
    )
    compare.add_argument("--operations", type=int, default=100_000)
    compare.add_argument("--pause", type=float, default=4.0, help="mean seconds between two harms")
    compare.set_defaults(run=_compare)
    bookkeeper = verbs.add_parser(
        "bookkeeper",
        help=(
            "Java bookies, auto-recovery, a client and a shell on our quorum while that is hurt (needs a JDK and Maven)"
        ),
    )
    bookkeeper.add_argument("--seconds", type=float, default=600.0)
    bookkeeper.set_defaults(run=_bookkeeper)
    speed = verbs.add_parser(
        "speed", help="changes and reads a second, beside ZooKeeper and etcd (needs a JDK and Maven, and Go for etcd)"
    )
    speed.add_argument("--seconds", type=float, default=2.0, help="of one turn of one store")
    speed.add_argument("--turns", type=int, default=3)
    speed.add_argument(
        "--members", type=int, choices=(1, 3), default=3, help="of each; 1: a single service, beside ZooKeeper alone"
    )
    speed.add_argument("--kills", type=int, default=5, help="of the leader, to see how long a change takes then")
    speed.add_argument("--size", type=int, help="bytes of a value: these loads alone")
    speed.add_argument("--in-flight", type=int, help="these loads alone")
    speed.add_argument(
        "--etcd", type=Path, metavar="FILE", help="what bench/quorum/etcd was built to; by default it is built once"
    )
    speed.set_defaults(run=_speed)
    for verb in (campaign, compare, bookkeeper, speed):
        verb.add_argument("--seed", type=int, help="by default any")
        verb.add_argument(
            "--keep",
            type=Path,
            metavar="DIR",
            help="a new directory for all that is written, which is then not removed",
        )
        verb.add_argument("--json", action="store_true", help="the outcome as JSON")
    given = parser.parse_args()
    clean_up_when_ended()
    if given.seed is None:
        given.seed = random.randrange(1 << 32)
    path = given.keep or Path(tempfile.mkdtemp(prefix="fencepost-quorum-"))
    path.mkdir(exist_ok=True)
    code: int = given.run(given, path)
    if not code and given.keep is None:
        shutil.rmtree(path)
    return code


def _compare(given: argparse.Namespace, path: Path) -> int:
    from bench.quorum.comparison import compare

    out = sys.stderr if given.json else sys.stdout
    print(f"seed {given.seed}, in {path}", file=out, flush=True)
    began = time.monotonic()
    done, different = compare(
        path, given.seed, given.operations, given.pause, lambda line: print(line, file=out, flush=True)
    )
    found = {
        "seed": given.seed,
        "seconds": round(time.monotonic() - began, 1),
        "different": different,
        "operations": done.operations,
        "answers and events": done.compared,
        "harms": dict(sorted(done.harm.done.items())),
        **dict(sorted(done.counts.items())),
    }
    if given.json:
        print(json.dumps(found))
    else:
        print(f"DIFFERENT {different}" if different else "EQUAL")
        for name, value in found.items():
            if name != "different":
                print(f"{name:<34}{value:,}" if isinstance(value, int) else f"{name:<34}{value}")
    return int(bool(different))


def _bookkeeper(given: argparse.Namespace, path: Path) -> int:
    from bench.quorum.bookkeeper import Bookkeeper

    out = sys.stderr if given.json else sys.stdout
    print(f"seed {given.seed}, in {path}", file=out, flush=True)
    outcome = Bookkeeper(path, given.seed, given.seconds, lambda line: print(line, file=out, flush=True)).run()
    found = {
        "seed": given.seed,
        "seconds": round(outcome.seconds, 1),
        "wrong": outcome.wrong,
        "harms": dict(sorted(outcome.harms.items())),
        **dict(sorted(outcome.counts.items())),
        "calls that BookKeeper's client tried again": dict(sorted(outcome.errors.items())),
        "seconds until a new leader acknowledged": [round(each, 2) for each in outcome.waits],
        "longest wait for a new ledger": round(outcome.longest_create, 2),
    }
    if given.json:
        print(json.dumps(found))
        return int(bool(outcome.wrong))
    print(
        f"BROKEN: {len(outcome.wrong)} things are wrong"
        if outcome.wrong
        else "HELD  every acknowledged entry is there, and no registration was lost"
    )
    for each in outcome.wrong[:30]:
        print(f"  {each}")
    for name, value in found.items():
        if name != "wrong":
            print(f"{name:<44}{value:,}" if isinstance(value, int) else f"{name:<44}{value}")
    return int(bool(outcome.wrong))


def _speed(given: argparse.Namespace, path: Path) -> int:
    from bench.quorum.speed import LOADS, run

    out = sys.stderr if given.json else sys.stdout
    loads = [each for each in LOADS if given.size in (None, each.size) and given.in_flight in (None, each.in_flight)]
    say = partial(print, file=out, flush=True)
    found = run(path, given.members, loads, given.seconds, given.turns, given.kills, given.etcd, say)
    if given.json:
        print(json.dumps(found))
    return 0


def _campaign(given: argparse.Namespace, path: Path) -> int:
    out = sys.stderr if given.json else sys.stdout
    print(f"seed {given.seed}, in {path}", file=out, flush=True)
    options = Options(
        path,
        given.seed,
        given.seconds,
        given.members,
        given.clients,
        given.timeout,
        given.rest,
        tuple(given.harm),
        given.fault,
    )
    outcome = Campaign(options, lambda line: print(line, file=out, flush=True)).run()
    print(json.dumps(_data(outcome, given.seed)) if given.json else _summary(outcome, given.seed), flush=True)
    return int(bool(outcome.wrong))


def _data(outcome: Outcome, seed: int) -> dict[str, object]:
    return {
        "seed": seed,
        "seconds": round(outcome.seconds, 1),
        "wrong": outcome.wrong,
        "harms": dict(sorted(outcome.harms.items())),
        "counts": dict(sorted(outcome.counts.items())),
        "seconds until a new leader acknowledged": [round(each, 2) for each in outcome.waits],
        "longest pause": round(outcome.longest_pause, 2),
    }


def _summary(outcome: Outcome, seed: int) -> str:
    counts = outcome.counts
    lines = [
        (
            f"BROKEN: {len(outcome.wrong)} things are wrong"
            if outcome.wrong
            else "HELD  nothing acknowledged was lost, and all saw what they may"
        ),
        *(f"  {each}" for each in outcome.wrong[:30]),
        f"seed {seed}, {outcome.seconds:.0f} s",
        "harms    " + ", ".join(f"{count} x {how}" for how, count in sorted(outcome.harms.items())),
        "clients  " + ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items())),
    ]
    if outcome.waits:
        lines.append(
            f"after the leader was killed, a change was acknowledged within {median(outcome.waits):.2f} s in the"
            f" middle, {max(outcome.waits):.2f} s at most"
        )
    lines.append(f"longest time without an acknowledged change: {outcome.longest_pause:.1f} s")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
