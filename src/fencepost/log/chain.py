"""Positions in a log, and the chain: its list of ledgers, their bytes in the metadata service, and trace fields.

A number is a varint: seven bits a byte, lowest first. A difference is zigzag-folded first, so that small negative ones
stay short.

==========  ===========================================================================
bytes       what
==========  ===========================================================================
1           the format: 1
1           flags: bit 0 is set if the log is sealed, bit 1 if batches follow
number      how many ledgers were trimmed
number      how many settings there are, and for each:
number      the length of its name, and the name in UTF-8
number      the length of its value, and the value
number      how many ledgers there are, and for each:
difference  of its id to the id of the previous ledger (0 for the first)
difference  of its time to the time of the previous ledger (0 for the first)
number      how many batches there are, only with bit 1, and for each:
number      the length of its writer's name, and the name in UTF-8
number      its number
==========  ===========================================================================

Two settings are not options of the creator. ``id`` is what tells a log from others that had its name: 16 bytes, drawn
when it is made. ``offloads`` has the ledgers that an object store has, in the order of the
list, and for each three numbers: the difference of its id to the id of the previous one, the attempt that copied it,
and the difference of its time to the time of the previous one.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fencepost.errors import OptionError
from fencepost.language.values import Record
from fencepost.ledger.wire.varint import varint
from fencepost.log.errors import LogFormatError

_GAPS = 4
"""The most runs of missing ledgers that a message lists."""

_TEXT = re.compile(r"(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,18})", re.ASCII)
LARGEST = (1 << 63) - 1
"""The largest id of a ledger, and of an entry."""


@dataclass(frozen=True, slots=True)
class Position:
    """An entry of a log: a ledger, and the entry's id in it. Its text is ``LEDGER:ENTRY``.

    Positions have no order of their own: a ledger with a smaller id may come later in a log. See :meth:`.Chain.place`.
    """

    ledger: int
    entry: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


class End(enum.Enum):
    """The ends of a log."""

    EARLIEST = "earliest"
    """The first entry that is not trimmed."""
    LATEST = "latest"
    """After the last entry: only entries that are appended from now on."""

    def __str__(self) -> str:
        return self.value


EARLIEST = End.EARLIEST
LATEST = End.LATEST


def position_of(text: str) -> Position | End:
    """Parse ``LEDGER:ENTRY``, ``earliest`` or ``latest``. Raises :class:`fencepost.OptionError` for other text."""
    match = _TEXT.fullmatch(text)
    if match is not None:
        ledger, entry = map(int, match.groups())
        if max(ledger, entry) <= LARGEST:
            return Position(ledger, entry)
    for end in End:
        if text == end.value:
            return end
    raise OptionError(f"position {text[:60]!r}: give LEDGER:ENTRY, as in 17:3, or earliest or latest")


FORMAT = 1
SEALED = 1
"""The flag of a sealed log."""
BATCHES = 2
"""The flag of a log that remembers batches."""


class Link(Record):
    """A ledger of a log, and when it was created, in milliseconds since 1970. Times never go back along the chain."""

    ledger: int
    created: int


class Batch(Record):
    """A batch of ledgers that was attached at once: the batch ``number`` of ``writer``."""

    writer: str
    number: int


ID = "id"
"""The setting with what tells a log from others that had its name."""

OFFLOADS = "offloads"
"""The setting with the ledgers that an object store has."""


class Offload(Record):
    """A ledger that an object store has. ``attempt``: who copied it, which names the object. ``since``: when the list
    got it, in milliseconds since 1970.
    """

    ledger: int
    attempt: int
    since: int


class Chain(Record):
    """The ledgers of a log in order, oldest first. Only the last one may be open.

    ``trimmed``: how many ledgers were ever removed from the front. ``sealed``: no ledgers are added any more, and the
    last one is closed. ``settings``: the options of the log's creator, :data:`ID` and :data:`OFFLOADS`, sorted by name.
    ``batches``: the last batch of each remembered writer, in the order of attachment; see :func:`.rules.with_batch`.
    """

    links: tuple[Link, ...] = ()
    trimmed: int = 0
    sealed: bool = False
    settings: tuple[tuple[str, bytes], ...] = ()
    batches: tuple[Batch, ...] = ()

    @property
    def id(self) -> bytes:
        """What tells the log from others that had its name; empty if it has none."""
        return dict(self.settings).get(ID, b"")

    @property
    def last(self) -> int | None:
        """The last ledger; None if there is none."""
        return self.links[-1].ledger if self.links else None

    @property
    def length(self) -> int:
        """How many ledgers the log has ever had."""
        return self.trimmed + len(self.links)

    def index(self, ledger: int) -> int | None:
        """The index of a ledger in ``links``; None if it is not there."""
        return next((index for index, link in enumerate(self.links) if link.ledger == ledger), None)

    def created(self, ledger: int) -> int:
        """When a ledger was created, in milliseconds since 1970; 0 if it is not in the log."""
        return next((link.created for link in self.links if link.ledger == ledger), 0)

    def place(self, position: Position) -> tuple[int, int] | None:
        """The key that orders positions of this log, unchanged by trims. None if the ledger is not in the log."""
        index = self.index(position.ledger)
        return None if index is None else (self.trimmed + index, position.entry)

    def gaps(self, missing: Collection[int]) -> str:
        """Describe the positions that are lost with missing ledgers: ``from 1:0 up to 3:0 and from 7:0 on``."""
        gaps: list[str] = []
        begun: int | None = None
        for link in self.links:
            if link.ledger in missing:
                begun = link.ledger if begun is None else begun
            elif begun is not None:
                gaps.append(f"from {begun}:0 up to {link.ledger}:0")
                begun = None
        if begun is not None:
            gaps.append(f"from {begun}:0 on")
        if len(gaps) > _GAPS:
            gaps[_GAPS - 1 :] = [f"{len(gaps) - _GAPS + 1:,} more such runs"]
        *others, last = gaps
        return f"{', '.join(others)} and {last}" if others else last

    def appended(self, ledger: int, created: int) -> Chain:
        """The chain with one more ledger. If the clock is behind, the ledger gets the time of the one before it."""
        earliest = self.links[-1].created if self.links else 0
        return self.replace(links=(*self.links, Link(ledger, max(created, earliest))))

    def last_batch(self, writer: str) -> int:
        """The number of the last batch of a writer that the log remembers; -1 if there is none."""
        return next((batch.number for batch in self.batches if batch.writer == writer), -1)

    def without_first(self, count: int) -> Chain:
        """The chain without its ``count`` oldest ledgers, but always with the last one."""
        count = max(0, min(count, len(self.links) - 1))
        chain = self.replace(links=self.links[count:], trimmed=self.trimmed + count)
        gone = {link.ledger for link in self.links[:count]}
        left = [each for each in self.offloads if each.ledger not in gone]
        return chain if len(left) == len(self.offloads) else chain._with_offloads(left)

    @property
    def offloads(self) -> tuple[Offload, ...]:
        """The ledgers that an object store has, in the order of ``links``."""
        data = dict(self.settings).get(OFFLOADS)
        return () if data is None else _offloads(data)

    def attempt_of(self, ledger: int) -> int | None:
        """The attempt whose object has a ledger; None if the ledger is not offloaded."""
        return next((each.attempt for each in self.offloads if each.ledger == ledger), None)

    def offloaded(self, ledger: int, attempt: int, since: int) -> Chain:
        """The chain with the object of one of its ledgers."""
        objects = {each.ledger: each for each in self.offloads} | {ledger: Offload(ledger, attempt, since)}
        return self._with_offloads([objects[link.ledger] for link in self.links if link.ledger in objects])

    def _with_offloads(self, offloads: list[Offload]) -> Chain:
        parts: list[bytes] = []
        before = Offload(0, 0, 0)
        for each in offloads:
            parts += (varint(_folded(each.ledger - before.ledger)), varint(each.attempt))
            parts.append(varint(_folded(each.since - before.since)))
            before = each
        settings = {name: value for name, value in self.settings if name != OFFLOADS}
        if offloads:
            settings[OFFLOADS] = b"".join(parts)
        return self.replace(settings=tuple(sorted(settings.items())))

    def as_sealed(self) -> Chain:
        """The chain, sealed."""
        return self.replace(sealed=True)


def bytes_of(chain: Chain) -> bytes:
    """The bytes of a chain. Ledgers with neighbouring ids, created seconds apart, take five bytes each or less."""
    flags = (SEALED if chain.sealed else 0) | (BATCHES if chain.batches else 0)
    parts = [bytes((FORMAT, flags)), varint(chain.trimmed), varint(len(chain.settings))]
    for name, value in chain.settings:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded, varint(len(value)), value)
    parts.append(varint(len(chain.links)))
    ledger = created = 0
    for link in chain.links:
        parts += (varint(_folded(link.ledger - ledger)), varint(_folded(link.created - created)))
        ledger, created = link.ledger, link.created
    if chain.batches:
        parts.append(varint(len(chain.batches)))
    for batch in chain.batches:
        encoded = batch.writer.encode()
        parts += (varint(len(encoded)), encoded, varint(batch.number))
    return b"".join(parts)


def chain_of(data: bytes) -> Chain:
    """Decode a chain. Raises :class:`LogFormatError` for bytes that are not one."""
    if len(data) < 2:
        raise LogFormatError("the list of the ledgers of a log is too short")
    if data[0] != FORMAT:
        raise LogFormatError(
            f"the list of the ledgers of a log has the format {data[0]}, and only {FORMAT} can be read"
        )
    if data[1] & ~(SEALED | BATCHES):
        raise LogFormatError(f"the list of the ledgers of a log has flags that are not known: {data[1]:#04x}")
    trimmed, at = _number(data, 2)
    count, at = _number(data, at)
    settings: list[tuple[str, bytes]] = []
    for _ in range(_fitting(data, at, count)):
        name, at = _name(data, at, "a setting")
        value, at = _some(data, at)
        settings.append((name, value))
    if settings != sorted(dict(settings).items()):
        raise LogFormatError("the list of the ledgers of a log has settings twice or out of order")
    count, at = _number(data, at)
    links: list[Link] = []
    ledger = created = 0
    for _ in range(_fitting(data, at, count)):
        difference, at = _number(data, at)
        ledger += _unfolded(difference)
        difference, at = _number(data, at)
        later = _unfolded(difference)
        created += later
        if not 0 <= ledger <= LARGEST or later < 0 or created > LARGEST:
            raise LogFormatError(
                f"the list of the ledgers of a log has an invalid ledger id or time: {ledger}, {created}"
            )
        links.append(Link(ledger, created))
    batches, at = _batches(data, at) if data[1] & BATCHES else ((), at)
    if at != len(data):
        raise LogFormatError(f"the list of the ledgers of a log goes on after its end, with {len(data) - at} bytes")
    if len({link.ledger for link in links}) != len(links):
        raise LogFormatError("the list of the ledgers of a log has a ledger twice")
    chain = Chain(tuple(links), trimmed, bool(data[1] & SEALED), tuple(settings), batches)
    if not {each.ledger for each in chain.offloads} <= {link.ledger for link in links}:
        raise LogFormatError("the list of the ledgers of a log has an offloaded ledger that is not in the log")
    return chain


def _batches(data: bytes, at: int) -> tuple[tuple[Batch, ...], int]:
    """Decode the batches of a chain. Returns them and the offset after them."""
    count, at = _number(data, at)
    batches: list[Batch] = []
    for _ in range(_fitting(data, at, count)):
        writer, at = _name(data, at, "a batch")
        number, at = _number(data, at)
        if number > LARGEST:
            raise LogFormatError(f"the list of the ledgers of a log has an invalid batch number: {number}")
        batches.append(Batch(writer, number))
    if not batches or len({batch.writer for batch in batches}) != len(batches):
        raise LogFormatError(
            "the list of the ledgers of a log has two batches of one writer, or announces batches and has none"
        )
    return tuple(batches), at


@lru_cache(maxsize=64)
def _offloads(data: bytes) -> tuple[Offload, ...]:
    """Decode the offloaded ledgers of a chain. Raises :class:`LogFormatError`."""
    offloads: list[Offload] = []
    at = ledger = since = 0
    while at < len(data):
        difference, at = _number(data, at)
        ledger += _unfolded(difference)
        attempt, at = _number(data, at)
        difference, at = _number(data, at)
        since += _unfolded(difference)
        if not 0 <= ledger <= LARGEST or attempt > LARGEST or not 0 <= since <= LARGEST:
            raise LogFormatError(
                f"the list of the ledgers of a log has an invalid offload: {ledger}, {attempt}, {since}"
            )
        offloads.append(Offload(ledger, attempt, since))
    return tuple(offloads)


def _folded(difference: int) -> int:
    return difference << 1 if difference >= 0 else (-difference << 1) - 1


def _unfolded(number: int) -> int:
    return -(number + 1 >> 1) if number & 1 else number >> 1


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Decode a number of up to 64 bits. Returns it and the offset after it."""
    number = shift = 0
    while True:
        if at >= len(data):
            raise LogFormatError("the list of the ledgers of a log ends too early")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if number >> 64 or shift > 63:
            raise LogFormatError("the list of the ledgers of a log has a number of more than 64 bits")
        if byte < 128:
            return number, at
        shift += 7


def _fitting(data: bytes, at: int, count: int) -> int:
    """Decode a count of items that take at least two bytes each, and check that the bytes are long enough for them."""
    if count * 2 > len(data) - at:
        raise LogFormatError("the list of the ledgers of a log ends too early")
    return count


def _some(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _number(data, at)
    if length > len(data) - at:
        raise LogFormatError("the list of the ledgers of a log ends too early")
    return data[at : at + length], at + length


def _name(data: bytes, at: int, what: str) -> tuple[str, int]:
    name, at = _some(data, at)
    try:
        return name.decode(), at
    except UnicodeDecodeError:
        raise LogFormatError(f"the list of the ledgers of a log has {what} of which the name is not UTF-8") from None


SUBJECT = "log/"
"""The prefix of a log's subject in traces. The name of the log follows."""

SENDS = ("sends_update", "sends_trim", "sends_batch")
"""The trace actions that send an update of the chain."""


def seen_fields(chain: Chain, version: int) -> dict[str, Any]:
    """The trace fields of an event that has read a chain."""
    return {
        "version": version,
        "last": chain.last,
        "length": chain.length,
        "trimmed": chain.trimmed,
        "sealed": chain.sealed,
    }
