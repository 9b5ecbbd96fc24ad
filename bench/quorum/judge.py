"""What must be true of all that clients of a quorum did and saw."""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from bench.quorum.clients import PASSING, SHARED, Record, Seen, Wrote
from bench.quorum.histories import Call, TooMany, contradiction


def judge(records: Sequence[Record], there: Mapping[str, Iterable[str]]) -> list[str]:
    """What is wrong. ``there``: the names in the folders ``/own``, ``/order`` and ``/lines`` at the end."""
    wrong = [each for record in records for each in record.wrong]
    wrong += histories(records)
    wrote = sorted((each for record in records for each in record.wrote), key=lambda each: each.zxid)
    seen = [each for record in records for each in record.seen]
    wrong += order(wrote, seen)
    wrong += reads(wrote, seen)
    wrong += kept(records, {folder: set(names) for folder, names in there.items()})
    wrong += ephemerals(records)
    return wrong


def histories(records: Sequence[Record]) -> list[str]:
    """Of each znode: changes, and reads behind a sync, are linearizable."""
    wrong = []
    for path in (*SHARED, *PASSING):
        calls: list[Call] = [call for record in records for call in record.calls.get(path, ())]
        try:
            what = contradiction(calls, ("", 0) if path in SHARED else None)
        except TooMany as error:
            what = f"not judged: {error}"
        if what:
            wrong.append(f"{path} is not linearizable: {what}")
    return wrong


def order(wrote: Sequence[Wrote], seen: Sequence[Seen]) -> list[str]:
    """Check all znodes together. The order of zxids fits the times of the changes. A read after a sync sees at least
    what any client had seen before.
    """
    wrong = []
    for one, other in itertools.pairwise(wrote):
        if one.zxid == other.zxid:
            wrong.append(f"two changes have zxid {one.zxid}: of {one.path} and of {other.path}")
    both: list[Wrote | Seen] = [*wrote, *seen]
    answered = sorted((each.end, each.zxid) for each in both)
    ends, most = [end for end, _ in answered], list(itertools.accumulate((zxid for _, zxid in answered), max))
    for each in both:
        if isinstance(each, Seen) and not each.synced:
            continue
        before = bisect.bisect_left(ends, each.begin)
        if before and most[before - 1] > each.zxid - isinstance(each, Wrote):
            what = "a change" if isinstance(each, Wrote) else "a read behind a sync"
            wrong.append(f"{what} of {each.path} has zxid {each.zxid}, and began after {most[before - 1]} was answered")
    return wrong


def reads(wrote: Sequence[Wrote], seen: Sequence[Seen]) -> list[str]:
    """Of every read, with a sync or without: it is of the state that its zxid says. So a session, whose zxids never
    fall, sees its own changes and never goes back.
    """
    wrong = []
    by_path: dict[str, list[Wrote]] = defaultdict(list)
    values: dict[tuple[str, int], tuple[str, int]] = {}
    for each in wrote:
        by_path[each.path].append(each)
        if each.znode is not None:
            values[each.path, each.zxid] = each.znode
    for read in seen:
        changes = by_path[read.path]
        last = bisect.bisect_right(changes, read.zxid, key=lambda each: each.zxid) - 1
        if read.znode is None:
            if read.path in SHARED:
                wrong.append(f"{read.path} was not there at zxid {read.zxid}")
            continue
        if last >= 0 and changes[last].zxid > read.changed:
            wrong.append(
                f"{read.path} was of zxid {read.changed} at zxid {read.zxid}, and was changed at {changes[last].zxid}"
            )
        if values.setdefault((read.path, read.changed), read.znode) != read.znode:
            wrong.append(
                f"{read.path} was {read.znode} at zxid {read.changed} for one, and {values[read.path, read.changed]}"
                " for another"
            )
    return wrong


def kept(records: Sequence[Record], there: Mapping[str, set[str]]) -> list[str]:
    """What was acknowledged is there, each once, in its order."""
    wrong = []
    for number, record in enumerate(records):
        missing = [path for path in record.created if path.rpartition("/")[2] not in there["/own"]]
        if missing:
            wrong.append(
                f"LOST: {len(missing)} acknowledged znodes of client {number} are gone, {', '.join(missing[:3])}"
            )
        for prefix, count, answered in record.orders:
            found = [f"{prefix}{each}" in there["/order"] for each in range(count)]
            if not all(found[:answered]):
                wrong.append(
                    f"LOST: of /order/{prefix}*, {answered} were acknowledged, and there are"
                    f" {[n for n, each in enumerate(found) if each]}"
                )
            if found != sorted(found, reverse=True):
                wrong.append(
                    f"/order/{prefix}* were sent in their order, and there are"
                    f" {[n for n, each in enumerate(found) if each]}"
                )
    lines = sorted((begin, end, path) for record in records for path, begin, end in record.lines)
    paths = [path for *_, path in lines]
    if len(set(paths)) < len(paths):
        wrong.append("two sequential znodes have the same name")
    missing = [path for path in paths if path.rpartition("/")[2] not in there["/lines"]]
    if missing:
        wrong.append(f"LOST: {len(missing)} acknowledged sequential znodes are gone, {', '.join(missing[:3])}")
    by_end = sorted((end, path) for _, end, path in lines)
    most, place = "", 0
    for begin, _, path in lines:
        while place < len(by_end) and by_end[place][0] < begin:
            most, place = max(most, by_end[place][1]), place + 1
        if path < most:
            wrong.append(f"{path} was asked for after {most} was there")
    return wrong


def ephemerals(records: Sequence[Record]) -> list[str]:
    """None is gone, or another session's, while its session is there."""
    wrong = []
    looks = defaultdict(list)
    for record in records:
        for begin, end, path, owner in record.absent:
            looks[path].append((begin, end, owner))
    for record in records:
        for each in record.ephemerals:
            for begin, end, owner in looks[each.path]:
                if each.since < begin and end < min(each.alive, each.closing) and owner != each.session:
                    wrong.append(
                        f"{each.path} was {'gone' if not owner else f'of {owner:#x}'}, and its session"
                        f" {each.session:#x} was there later"
                    )
    return wrong
