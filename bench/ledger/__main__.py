"""``python -m bench.ledger``: how fast the store is, beside Java's BookKeeper on ZooKeeper and beside what the machine
allows.

There are three bookies with a synced journal. Each entry goes to all three, has a CRC32C, and is acknowledged by two.
Java's client runs without its limit of 5,000 operations a second. Compare only figures of the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.ledger import cells, compare, flood, limit, many, repair, scan, soak, stages, starts, timeline
from bench.ledger.figures import size_of
from bench.ledger.sides import HEAP, KINDS, OTHER, OURS, THEIRS, Side, programs_of
from fencepost.ledger import kernels as rows
from fencepost.ledger.kernels import ready
from interop import clients, clusters, jars
from interop.clients import Refused
from interop.processes import DidNotStart, clean_up_when_ended

EPILOG = """parts, all by default:
  compare  adds, reads and scans of the sides turn by turn, and the limit: the same bytes through the loopback
           and onto the disk by processes that handle large buffers and never an entry
  stages   where each microsecond of our client and bookies goes
  timeline what each thread does in a second: it runs, or waits for a core, the disk or another one; needs perf
  flood    one bookie alone on one core, fed from the other
  scan     one client reads a ledger of some GiB in order, beside a copy of as many bytes over loopback
  many     thousands of ledgers that one client writes, each slowly, while another one follows some of them
  starts   how long a bookie takes to serve
  repair   how a bookie that has lost its disk gets its entries back while it serves
and, with --soak MINUTES alone: writes and reads at full speed for so long, and whether memory grows

