"""``python -m bench.spark_ledgers``: how closely Spark follows a writer, and how fast it reads and writes."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.ledger.__main__ import compile_loops, machine
from bench.spark_ledgers import compare, costs, follow, kills, writes
from interop import jars
from interop.clients import Refused
from interop.processes import DidNotStart, clean_up_when_ended

PARTS: dict[str, Callable[[argparse.Namespace, Path], Any]] = {
    "follow": follow.run,
    "costs": costs.run,
    "compare": compare.run,
    "kills": kills.run,
    "writes": writes.run,
}

EPILOG = """parts, all by default:
  follow   a streaming query follows a log that is written at a steady rate: its lag, and where the time of a batch goes
  costs    microseconds of CPU of an entry that is read, by part
  compare  ledgers of BookKeeper and ours: the contents by checksum, and how fast they are read
           (needs a JDK 17 and Maven)
  kills    readers and drivers of queries are killed: whether a row is lost or doubled
  writes   how fast Spark writes a log, beside a client that appends the same entries
"""


def pairs(words: list[str]) -> dict[str, str]:
    """NAME=VALUE, as they are given."""
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark_ledgers",
        description="Measure Spark on the store.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "part", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)}; by default all of it"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured to this file as well")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark; repeatable"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the query; repeatable"
    )
    parser.add_argument("--size", type=int, default=100, metavar="BYTES", help="of an entry (by default %(default)s)")
    followed = parser.add_argument_group("follow")
    followed.add_argument(
        "--rate", type=float, default=100_000, metavar="N", help="entries a second (by default %(default)s)"
    )
    followed.add_argument("--seconds", type=float, default=30, help="that are measured (by default %(default)s)")
    followed.add_argument(
        "--warm-up", type=float, default=20, metavar="SECONDS", help="before that (by default %(default)s)"
    )
    followed.add_argument("--trigger", default="0 seconds", help="how often a batch begins (by default at once)")
    followed.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="where the query keeps its checkpoint, by default where the store is",
    )
    compared = parser.add_argument_group("costs, compare and writes")
    compared.add_argument(
        "--entries", type=int, default=1_000_000, metavar="N", help="of each ledger or log (by default %(default)s)"
    )
    compared.add_argument("--rounds", type=int, default=3, help="of which the median is told (by default %(default)s)")
    compared.add_argument(
        "--heap",
        type=int,
        default=512,
        metavar="MIB",
        help="of each virtual machine of BookKeeper's (by default %(default)s)",
    )
    killed = parser.add_argument_group("kills")
    killed.add_argument(
        "--kills", type=int, default=10, metavar="N", help="of readers and drivers, by turns (by default %(default)s)"
    )
    killed.add_argument("--seed", type=int, default=1, help="of the moments at which they are killed")
    given = parser.parse_args(words)
    for part in given.part:
        if part not in PARTS:
            parser.error(f"there is no part {part}: choose among {', '.join(PARTS)}")
    given.part = given.part or list(PARTS)
    given.conf, given.option = pairs(given.conf), pairs(given.option)
    return given


def main() -> int:
    """Measure and print; the exit status."""
    given = arguments()
    clean_up_when_ended()
    compile_loops()
    if "compare" in given.part:
        try:
            jars.fetch()
        except jars.Unavailable as missing:
            print(f"bench.spark_ledgers: {missing}", file=sys.stderr)
            return 2
    folder = Path(tempfile.mkdtemp(prefix="fencepost-bench-"))
    found: dict[str, Any] = {"machine": machine()}
    about = found["machine"]
    print(
        f"{about['processor']}, {about['cores']} cores, load {about['load']:.2f} before the first measurement",
        flush=True,
    )
    try:
        for part in given.part:
            print(f"\n{part}\n", flush=True)
            found[part] = PARTS[part](given, folder / part)
    except (AssertionError, DidNotStart, Refused) as failure:
        print(f"bench.spark_ledgers: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if given.json is not None:
            given.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"\nload {os.getloadavg()[0]:.2f} after the last measurement")
    return 0


if __name__ == "__main__":
    sys.exit(main())
