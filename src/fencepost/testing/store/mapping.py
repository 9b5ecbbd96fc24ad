"""The mapping between values of the protocol and values of the store.

Entries count from 1 in the protocol and from 0 in the store; a LAC of 0 is -1 there. The write set of an entry begins
one bookie further on than that of the entry before it. So an ensemble of the store is rotated by one against the
protocol's, and every entry has the same write set in both. An entry of the protocol is a number; in the store it is as
many bytes of that value, so that entries differ in length.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fencepost.language.values import Message, ModelValue
from fencepost.ledger.entries import Digests, master_key
from fencepost.ledger.messages import NO_ENTRY_YET, AddEntry, ReadEntry, Request, Response
from fencepost.ledger.messages import AddEntryResponse as AddAnswer
from fencepost.ledger.messages import ReadEntryResponse as ReadAnswer
from fencepost.ledger.rules.codes import NEGATIVES, Code
from fencepost.ledger.rules.metadata import NOT_CLOSED, DigestType, LedgerMetadata, LedgerStatus
from fencepost.protocols.bookkeeper.current import ReadRequest, ReadResponse
from fencepost.protocols.bookkeeper.ledger import (
    AddEntryRequest,
    AddEntryResponse,
    Entry,
    FenceRequest,
    FenceResponse,
)

LEDGER = 7
"""The ledger of every behaviour."""

PASSWORD = b"driven"
KEY = master_key(PASSWORD)
DIGESTS = Digests(DigestType.CRC32, PASSWORD)
CREATION_TOKEN = 11


class NoCounterpart(Exception):
    """A value of the store has no counterpart in the protocol."""


def name(who: ModelValue) -> str:
    """The name of a bookie or a client in the store."""
    return who.name


def names(who: Iterable[ModelValue]) -> frozenset[str]:
    """The names of several bookies or clients in the store."""
    return frozenset(each.name for each in who)


def data_of(number: int) -> bytes:
    """The bytes that stand for the data of an entry."""
    return bytes([number]) * number


def length_to(last_entry: int) -> int:
    """The number of bytes of a ledger that ends at this entry of the protocol."""
    return last_entry * (last_entry + 1) // 2


def ensemble_of(ensemble: Iterable[ModelValue]) -> tuple[str, ...]:
    """An ensemble of the protocol in the order of the store."""
    order = [each.name for each in ensemble]
    return tuple(order[1:] + order[:1])


def expected_metadata(metadata: LedgerMetadata | None) -> Any:
    """The values of metadata of the protocol that are compared."""
    if metadata is None:
        return None
    fragments = tuple((f.first_entry_id, ensemble_of(f.ensemble)) for f in metadata.fragments)
    closed = metadata.status is LedgerStatus.CLOSED
    last = metadata.last_entry if closed else None
    quorums = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    return metadata.status, fragments, last, length_to(metadata.last_entry) if closed else 0, quorums


def actual_metadata(metadata: LedgerMetadata | None) -> Any:
    """The same values of metadata of the store, or the metadata themselves if the protocol cannot have them."""
    if metadata is None:
        return None
    fragments = tuple((f.first_entry_id + 1, tuple(f.ensemble)) for f in metadata.fragments)
    closed = metadata.status is LedgerStatus.CLOSED
    if not closed and metadata.last_entry != NOT_CLOSED:
        return metadata
    last = metadata.last_entry + 1 if closed else None
    quorums = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    return metadata.status, fragments, last, metadata.length, quorums


def entry_in(body: bytes | None, entry_id: int | None = None) -> Entry | None:
    """The entry of the protocol that a body holds. Raises :class:`NoCounterpart` if it was never written."""
    if body is None:
        return None
    found = DIGESTS.open_entry(body, LEDGER, entry_id)
    if found is None or not found.data or found.data != data_of(found.data[0]):
        raise NoCounterpart(f"a body that is no entry: {body!r}")
    return Entry(found.entry_id + 1, found.data[0])


def protocol_request(request: Request) -> Message:
    """The message of the protocol that a request stands for. Raises :class:`NoCounterpart` if there is none."""
    if type(request) is AddEntry and request.master_key == KEY and not request.deferred_sync:
        entry = entry_in(request.body, request.entry_id)
        opened = DIGESTS.open_entry(request.body, LEDGER)
        if entry is not None and opened is not None and opened.lac == request.lac:
            return AddEntryRequest(entry, request.lac + 1, request.recovery)
    if type(request) is ReadEntry and request.previous_lac is None:
        if request.fence and request.master_key == KEY:
            is_last = request.entry_id == NO_ENTRY_YET
            return FenceRequest() if is_last else ReadRequest(request.entry_id + 1, True)
        if not request.fence:
            return ReadRequest(request.entry_id + 1, False)
    raise NoCounterpart(f"a request that the protocol does not have: {request!r}")


def protocol_response(asked: Message, response: Response) -> Message | None:
    """The message of the protocol that a response to ``asked`` stands for, or None for a response that leaves open
    whether the entry exists.

    Raises :class:`NoCounterpart` if there is none.
    """
    if (
        isinstance(asked, AddEntryRequest)
        and isinstance(response, AddAnswer)
        and response.code in (Code.OK, Code.FENCED)
    ):
        if response.entry_id == asked.entry.id - 1:
            return AddEntryResponse(asked.entry, asked.recovery, response.code is Code.OK)
    elif isinstance(response, ReadAnswer) and (response.code is Code.OK or response.code in NEGATIVES):
        if isinstance(asked, FenceRequest):
            opened = None if response.body is None else DIGESTS.open_entry(response.body, LEDGER)
            return FenceResponse(0 if opened is None else opened.lac + 1)
        if isinstance(asked, ReadRequest) and response.entry_id == asked.entry_id - 1:
            return ReadResponse(asked.entry_id, entry_in(response.body, response.entry_id), asked.fence)
    elif (
        isinstance(asked, (FenceRequest, ReadRequest))
        and isinstance(response, ReadAnswer)
        and response.code is Code.UNKNOWN_LEDGER_STATE
    ):
        return None
    raise NoCounterpart(f"an answer that the protocol does not have to {asked!r}: {response!r}")