python -m bench.ledger.restart: how a bookie with many entries comes back
"""


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.ledger",
        description="Measure the store.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "part", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)}; by default all of it"
    )
    parser.add_argument(
        "--quick", action="store_true", help="entries of 1 KiB alone, and one short round of everything"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured to this file as well")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the tables of compare to this file as a page has them"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave data and logs in this new folder")
    parser.add_argument("--seconds", type=float, help="of each measurement (by default 4)")
    parser.add_argument("--plain", action="store_true", help="our programs without compiled loops")
    compared = parser.add_argument_group("compare")
    compared.add_argument(
        "--size", type=int, action="append", choices=compare.SIZES, help="this size of entries alone; repeatable"
    )
    compared.add_argument(
        "--in-flight", type=int, action="append", metavar="N", help="so many in flight alone; repeatable"
    )
    compared.add_argument("--operation", action="append", choices=compare.OPERATIONS, help="these alone; repeatable")
    compared.add_argument(
        "--side", action="append", choices=KINDS, help="what to compare; by default Fencepost and Java; repeatable"
    )
    compared.add_argument(
        "--against",
        type=Path,
        metavar="DIR",
        help="compare with our programs of another checkout, as `git worktree add` makes one",
    )
    compared.add_argument(
        "--rounds", type=int, help="measurements of each figure, of which the median is told (by default 3)"
    )
    compared.add_argument(
        "--warm-up",
        type=float,
        metavar="SECONDS",
        help="of each side, at least, ahead of everything; half as long in other parts (by default 30)",
    )
    compared.add_argument(
        "--heap", type=int, default=HEAP, metavar="MIB", help=f"of each Java virtual machine (by default {HEAP})"
    )
    compared.add_argument(
        "--java-setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of Java's bookies, as journalMaxGroupWaitMSec=0",
    )
    compared.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="of our bookies")
    compared.add_argument("--no-limit", action="store_true", help="do not measure what the machine allows")
    flooded = parser.add_argument_group("flood")
    flooded.add_argument(
        "--connections", type=int, default=flood.CONNECTIONS, metavar="N", help="over so many (by default %(default)s)"
    )
    flooded.add_argument(
        "--window",
        type=int,
        default=flood.WINDOW,
        metavar="N",
        help="adds in flight of each connection (by default %(default)s)",
    )
    flooded.add_argument(
        "--flood-size", type=int, action="append", metavar="BYTES", help="of an entry (by default 100); repeatable"
    )
    flooded.add_argument("--version-2", action="store_true", help="speak version 2 of the protocol")
    drawn = parser.add_argument_group("timeline")
    drawn.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw some milliseconds of it as SVG into this file"
    )
    scanned = parser.add_argument_group("scan")
    scanned.add_argument("--gib", type=float, help="of data in the ledger that is read (by default 2)")
    of_many = parser.add_argument_group("many")
    of_many.add_argument("--ledgers", type=int, metavar="N", help="that are open at once (by default 10,000)")
    repaired = parser.add_argument_group("repair")
    repaired.add_argument(
        "--repair-entries", type=int, metavar="N", help="that the bookie has lost (by default 1,000,000)"
    )
    soaked = parser.add_argument_group("soak")
    soaked.add_argument("--soak", type=float, metavar="MINUTES", help="write and read at full speed for so long")
    soaked.add_argument(
        "--soak-size", type=int, default=1024, metavar="BYTES", help="of an entry (by default %(default)s)"
    )
    given = parser.parse_args(words)
    for part in given.part:
        if part not in PARTS:
            parser.error(f"there is no part {part}: choose among {', '.join(PARTS)}")
    for name in ("setting", "java_setting"):
        pairs = [each.partition("=") for each in getattr(given, name)]
        if not all(equals for _, equals, _ in pairs):
            parser.error(f"--{name.replace('_', '-')} is NAME=VALUE")
        setattr(given, name, {key: value for key, _, value in pairs})
    quick = given.quick
    given.part = given.part or ([] if given.soak else list(PARTS))
    given.size = given.size or ([1024] if quick else list(compare.SIZES))
    given.in_flight = given.in_flight or list(compare.IN_FLIGHT)
    given.operation = given.operation or list(compare.OPERATIONS)
    if given.against is not None and not (given.against / "src" / "fencepost").is_dir():
        parser.error(f"--against {given.against}: there is no checkout")
    given.side = given.side or ([OURS, THEIRS] if given.against is None else [OURS])
    if (OTHER in given.side) != (given.against is not None):
        if given.against is None:
            parser.error(f'--side "{OTHER}" needs --against')
        given.side.append(OTHER)
    given.seconds = given.seconds or (2 if quick else 4)
    given.rounds = given.rounds or (1 if quick else 3)
    given.warm_up = given.warm_up if given.warm_up is not None else (8 if quick else 30)
    given.flood_size = given.flood_size or [100]
    given.gib = given.gib or (0.25 if quick else 2)
    given.ledgers = given.ledgers or (1_000 if quick else 10_000)
    given.repair_entries = given.repair_entries or (100_000 if quick else 1_000_000)
    return given


def machine() -> dict[str, Any]:
    """On what was measured."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cores": os.cpu_count(),
        "processor": names[0] if names else platform.machine(),
        "system": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def compile_loops(program: Sequence[str] = (sys.executable,)) -> None:
    """Have all loops of the store compiled, so that processes only load them."""
    names = [each.name for each in pkgutil.iter_modules(rows.__path__, f"{rows.__name__}.")]
    subprocess.run([*program, "-c", f"import {', '.join(names)}"], check=True)


