"""Compares the state of the roles with that of the protocol.

The functions below give the variables that are compared; :data:`NOT_COMPARED` names the others, with reasons. A role
does at once what the protocol may do later (see `actions`), so it is compared with the protocol as it will be after
that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fencepost.language.values import ModelValue
from fencepost.ledger.roles.bookie import Ledger
from fencepost.ledger.roles.interface import Error
from fencepost.ledger.roles.reader import Reader
from fencepost.ledger.roles.recoverer import Recoverer, RecoveryStatus
from fencepost.ledger.roles.writer import Writer, WriterStatus
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.protocols.bookkeeper.current import NOT_KNOWN, ReadResult, RecoveryPhase
from fencepost.protocols.bookkeeper.ledger import Entry
from fencepost.protocols.store.store import Status
from fencepost.protocols.store.store import Store as Protocol
from fencepost.testing.store.actions import Taken, is_read, is_to_close
from fencepost.testing.store.mapping import (
    LEDGER,
    NoCounterpart,
    actual_metadata,
    data_of,
    ensemble_of,
    entry_in,
    expected_metadata,
    name,
    names,
)
from fencepost.testing.store.system import System
from fencepost.testing.walk import Difference

NOT_COMPARED: Mapping[str, str] = {
    "client.pending_add_ops: fragment and ensemble": (
        "a role does not note where it sends entries; the messages are compared"
    ),
    "client.written_back": "a role writes back an entry as soon as it has found it; the messages are compared",
    "client.update": "what is on its way to and from the metadata service is compared when it gets there",
    "client.lac and lap of a recovery, while it fences": "a role works them out when it begins to read",
    "client.fenced, once reading has begun": "a role does not look at it any more, and the protocol forgets it",
    "client.lap and pending_add_ops of an owner that closes": "a role gives up what is not confirmed before it closes",
    "client.confirmed of entries that are confirmed": "a role forgets who confirmed them",
    "client, once it is withdrawn, overtaken or aborted": "a role forgets all but how it ended",
    "client.status: closed, or found closed": "to a role that is the same",
    "crashed": "it bounds what is explored, and nobody knows it",
}
"""Parts of the protocol's state that roles are not compared with, each with the reason."""


def compare(system: System, step: Taken) -> None:
    """Compare the roles that take part in a step, and the metadata service. Raises :class:`Difference`."""
    try:
        for variable, expected, actual in _compared(system, step):
            if expected != actual:
                raise Difference(variable, expected, actual)
    except NoCounterpart as error:
        raise Difference("entries", "entries that were written", str(error)) from None


def _compared(system: System, step: Taken) -> Iterator[tuple[str, Any, Any]]:
    after = step.after
    yield "meta.metadata", expected_metadata(after.meta.metadata), actual_metadata(system.metadata)
    yield "meta.version", after.meta.version, system.version
    for who in step.parameters.values():
        if who in after.bookies:
            yield from _bookie(system, after, who)
        elif who in after.clients:
            yield from _client(system, after, who)
        elif who in after.readers:
            yield from _reader(system, after, who)


def _bookie(system: System, after: Protocol, b: ModelValue) -> Iterator[tuple[str, Any, Any]]:
    expected, who = after.bookie[b], name(b)
    ledger = system.roles[who].ledgers.get(LEDGER) or Ledger()
    stored = frozenset(entry_in(body, entry_id) for entry_id, body in system.stored[who].items())
    yield f"bookie.{b}.entries", frozenset(expected.entries), stored
    yield f"bookie.{b}.fenced", expected.fenced, ledger.fenced
    yield f"bookie.{b}.lac", expected.lac, ledger.lac + 1
    yield f"bookie.{b}.lac_of_last", expected.lac_of_last, system.lac_of_last(who)
    yield f"bookie.{b}.limbo", expected.limbo, ledger.limbo


