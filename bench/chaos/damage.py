"""``python -m bench.chaos.damage --times 500 --seed S``: a file is damaged, and what it belongs to is started again.

Victims are one of three bookies, with or without its entries in the journal, after a kill, a clean end or in a repair;
a member of a metadata service, of three or alone; ``cluster.json``; the checkpoint of a search; and a folder of traces.
Their files are removed, emptied, truncated, filled with zeros, changed by a bit or a sector, or replaced by those of an
earlier clean end. ``--fault N`` repeats the fault of a number.

The restarted process either says in one line why it does not start, or it serves and gives no wrong answer. A bookie
does not deny an entry that it confirmed, and rejects the adds of a writer that it fenced. A member keeps its promises.
The other processes start in any case. In the whole cluster, every entry, every end of a ledger and every znode is as
it was acknowledged. Every step ends in bounded time.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.chaos.parts import Overdue
from bench.chaos.victims import REFUSED, VICTIMS, Victim

NEVER = ("LOCK",)
"""Files that nobody reads."""

WITHOUT_CONTENTS = (".reserve", ".spare")
"""The ends of the names of files whose contents do not count: nothing may come of damage to them."""


def files_of(directory: Path) -> list[Path]:
    """The files of a folder."""
    paths = (path for path in directory.rglob("*") if path.is_file() and path.name not in NEVER)
    return sorted(path.relative_to(directory) for path in paths)


def kind_of(path: Path) -> str:
    """The kind of a file: those with numbers for names are of one."""
    return f"{path.parent}/{path.suffix if path.stem[:1].isdigit() else path.name}"


def flipped(path: Path, bit: int) -> None:
    """Flip a bit of a file."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def ways(draw: random.Random, path: Path, older: Path) -> Iterator[tuple[int, str]]:
    """The ways in which a file can be damaged, with how often each is drawn."""
    yield 3, "removed"
    size = path.stat().st_size
    if size:
        yield 3, "emptied"
        yield 4, "cut"
        yield 6, "flipped"
        yield 2, "zeros"
        yield 2, "sector lost"
        yield 2, "sector overwritten"
    else:
        yield 2, "filled"
    if older.is_file() and older.read_bytes() != path.read_bytes():
        yield 6, "older"


def harm(draw: random.Random, path: Path, older: Path) -> str:
    """Damage a file in any way; what was done."""
    found = list(ways(draw, path, older))
    (way,) = draw.choices([way for _, way in found], [weight for weight, _ in found])
    return done(draw, way, path, older)


def done(draw: random.Random, way: str, path: Path, older: Path) -> str:
    """Damage a file in a way; what was done."""
    size = path.stat().st_size
    written = max(1, len(path.read_bytes().rstrip(b"\0")))  # not in room that was never written
    at = draw.randrange(written)
    sector = slice(at // 512 * 512, min(size, at // 512 * 512 + 512))
    if way == "removed":
        path.unlink()
    elif way == "emptied":
        os.truncate(path, 0)
    elif way == "cut":
        os.truncate(path, at := draw.choice([at, draw.randrange(size)]))
        return f"cut at byte {at:,}"
    elif way == "flipped":
        flipped(path, bit := at * 8 + draw.randrange(8))
        return f"bit {bit:,} flipped"
    elif way == "older":
        path.write_bytes(older.read_bytes())
    elif way == "zeros":
        path.write_bytes(bytes(size))
    elif way == "filled":
        path.write_bytes(draw.randbytes(40))
    else:
        data = bytearray(path.read_bytes())
        length = sector.stop - sector.start
        data[sector] = draw.randbytes(length) if way == "sector overwritten" else bytes(length)
        path.write_bytes(data)
        return f"{way}, from byte {sector.start:,}"
    return way


def one_fault(draw: random.Random, victim: Victim) -> tuple[str, str, list[str]]:
    """Damage one file of a victim, and start it: what was done, what came of it, and what is wrong with that."""
    victim.restore()
    folder = draw.choice(victim.folders)
    files = files_of(victim.live / folder) if not hasattr(victim, "files") else list(map(Path, victim.files))
    kind = draw.choice(sorted({kind_of(path) for path in files}))
    name = draw.choice([path for path in files if kind_of(path) == kind])
    what = f"{folder}/{name} {harm(draw, victim.live / folder / name, victim.before / folder / name)}"
    try:
        came, wrong = victim.start(folder)
    except (Overdue, OSError, TimeoutError) as error:
        return what, "?", [f"{type(error).__name__}: {error}"]
    if name.name.endswith(WITHOUT_CONTENTS) and came == REFUSED:
        wrong.append("the contents of this file do not count, and yet it does not start")
    return what, came, wrong


def main() -> int:
    """Damage files at random, again and again; exit code 1 if anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.chaos.damage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=50, help="how many faults (50)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="what they follow from; any")
    parser.add_argument("--fault", type=int, action="append", help="do this one of them again (repeatable)")
    parser.add_argument("--of", choices=VICTIMS, action="append", help="of these victims alone (repeatable)")
    given = parser.parse_args()
    logging.disable(logging.ERROR)  # of clients, whose connections break
    names = given.of or list(VICTIMS)
    outcomes, faults, began = Counter[str](), 0, time.monotonic()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fencepost-damage-") as home:
        victims: dict[str, Victim] = {}
        for number in given.fault or range(given.times):
            draw = random.Random(f"{given.seed} {number}")
            (name,) = draw.choices(names, [VICTIMS[name][0] for name in names])
            if name not in victims:
                victims[name] = VICTIMS[name][1](Path(home) / name)
            what, came, wrong = one_fault(draw, victims[name])
            outcomes[f"{name} {came}"] += 1
            faults += bool(wrong)
            said = f": {'; '.join(wrong)}" if wrong else ""
            print(f"{'WRONG ' if wrong else ''}{number} {name:<14} {came:<12} {what}{said}", flush=True)
    print("\n".join(f"{count:4} x {outcome}" for outcome, count in sorted(outcomes.items())))
    print(f"{sum(outcomes.values())} faults in {time.monotonic() - began:.0f} s, {faults} wrong")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