def measure_sides(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The part ``compare``. Each size has clusters of its own, whose data are removed: one of another size cannot fill
    the disk for it.
    """
    everything: list[cells.Cell] = []
    medians: list[cells.Cell] = []
    memory: dict[int, Any] = {}
    failures: dict[int, str] = {}
    settings = {True: given.setting, False: given.java_setting}
    for size in given.size:
        plan = compare.Plan((size,), given.in_flight, given.operation, given.seconds, given.rounds, not given.no_limit)
        sides = [
            Side(
                name,
                folder / f"{size}-{number}",
                plan.settings | settings[KINDS[name][1] == KINDS[OURS][1]],
                programs_of(given.against.resolve()) if name == OTHER else (clients.PROGRAM, clusters.PROGRAM),
                given.heap,
            )
            for number, name in enumerate(given.side)
        ]
        try:
            for side in sides:
                side.start()
            for side in sides:
                took, rate = side.warm_up(given.warm_up)
                print(f"{side.name}: {rate:,.0f} adds of 1 KiB a second after {took:.0f} s of them", flush=True)
            print(flush=True)
            try:
                compare.compare(plan, sides, folder / "limit", everything, medians)
            except Refused as refused:
                failures[size] = str(refused)
            memory[size] = {side.name: side.memory() for side in sides}
        finally:
            for number, side in enumerate(sides):
                side.end()
                if given.keep is None:
                    shutil.rmtree(folder / f"{size}-{number}", ignore_errors=True)
    if medians:
        print(cells.told(medians, THEIRS, limit.NAME), end="\n\n")
    for size, of_sides in memory.items():
        for name, parts in of_sides.items():
            told = ", ".join(
                f"{part} {size_of(sizes['resident'])} (at most {size_of(sizes['most'])})"
                for part, sizes in parts.items()
            )
            print(f"memory, entries of {size_of(size)}, {name}: {told}")
    if given.markdown is not None and medians:
        given.markdown.write_text(cells.markdown(medians, OURS, THEIRS, limit.NAME))
    return {
        "cells": [cells.as_json(cell) for cell in everything],
        "medians": [cells.as_json(cell) for cell in medians],
        "memory": memory,
        "failure": "; ".join(f"{size_of(size)}: {why}" for size, why in failures.items()) or None,
    }


PARTS: dict[str, Callable[[argparse.Namespace, Path], Any]] = {
    "compare": measure_sides,
    "stages": stages.run,
    "timeline": timeline.run,
    "flood": flood.run,
    "scan": scan.run,
    "starts": starts.run,
    "many": many.run,
    "repair": repair.run,
}


def main() -> int:
    """Measure and print; the exit status."""
    given = arguments()
    clean_up_when_ended()
    if given.plain:
        os.environ[ready.ENVIRONMENT] = "plain"
    else:
        # No figure is to be that of a time in which loops were compiled.
        os.environ[ready.ENVIRONMENT] = "compiled"
        compile_loops()
        if given.against is not None:
            compile_loops(programs_of(given.against.resolve())[0][:-2])
    if {"compare", "many"}.intersection(given.part) and any(KINDS[side] != KINDS[OURS] for side in given.side):
        try:
            jars.fetch()
        except jars.Unavailable as missing:
            print(f"bench.ledger: {missing}", file=sys.stderr)
            return 2
    folder = given.keep or Path(tempfile.mkdtemp(prefix="fencepost-bench-"))
    found: dict[str, Any] = {"machine": machine()}
    about = found["machine"]
    print(
        f"{about['processor']}, {about['cores']} cores, load {about['load']:.2f} before the first measurement",
        flush=True,
    )
    parts = [(part, PARTS[part]) for part in given.part] + ([("soak", soak.run)] if given.soak else [])
    status = 0
    try:
        for part, run in parts:
            print(f"\n{part}\n", flush=True)
            found[part] = run(given, folder / part)
            if given.keep is None:  # the next part may need the disk
                shutil.rmtree(folder / part, ignore_errors=True)
            if part == "compare" and found[part]["failure"]:  # what was measured until then is kept
                print(f"bench.ledger: compare ended before all was measured: {found[part]['failure']}", file=sys.stderr)
                status = 1
    except (DidNotStart, Refused) as failure:
        print(f"bench.ledger: {failure}", file=sys.stderr)
        status = 1
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        found["machine"]["load after"] = os.getloadavg()[0]
        if given.json is not None:
            given.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"\nload {os.getloadavg()[0]:.2f} after the last measurement")
    return status


if __name__ == "__main__":
    sys.exit(main())