def _client(system: System, after: Protocol, c: ModelValue) -> Iterator[tuple[str, Any, Any]]:
    role = system.roles[name(c)]
    if isinstance(role, Writer):
        yield f"client.{c}.status", expected_owner(after, c), actual_owner(role)
        yield from _owner(role, after, c)
    else:
        assert isinstance(role, Recoverer)
        yield f"client.{c}.status", expected_recovery(after, c), actual_recovery(role, system.error_of(name(c)))
        yield from _recovery(role, after, c)


# -- the owner --------------------------------------------------------------------------------------------------------


def expected_owner(after: Protocol, c: ModelValue) -> str:
    """The status of an owner's role by the protocol."""
    status = after.client[c].status
    assert status is not None
    return str((Status.CLOSED if status is Status.FOUND_CLOSED else status).value)


def actual_owner(role: Writer) -> str:
    """The status of an owner's role."""
    if role.status is WriterStatus.OPEN:
        return str((Status.CHANGING_ENSEMBLE if role.changing_ensemble else Status.OPEN).value)
    if role.status is WriterStatus.FAILED:
        return str(Status.WITHDRAWN.value) if role.error is Error.LEDGER_FENCED else f"failed: {role.error}"
    return str(role.status.value)


def _owner(role: Writer, after: Protocol, c: ModelValue) -> Iterator[tuple[str, Any, Any]]:
    client = after.client[c]
    if client.status is Status.WITHDRAWN:
        return
    yield f"client.{c}.lac", client.lac, role.lac + 1
    if client.status is Status.FOUND_CLOSED:
        return
    yield f"client.{c}.version", client.version, role.view.version
    if client.status is Status.CLOSED:
        return
    yield f"client.{c}.seen", expected_metadata(client.seen), actual_metadata(role.view.metadata)
    if client.status in (Status.OPEN, Status.CHANGING_ENSEMBLE):
        yield from _adds(role, after, c)


def _adds(role: Writer | Recoverer, after: Protocol, c: ModelValue) -> Iterator[tuple[str, Any, Any]]:
    """Entries that are sent and not confirmed."""
    client, adds = after.client[c], role.adds
    yield f"client.{c}.lap", client.lap, adds.pushed + 1
    pending = frozenset(op.entry for op in client.pending_add_ops)
    sent = [add.adds[place] for add in adds.pending.values() for place in range(len(add.adds))]
    yield f"client.{c}.pending_add_ops", pending, frozenset(entry_in(add.body, add.entry_id) for add in sent)
    yield f"client.{c}.seen.ensemble", ensemble_of(after.client_ensemble(c)), tuple(adds.ensemble)
    for entry in pending:
        yield f"client.{c}.confirmed[{entry.id}]", names(client.confirmed[entry.id]), adds.confirmed_by(entry.id - 1)


# -- recovery ---------------------------------------------------------------------------------------------------------


def expected_recovery(after: Protocol, c: ModelValue) -> str:
    """The status of a recovery's role by the protocol."""
    client = after.client[c]
    status = client.status
    assert status is not None and client.seen is not None
    if status is Status.MARKING:
        found_closed = client.update is None and client.seen.status is LedgerStatus.CLOSED
        return "ended" if found_closed else str(status.value)
    if status is Status.IN_RECOVERY:
        if is_to_close(after, c):
            return "closing"
        return "reading" if is_read(after, c) else "fencing"
    if status is Status.OVERTAKEN:
        metadata = after.meta.metadata
        return "ended" if metadata is not None and metadata.status is LedgerStatus.CLOSED else str(status.value)
    others = {Status.CLOSING_RECOVERED: "closing", Status.CLOSED: "ended"}
    return others.get(status, str(status.value))


def actual_recovery(role: Recoverer, error: Error | None) -> str:
    """The status of a recovery's role. ``error``: how its last call ended."""
    if role.status is RecoveryStatus.RESTARTING:
        return str(Status.OVERTAKEN.value)
    if role.status is not RecoveryStatus.IDLE or error is None:
        return str(role.status.value)
    if error in (Error.DATA_UNKNOWN, Error.RECOVERY_FAILED):
        return str(Status.ABORTED.value)
    return f"failed: {error}" if error else "ended"


