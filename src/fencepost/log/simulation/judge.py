"""Compares the final content of a log with what its writers were promised."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from fencepost.log.chain import Position
from fencepost.log.simulation.environment import Broken


def judge(
    log: Sequence[tuple[int, int, str]],
    acknowledged: Mapping[str, Position],
    failed: Mapping[str, bool],
    appends: Mapping[str, Collection[str]],
    writers: Iterable[str],
) -> None:
    """Raise :class:`.Broken` unless the log kept its promises.

    ``log``: its entries in order, each with its ledger, its id there and its name, ``WRITER-NUMBER``. ``acknowledged``:
    the positions that appends returned. ``failed``: for each failed entry, whether it is certainly not in the log.
    ``appends``: what was acknowledged when each entry was appended.
    """
    names = [name for *_, name in log]
    places = {name: place for place, name in enumerate(names)}
    if len(places) != len(names):
        raise Broken("once", "an entry is in the log twice")
    for name, position in acknowledged.items():
        if name not in places:
            raise Broken("no loss", f"{name} was acknowledged at {position}, and is not in the log")
        if log[places[name]][:2] != (position.ledger, position.entry):
            raise Broken("no loss", f"{name} was acknowledged at {position}, and is at {log[places[name]][:2]}")
    for name, is_known in failed.items():
        if is_known and name in places:
            raise Broken("denied", f"{name} is said not to be in the log, and is")
    for writer in writers:
        own = [int(name.split("-")[1]) for name in names if name.startswith(f"{writer}-")]
        if any(first > second for first, second in pairwise(own)):
            raise Broken(
                "order", f"the log does not have the entries of {writer} in the order in which it has appended them"
            )
    latest: dict[frozenset[str], int] = {}
    for name, place in places.items():
        before = frozenset(appends[name])
        if before not in latest:
            latest[before] = max((places[each] for each in before), default=-1)
        if latest[before] > place:
            raise Broken("order", f"{name} was appended after another was acknowledged, and comes first in the log")
