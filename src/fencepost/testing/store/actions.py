"""The handlers of the protocol's actions. Each makes the same happen to the roles, and checks their effects.

The protocol has a step for each act of a client. A role is *eager*: it does several at once, as soon as it may. It
writes back entries that it has found, reads on, resends entries that an ensemble lacks, marks and closes the ledger.
The messages of such a role must be those that the protocol can send by these steps alone (:func:`owed`). They wait in
the outbox until the protocol sends them. A message that the protocol never sends stays there.

The roles of the store never take some steps: :data:`REASONS`. Only the behaviour decides whether a step is one of them,
never the role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.language.context import Event
from fencepost.language.values import Message, ModelValue
from fencepost.ledger.roles.interface import CreateMetadata, Error, MetadataAnswer, Outcome
from fencepost.ledger.rules.codes import Verdict
from fencepost.ledger.rules.ensembles import fragment_of, newly_asked, write_set
from fencepost.ledger.rules.metadata import LedgerStatus, current_ensemble
from fencepost.ledger.rules.placement import preferred
from fencepost.ledger.rules.recovery import fencing, may_close, may_read_ahead
from fencepost.protocols.bookkeeper.current import NOT_KNOWN, ReadRequest, ReadResponse, ReadResult, RecoveryPhase
from fencepost.protocols.bookkeeper.ledger import AddEntryRequest, AddEntryResponse
from fencepost.protocols.store.store import Answer, Status
from fencepost.protocols.store.store import Store as Protocol
from fencepost.testing.store.mapping import (
    NoCounterpart,
    actual_metadata,
    data_of,
    ensemble_of,
    expected_metadata,
    name,
    protocol_response,
)
from fencepost.testing.store.system import Number, System
from fencepost.testing.walk import Difference, NotRealisable

REASONS: Mapping[str, str] = {
    "late fence": "a recovery reads as soon as enough bookies are fenced: no higher LAC that comes later is heard",
    "order of bookies": "a client takes bookies that it has not replaced before, where the protocol takes any",
    "length": "a recovery needs the length of the ledger from the last entry, which no bookie has any more",
    "read elsewhere": "a reader that has found nothing looks at the metadata again, and then asks other bookies",
    "lac of reader": "a reader that begins knows the LAC of bookies' last entries, and none of bookies in limbo",
}
"""Reasons why the roles do not follow a correct behaviour of the protocol."""


class Taken:
    """A step of the protocol: ``before`` and ``after`` are the protocol bound to the states."""

    def __init__(
        self,
        action: str,
        parameters: Mapping[str, Any],
        choices: Sequence[Any],
        events: Sequence[Event],
        before: Protocol,
        after: Protocol,
    ) -> None:
        self.action = action
        self.parameters = parameters
        self.choices = choices
        self.events = events
        self.before = before
        self.after = after

    def received(self) -> tuple[ModelValue, ModelValue, Message]:
        """The message that is received, with its source and its receiver."""
        event = next(event for event in self.events if event.kind == "receive")
        return event.source, event.dest, event.passed[0]

    def sent(self, by: ModelValue) -> list[tuple[ModelValue, Message, bool]]:
        """The messages that are sent: their receivers, and whether they are lost."""
        return [(e.dest, e.passed[0], e.lost) for e in self.events if e.kind == "send" and e.source == by]


def drive(system: System, step: Taken) -> None:
    """Let the roles take a step.

    Raises :class:`Difference` if they do not take it, and :class:`NotRealisable` if they are not expected to.
    """
    HANDLERS[step.action](system, step, **step.parameters)
    for who in (value for value in step.parameters.values() if isinstance(value, ModelValue)):
        if who in step.after.clients:
            _consume(system, step, who)


def _consume(system: System, step: Taken, c: ModelValue) -> None:
    """Match the messages of a step with the outbox of a client: the role must have sent every message that the protocol
    sends. Its other messages must be :func:`owed`.
    """
    who = name(c)
    for b, message, lost in step.sent(c):
        system.send(who, name(b), message, lost)
    wanted, looked_at = system.outbox.get(who, ()), system.looked_at.get(who, 0)
    if not wanted or wanted[-1].number.order <= looked_at:
        return
    system.looked_at[who] = wanted[-1].number.order
    expected, kept = owed(step.before, step.after, c), []
    for each in wanted:
        message = each.message
        if each.number.order > looked_at:
            if isinstance(message, ReadRequest) and message.entry_id >= system.settings.beyond:
                continue  # nobody will ever answer
            if (each.bookie, message) not in expected and not _is_again(step.after, c, each.bookie, message):
                raise Difference(f"what {who} sends to {each.bookie}", "nothing of the kind", message)
        kept.append(each)
    system.outbox[who] = tuple(kept)


def _is_again(after: Protocol, c: ModelValue, b: str, message: Message) -> bool:
    """Whether the protocol has sent a message already, which it does only once."""
    to = next(bookie for bookie in after.bookies if bookie.name == b)
    return bool(after.network.is_known(message, c, to))


def owed(before: Protocol, after: Protocol, c: ModelValue) -> set[tuple[str, Message]]:
    """The messages that a client may send by steps that a role takes at once, in this state or in the one before."""
    client, found = after.client[c], set[tuple[str, Message]]()
    # A recovery that aborts has written back the entries that it found before the undecidable one.
    if client.status in (Status.OPEN, Status.IN_RECOVERY, Status.CLOSING_RECOVERED, Status.ABORTED):
        assert client.seen is not None
        recovery = client.status is not Status.OPEN
        ensemble = current_ensemble(client.seen)
        for op in {*client.pending_add_ops, *before.client[c].pending_add_ops}:
            add = AddEntryRequest(op.entry, op.lac, recovery)
            bookies = newly_asked(op.entry.id, op.ensemble, ensemble, after.write_quorum)
            if recovery and op.entry.id not in client.written_back:
                bookies = [*bookies, *write_set(op.entry.id, op.ensemble, after.write_quorum)]
            found |= {(b.name, add) for b in bookies}
    if client.status is Status.IN_RECOVERY and client.last_recoverable_entry == NOT_KNOWN and is_read(after, c):
        lap = client.lap
        for entry_id in range(lap + 1, after.readable_ids[-1] + 1):
            if may_read_ahead(entry_id, lap, after.reads_in_flight):
                asked = after.write_set(entry_id, after.ensemble_to_read(c))
                found |= {(b.name, ReadRequest(entry_id, True)) for b in asked}
    return found


def is_read(s: Protocol, c: ModelValue) -> bool:
    """Whether a recovery reads, or may begin to."""
    client = s.client[c]
    if client.recovery_phase is not RecoveryPhase.FENCING:
        return client.recovery_phase is RecoveryPhase.READ_WRITE
    quorums = (s.write_quorum, s.ack_quorum)
    return fencing(client.fenced, (), client.recovery_ensemble, *quorums, s.protections) is Verdict.POSITIVE


def is_to_close(s: Protocol, c: ModelValue) -> bool:
    """Whether a recovery may close the ledger."""
    client = s.client[c]
    end = client.last_recoverable_entry != NOT_KNOWN
    return may_close(end, [op.entry.id for op in client.pending_add_ops], s.protections)


# -- bookies ----------------------------------------------------------------------------------------------------------


def _bookie_answers(system: System, step: Taken, b: ModelValue, c: ModelValue) -> None:
    source, to, message = step.received()
    number, request = system.take(name(source), name(to), message)
    response = system.ask(name(b), request)
    try:
        actual = protocol_response(message, response)
    except NoCounterpart as error:
        raise Difference(f"what {b} answers to {c}", "an answer of the protocol", str(error)) from None
    expected = next((sent for _, sent, _ in step.sent(b)), None)
    if actual != expected:
        raise Difference(f"what {b} answers to {c}", expected, actual)
    for to, sent, lost in step.sent(b):
        system.answer(name(b), name(to), sent, number, response, lost)


def _bookie_crashes(system: System, step: Taken, b: ModelValue) -> None:
    system.replace_bookie(name(b))
    clients = {name(c) for c in step.after.clients}
    for channel in [channel for channel in system.flying if channel[1] == name(b) and channel[0] in clients]:
        number, _ = system.flying.pop(channel)
        (system.lost if system.settings.loses else system.dropped)[channel] = number


# -- metadata ---------------------------------------------------------------------------------------------------------


def _take_write(system: System, step: Taken, c: ModelValue) -> None:
    """The metadata service receives the write of a client."""
    who, before, after = name(c), step.before, step.after
    write = system.writes.pop(who, None)
    if write is None or isinstance(write, CreateMetadata):
        raise Difference(f"what {who} writes to the metadata service", "new metadata", write or "nothing")
    update, client = after.client[c].update, before.client[c]
    expected = client.version if client.version is not None else before.meta.version
    if write.version != expected:
        raise Difference(f"the version that {who} wants to replace", expected, write.version)
    taken = write.version == system.version or not after.protections.conditional_updates
    # If the answer comes at once, the protocol discards a refused update.
    wanted = after.meta.metadata if update is None else update.metadata
    if (taken or update is not None) and actual_metadata(write.metadata) != expected_metadata(wanted):
        raise Difference(f"the metadata that {who} writes", expected_metadata(wanted), actual_metadata(write.metadata))
    if taken:
        system.metadata, system.version = write.metadata, system.version + 1
    outcome = Outcome.OK if taken else Outcome.BAD_VERSION
    if taken and Answer.LOST in step.choices:
        outcome = Outcome.UNKNOWN
    if update is None:
        system.answer_write(who, outcome, write.txn, system.version)
    else:
        system.answers[who] = (write.txn, outcome, system.version)


def _client_receives_metadata(system: System, step: Taken, c: ModelValue) -> None:
    txn, outcome, version = system.answers.pop(name(c))
    system.answer_write(name(c), outcome, txn, version)


# -- the owner --------------------------------------------------------------------------------------------------------


def _client_creates_ledger(system: System, step: Taken, c: ModelValue) -> None:
    who, metadata = name(c), step.after.meta.metadata
    assert metadata is not None
    system.add_writer(who)
    system.list_bookies(who, ensemble_of(current_ensemble(metadata)))
    system.call(who, "create")
    write = system.writes.pop(who, None)
    if not isinstance(write, CreateMetadata) or actual_metadata(write.metadata) != expected_metadata(metadata):
        actual = actual_metadata(write.metadata) if write is not None else "nothing"
        raise Difference(f"the metadata that {who} creates", expected_metadata(metadata), actual)
    system.metadata, system.version = write.metadata, 1
    system.give(who, MetadataAnswer(write.txn, Outcome.OK, 1))


def _client_sends_add(system: System, step: Taken, c: ModelValue) -> None:
    system.append(name(c), data_of(step.after.client[c].lap))


def _client_receives(system: System, step: Taken, c: ModelValue, b: ModelValue) -> None:
    """A client receives the response of a bookie."""
    source, to, message = step.received()
    number, response = system.take(name(source), name(to), message)
    system.answered(name(c), name(b), number, message, response)


def _time_out_adds(system: System, c: str, failed: Sequence[str]) -> None:
    """A client gives up waiting for the adds that were lost to some bookies or from them."""
    for b in failed:
        kinds = {(c, b): AddEntryRequest, (b, c): AddEntryResponse}
        for channel in [channel for channel in system.lost if isinstance(channel[2], kinds.get(channel[:2], ()))]:
            system.time_out(c, channel)


def _replace_bookies(system: System, step: Taken, c: ModelValue, ensemble: Sequence[ModelValue]) -> list[str]:
    """Give a client the bookies that the protocol takes. Return the failed ones, in the order of the ensemble."""
    who, before = name(c), ensemble_of(step.before.client_ensemble(c))
    failed = {name(b) for b in step.before.failed_bookies(c)}
    fresh = [b for b in ensemble_of(ensemble) if b not in before]
    if not fresh:  # a change that was refused at once and left no trace: any bookies are accepted
        system.list_bookies(who, tuple(name(b) for b in step.after.bookies))
        return [b for b in before if b in failed]
    left = system.left.get(who, frozenset())
    if preferred(fresh, left) != fresh:
        raise NotRealisable("order of bookies")
    system.left[who] = left | failed
    system.list_bookies(who, tuple(fresh))
    return [b for b in before if b in failed]


def _client_changes_ensemble(system: System, step: Taken, c: ModelValue) -> None:
    """The role replaces the first bookie that fails at once. Where the protocol replaces several, that first write
    does not reach the metadata service; when the role learns that, it knows of all failed bookies."""
    who, update = name(c), step.after.client[c].update
    metadata = step.after.meta.metadata if update is None else update.metadata
    assert metadata is not None
    failed = _replace_bookies(system, step, c, current_ensemble(metadata))
    _time_out_adds(system, who, failed)
    if len(failed) > 1 and who in system.writes:
        view = system.roles[who].view
        seen = view.metadata, view.version
        system.give(who, MetadataAnswer(system.writes.pop(who).txn, Outcome.UNKNOWN))
        system.fire(who)
        system.answer_read(who, seen)
    _take_write(system, step, c)


def _client_closes_ledger(system: System, step: Taken, c: ModelValue) -> None:
    """The caller closes the ledger. With unconfirmed entries the role can close only after it has given the entries up:
    bookies do not answer in time, and there are no others. The bookies may still answer later.
    """
    who = name(c)
    if step.before.client[c].pending_add_ops:
        system.list_bookies(who, ())
        for number, b, message in _outstanding_adds(system, who):
            if system.error_of(who) is Error.NOT_ENOUGH_BOOKIES:
                break
            system.answered(who, b, number, message, None)
    system.call(who, "close")
    _take_write(system, step, c)


def _outstanding_adds(system: System, c: str) -> list[tuple[Number, str, Message]]:
    """Adds of a client that are unanswered, as far as it knows, in order: their numbers and bookies."""
    found = [(each.number, each.bookie, each.message) for each in system.outbox.get(c, ())]
    for channels in (
        ((channel, number) for channel, (number, _) in system.flying.items()),
        system.lost.items(),
        system.dropped.items(),
    ):
        for (source, to, message), number in channels:
            if c in (source, to) and isinstance(message, (AddEntryRequest, AddEntryResponse)):
                found.append((number, to if source == c else source, message))
    return sorted(found, key=lambda each: each[0].order)


# -- recovery ---------------------------------------------------------------------------------------------------------


def _client_opens_ledger(system: System, step: Taken, c: ModelValue) -> None:
    system.add_recoverer(name(c))
    system.call(name(c), "recover")
    system.answer_read(name(c))


def _client_starts_recovery(system: System, step: Taken, c: ModelValue) -> None:
    if name(c) not in system.roles:
        _client_opens_ledger(system, step, c)
    _take_write(system, step, c)


def _client_receives_fence_response(system: System, step: Taken, c: ModelValue, b: ModelValue) -> None:
    if is_read(step.before, c) and step.after.client[c].lac != step.before.client[c].lac:
        raise NotRealisable("late fence")
    _client_receives(system, step, c, b)


def _client_receives_read(system: System, step: Taken, c: ModelValue, b: ModelValue) -> None:
    """The protocol looks for reads that timed out when a response arrives. So the reads of the role time out then."""
    who, client = name(c), step.before.client[c]
    for channel in [*system.lost]:
        message = channel[2]
        is_read = isinstance(message, (ReadRequest, ReadResponse)) and who in channel[:2]
        if is_read and client.lap < message.entry_id <= client.last_read:  # type: ignore[attr-defined]
            system.time_out(who, channel)
    _client_receives(system, step, c, b)
    _must_know_length(step, c)


def _must_know_length(step: Taken, c: ModelValue) -> None:
    after, client = step.after, step.after.client[c]
    end = client.last_recoverable_entry
    if client.status is not Status.IN_RECOVERY or not is_to_close(after, c) or end < 1 or end != client.recovery_lac:
        return
    assert client.seen is not None
    asked = after.write_set(end, tuple(fragment_of(client.seen.fragments, end).ensemble))
    if not any(after.bookie[b].entry(end) for b in asked):
        raise NotRealisable("length")


def _recovery_changes_ensemble(system: System, step: Taken, c: ModelValue) -> None:
    who, client = name(c), step.after.client[c]
    if client.status is Status.ABORTED:
        system.list_bookies(who, tuple(name(b) for b in step.after.bookies))
        failed = [name(b) for b in step.before.failed_bookies(c)]
    else:
        metadata = client.seen if client.update is None else client.update.metadata
        assert metadata is not None
        failed = _replace_bookies(system, step, c, current_ensemble(metadata))
    _time_out_adds(system, who, failed)
    if client.update is not None or step.after.meta.version != step.before.meta.version:
        _take_write(system, step, c)


def _nothing(system: System, step: Taken, **_: Any) -> None:
    """The role has taken this step already. Its messages and its state are compared later."""


# -- readers ----------------------------------------------------------------------------------------------------------


def _reader_sends(system: System, step: Taken, r: ModelValue, entry_id: int) -> None:
    """The role asks one bookie after another, each when the one before has taken long. Here all of them do."""
    who, before = name(r), step.before
    metadata = before.meta.metadata
    assert metadata is not None
    if metadata.status is not LedgerStatus.CLOSED:
        ensemble = current_ensemble(metadata)
        known = max(before.bookie[b].lac_of_last for b in ensemble)
        if any(before.bookie[b].limbo for b in ensemble) or known < max(before.bookie[b].lac for b in ensemble):
            raise NotRealisable("lac of reader")
    system.add_reader(who)
    system.call(who, "open")
    system.answer_read(who)
    system.read(who, entry_id - 1)
    for _ in range(before.write_quorum - 1):
        system.fire(who)
    for b, message, lost in step.sent(r):
        system.send(who, name(b), message, lost)
    if system.outbox.get(who):
        raise Difference(f"what {who} sends", "nothing else", system.outbox[who])


def _reader_receives(system: System, step: Taken, r: ModelValue, b: ModelValue) -> None:
    _client_receives(system, step, r, b)
    _reader_reads_elsewhere(system, step, r)


def _reader_gives_up(system: System, step: Taken, r: ModelValue) -> None:
    who = name(r)
    for channel in [channel for channel in system.lost if who in channel[:2]]:
        system.time_out(who, channel)
    _reader_reads_elsewhere(system, step, r)


def _reader_reads_elsewhere(system: System, step: Taken, r: ModelValue) -> None:
    reader = step.after.reader[r]
    if reader.result in (None, ReadResult.OK):
        return
    assert reader.entry_id is not None
    if step.after.published_write_set(reader.entry_id) - reader.asked:
        raise NotRealisable("read elsewhere")
    system.answer_read(name(r))


HANDLERS: Mapping[str, Callable[..., None]] = {
    "bookie_sends_add_confirmed_response": _bookie_answers,
    "bookie_sends_add_fenced_response": _bookie_answers,
    "bookie_sends_fencing_read_lac_response": _bookie_answers,
    "bookie_sends_read_response": _bookie_answers,
    "bookie_crashes": _bookie_crashes,
    "client_receives_metadata": _client_receives_metadata,
    "client_creates_ledger": _client_creates_ledger,
    "client_sends_add_entry_requests": _client_sends_add,
    "client_receives_add_confirmed_response": _client_receives,
    "client_receives_add_fenced_response": _client_receives,
    "client_changes_ensemble": _client_changes_ensemble,
    "client_resends_pending_add_op": _nothing,
    "client_closes_ledger": _client_closes_ledger,
    "client_opens_ledger": _client_opens_ledger,
    "client_starts_recovery": _client_starts_recovery,
    "client_receives_fencing_read_lac_response": _client_receives_fence_response,
    "client_sends_recovery_read_requests": _nothing,
    "client_receives_recovery_read_response": _client_receives_read,
    "client_writes_back_entry": _nothing,
    "recovery_client_receives_add_confirmed_response": _client_receives,
    "recovery_client_changes_ensemble": _recovery_changes_ensemble,
    "recovery_client_sends_pending_add_op": _nothing,
    "recovery_client_closes_ledger": _take_write,
    "reader_sends_read_requests": _reader_sends,
    "reader_receives_read_response": _reader_receives,
    "reader_gives_up": _reader_gives_up,
}
"""The handler of each action."""