def _recovery(role: Recoverer, after: Protocol, c: ModelValue) -> Iterator[tuple[str, Any, Any]]:
    client = after.client[c]
    if client.status is Status.MARKING and role.status is RecoveryStatus.MARKING:
        yield f"client.{c}.seen", expected_metadata(client.seen), actual_metadata(role.view.metadata)
        yield f"client.{c}.version", client.version, role.view.version
    if client.status not in (Status.IN_RECOVERY, Status.TELLING_FRAGMENTS, Status.CLOSING_RECOVERED):
        return
    yield f"client.{c}.version", client.version, role.version
    if client.status is not Status.TELLING_FRAGMENTS:
        yield f"client.{c}.seen", expected_metadata(client.seen), actual_metadata(role.metadata)
    if not is_read(after, c):
        yield f"client.{c}.recovery_ensemble", ensemble_of(client.recovery_ensemble), role.ensemble
        yield f"client.{c}.fenced", names(client.fenced), frozenset(role.fenced)
        return
    yield f"client.{c}.lac", client.lac, role.adds.confirmed + 1
    yield f"client.{c}.recovery_lac", client.recovery_lac, role.began_at + 1
    yield from _adds(role, after, c)
    known = client.last_recoverable_entry != NOT_KNOWN
    found = client.last_recoverable_entry if known else client.lap
    yield f"client.{c}.last_recoverable_entry", (known, found), (role.end_known, role.found + 1)
    if known:
        return
    yield f"client.{c}.recovery_ensemble", ensemble_of(client.recovery_ensemble), role.ensemble
    yield f"client.{c}.last_read", client.lap + after.reads_in_flight, role.next_read
    if client.recovery_phase is RecoveryPhase.READ_WRITE:
        yield from _reads(role, after, c)


def _reads(role: Recoverer, after: Protocol, c: ModelValue) -> Iterator[tuple[str, Any, Any]]:
    client = after.client[c]
    for entry_id in after.readable_ids:
        read = role.reads.get(entry_id - 1)
        if read is not None:
            yield (
                f"client.{c}.no_such_entry[{entry_id}]",
                names(client.no_such_entry[entry_id]),
                frozenset(read.negative),
            )
    found = [read.found for read in role.reads.values() if read.found is not None]
    entries = frozenset(Entry(entry.entry_id + 1, entry.data[0]) for entry in found if entry.data)
    yield f"client.{c}.found", frozenset(client.found), entries


# -- readers ----------------------------------------------------------------------------------------------------------

READ_RESULTS: Mapping[Error, ReadResult] = {
    Error.NO_ENTRY: ReadResult.NO_SUCH_ENTRY,
    Error.READ_FAILED: ReadResult.UNKNOWN,
}
"""The result of a failed read in the protocol, by the error in the store."""


def _reader(system: System, after: Protocol, r: ModelValue) -> Iterator[tuple[str, Any, Any]]:
    expected, who = after.reader[r], name(r)
    role = system.roles[who]
    assert isinstance(role, Reader)
    results = system.results[who][1:]
    result: Any = None
    if results:
        (read_result,) = results
        result = READ_RESULTS.get(read_result.error, read_result.error) if read_result.error else ReadResult.OK
        if result is ReadResult.OK:
            yield f"reader.{r}: what it has read", data_of(expected.entry_id or 0), read_result.value
    yield f"reader.{r}.result", expected.result, result
    if expected.result is None:
        yield f"reader.{r}: whether it doubts what it was told", False, who in system.reads
        (reading,) = role.readings.under_way.values()
        (entry_id,) = reading.missing
        search = reading.searches.get(entry_id)  # there is none while only one bookie was asked
        asked = search.asked if search else [bookie for bookie, _ in reading.asked]
        yield f"reader.{r}.entry_id", expected.entry_id, entry_id + 1
        yield f"reader.{r}.asked", names(expected.asked), frozenset(asked)
        yield f"reader.{r}.answered", names(expected.answered), frozenset(search.negative if search else ())
