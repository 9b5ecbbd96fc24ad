"""A map of a ledger's replicas, as text: its fragments and ensembles, and which bookie has which entries."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.entries import Runs, runs_of
from fencepost.ledger.messages import ListEntries, ListEntriesResponse, ReadEntry, ReadEntryResponse
from fencepost.ledger.rules.codes import NEGATIVES, Code
from fencepost.ledger.rules.ensembles import fragment_of, write_set
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus

PROBED = 240
"""The most entries requested from a bookie that cannot list its entries, spread evenly over the ledger."""

FULL, PART, NONE, UNKNOWN, NOT_ITS = "█", "▒", "·", "?", " "


class Holding(msgspec.Struct, frozen=True):
    """The entries of a ledger that a bookie says it has; None: it does not say. ``is_probed``: the bookie was asked for
    a sample. Entries between two sampled ones that it has are assumed to be there too.
    """

    bookie: str
    runs: Runs | None
    is_probed: bool = False


async def holdings(store: LedgerClient, ledger: int, metadata: LedgerMetadata, last: int) -> list[Holding]:
    """Ask every bookie of a ledger which entries up to ``last`` it has. Bookies are in the order in which they joined
    the ledger.
    """
    bookies = dict.fromkeys(bookie for fragment in metadata.fragments for bookie in fragment.ensemble)
    return [*await asyncio.gather(*(_held_by(store, ledger, metadata, last, bookie) for bookie in bookies))]


async def _held_by(store: LedgerClient, ledger: int, metadata: LedgerMetadata, last: int, bookie: str) -> Holding:
    response = await store.ask(bookie, ListEntries(ledger))
    if isinstance(response, ListEntriesResponse):
        if response.code is Code.OK:
            return Holding(bookie, tuple((first, min(end, last)) for first, end in response.runs if first <= last))
        if response.code in NEGATIVES:
            return Holding(bookie, ())
    # BookKeeper's bookies cannot answer this with their default storage.
    expected = [entry_id for first, end in _expected_runs(metadata, bookie, last) for entry_id in range(first, end + 1)]
    probes = (
        sorted({expected[place * (len(expected) - 1) // (PROBED - 1)] for place in range(PROBED)}) if expected else []
    )
    answers = await asyncio.gather(*(store.ask(bookie, ReadEntry(ledger, entry_id)) for entry_id in probes))
    held: list[int] = []
    for entry_id, answer in zip(probes, answers, strict=True):
        if not isinstance(answer, ReadEntryResponse) or (answer.code is not Code.OK and answer.code not in NEGATIVES):
            return Holding(bookie, None)
        if answer.code is Code.OK:
            held.append(entry_id)
    return Holding(bookie, _filled(held, probes, expected), len(probes) < len(expected))


def _filled(held: Sequence[int], probes: Sequence[int], expected: Sequence[int]) -> Runs:
    """The expected entries from each held probe to the next probe, if that is held too."""
    present = set(held)
    ends = {probe: following for probe, following in pairwise(probes) if following in present}
    entries: list[int] = []
    for entry_id in held:
        start = bisect_left(expected, entry_id)
        stop = bisect_left(expected, ends[entry_id]) if entry_id in ends else start + 1
        entries += expected[start:stop]
    return runs_of(entries)


def _write_set(metadata: LedgerMetadata, entry_id: int) -> tuple[str, ...]:
    fragment = fragment_of(metadata.fragments, entry_id)
    return tuple(write_set(entry_id, tuple(fragment.ensemble), metadata.write_quorum))


def draw(ledger: int, metadata: LedgerMetadata, held: Sequence[Holding], last: int, width: int) -> str:
    """Draw the map, at most ``width`` characters wide."""
    names = {holding.bookie: f"b{number}" for number, holding in enumerate(held, 1)}
    lines = [_headline(ledger, metadata, last), ""]
    starts = [fragment.first_entry_id for fragment in metadata.fragments]
    for number, fragment in enumerate(metadata.fragments):
        end = starts[number + 1] - 1 if number + 1 < len(starts) else last
        span = (
            f"{fragment.first_entry_id:,} to {end:,}"
            if end >= fragment.first_entry_id
            else f"from {fragment.first_entry_id:,}"
        )
        members = " ".join(names[bookie] for bookie in fragment.ensemble)
        lines.append(f"  fragment {number + 1}   entries {span:<24} {members}")
    lines.append("")
    label = max((len(f"{names[each.bookie]}  {each.bookie}") for each in held), default=0)
    if last >= 0:
        cells = min(last + 1, max(8, width - label - 24))
        edges = [place * (last + 1) // cells for place in range(cells + 1)]
        lines.append("  " + " " * label + "  " + _axis(last, cells))
        lines += [_row(names[each.bookie], each, metadata, edges, label) for each in held]
        lines += [
            "",
            f"  {FULL} all of it   {PART} some   {NONE} lacks it   {UNKNOWN} does not say   blank: not its part",
            "",
        ]
        lines += _verdict(metadata, held, last)
    else:
        lines += [f"  {names[each.bookie]}  {each.bookie}" for each in held] + ["", "  It has no entries."]
    return "\n".join(lines)


def _headline(ledger: int, metadata: LedgerMetadata, last: int) -> str:
    parts = [f"ledger {ledger}", metadata.status.value]
    entries = f"{last + 1:,} {'entry' if last == 0 else 'entries'}"
    if metadata.status is LedgerStatus.CLOSED:
        parts += [entries, f"{metadata.length:,} bytes"]
    else:
        parts.append(f"{entries} confirmed so far")
    quorums = (
        f"ensemble {metadata.ensemble_size}, write quorum {metadata.write_quorum}, ack quorum {metadata.ack_quorum}"
    )
    parts += [quorums, metadata.digest_type.name.lower()]
    custom = [f"{key}={value.decode(errors='backslashreplace')}" for key, value in metadata.custom_metadata]
    return "   ".join([*parts, *custom])


def _axis(last: int, cells: int) -> str:
    end = f"{last:,}"
    return "0" if cells < len(end) + 3 else "0" + end.rjust(cells - 1)


def _row(name: str, held: Holding, metadata: LedgerMetadata, edges: Sequence[int], label: int) -> str:
    expected = _expected_runs(metadata, held.bookie, edges[-1] - 1)
    cells = []
    for first, end in pairwise(edges):
        wanted = _overlap(expected, first, end)
        has = None if held.runs is None else _overlap(held.runs, first, end)
        if not wanted:
            cells.append(NOT_ITS if not has else PART)
        elif has is None:
            cells.append(UNKNOWN)
        else:
            cells.append(FULL if has >= wanted else PART if has else NONE)
    count = "does not say" if held.runs is None else f"{sum(end - first + 1 for first, end in held.runs):,}"
    about = "about " if held.is_probed else ""
    return f"  {f'{name}  {held.bookie}':<{label}}  {''.join(cells)}  {about}{count}"


def _expected_runs(metadata: LedgerMetadata, bookie: str, last: int) -> Runs:
    """The entries that a bookie should have. Striped entries give many short runs."""
    fragments = metadata.fragments
    runs: list[tuple[int, int]] = []
    for number, fragment in enumerate(fragments):
        end = fragments[number + 1].first_entry_id - 1 if number + 1 < len(fragments) else last
        if bookie not in fragment.ensemble or end < fragment.first_entry_id:
            continue
        if metadata.write_quorum == len(fragment.ensemble):
            runs.append((fragment.first_entry_id, end))
        else:
            runs += [
                (each, each) for each in range(fragment.first_entry_id, end + 1) if bookie in _write_set(metadata, each)
            ]
    return tuple(runs)


def _overlap(runs: Runs, first: int, end: int) -> int:
    """How many entries from ``first`` to before ``end`` are in the runs."""
    return sum(max(0, min(last + 1, end) - max(start, first)) for start, last in runs)


def _verdict(metadata: LedgerMetadata, held: Sequence[Holding], last: int) -> list[str]:
    """Whether every entry has its write quorum, and at least its ack quorum, of copies."""
    copies = _copies(held, last)
    silent = [each.bookie for each in held if each.runs is None]
    lines = []
    fewest = min(copies, key=lambda run: run[2])
    if fewest[2] >= metadata.write_quorum:
        lines.append(f"  Every entry has {fewest[2]} {'copy' if fewest[2] == 1 else 'copies'}.")
    else:
        short = [run for run in copies if run[2] < metadata.write_quorum]
        spans = ", ".join(f"{first:,}" if first == end else f"{first:,} to {end:,}" for first, end, _ in short[:5])
        more = f" and {len(short) - 5} more runs" if len(short) > 5 else ""
        lines.append(f"  Fewer than {metadata.write_quorum} copies are known of: {spans}{more}.")
        if not silent and fewest[2] < metadata.ack_quorum:
            lines.append(f"  Some entries have {fewest[2]} of the {metadata.ack_quorum} copies of an ack quorum.")
    probed = [each.bookie for each in held if each.is_probed]
    if probed:
        lines.append(f"  Asked for some {PROBED} of the entries, since they do not list them: {', '.join(probed)}.")
    if silent:
        lines.append(f"  Without an answer: {', '.join(silent)}.")
    return lines


def _copies(held: Sequence[Holding], last: int) -> list[tuple[int, int, int]]:
    """The number of copies per entry, as runs: first id, last id, copies."""
    changes: dict[int, int] = {0: 0, last + 1: 0}
    for each in held:
        for first, end in each.runs or ():
            changes[first] = changes.get(first, 0) + 1
            changes[end + 1] = changes.get(end + 1, 0) - 1
    runs: list[tuple[int, int, int]] = []
    number = 0
    places = sorted(changes)
    for place, following in pairwise(places):
        number += changes[place]
        if runs and runs[-1][2] == number:
            runs[-1] = (runs[-1][0], following - 1, number)
        else:
            runs.append((place, following - 1, number))
    return runs
