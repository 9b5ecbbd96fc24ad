"""The roles of one behaviour and their environment: messages, bookies' disks, the metadata service. Nothing happens
unless a handler makes it happen.

A message of a client's role stays in the client's outbox until the protocol sends it: a role does at once what the
protocol may do later. A journal is synced as soon as it is written. A *fork* of a system continues independently. A
role is copied at its first event in a fork, so it can continue in several ways from one state.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any, NamedTuple

import msgspec

from fencepost.language.values import Message
from fencepost.ledger.entries import Digests, header
from fencepost.ledger.messages import NO_ENTRY_YET, AddEntry, ReadEntry, ReadEntryResponse, ReadLac, Request, Response
from fencepost.ledger.roles import interface
from fencepost.ledger.roles.adds import Adds, PlainLoops
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.roles.metadata import MetadataView
from fencepost.ledger.roles.reader import Reader, ReaderSettings
from fencepost.ledger.roles.reading import Answers, Readings
from fencepost.ledger.roles.recoverer import Recoverer, RecovererSettings
from fencepost.ledger.roles.requests import AddRequests, FoundRequests, is_plain_read
from fencepost.ledger.roles.writer import Writer, WriterSettings
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import is_in_write_set
from fencepost.ledger.rules.metadata import LedgerMetadata
from fencepost.ledger.rules.protections import Protections
from fencepost.protocols.bookkeeper.current import ReadRequest, ReadResponse
from fencepost.protocols.bookkeeper.ledger import AddEntryRequest, AddEntryResponse
from fencepost.testing.store.mapping import (
    CREATION_TOKEN,
    LEDGER,
    PASSWORD,
    NoCounterpart,
    protocol_request,
)
from fencepost.testing.walk import Difference

_OBJECTS = (Writer, Recoverer, Reader, Readings, Bookie, Adds, MetadataView)
"""Classes of mutable objects, which are copied field by field."""

_SHARED = (Digests, PlainLoops)
"""Classes of immutable objects, which are shared."""


def copied(role: Any) -> Any:
    """A copy of a role that continues independently. Immutable values are shared."""
    return _copied(role, {})


def _copied(value: Any, known: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    found = known.get(id(value))
    if found is not None:
        return found
    copy: Any
    if kind is dict:
        copy = known[id(value)] = {}
        for key, each in value.items():
            copy[key] = _copied(each, known)
    elif kind is list or kind is deque:
        copy = known[id(value)] = kind()
        copy.extend(_copied(each, known) for each in value)
    elif kind is set or kind is array:
        copy = known[id(value)] = value.__class__(value) if kind is set else value[:]
    elif kind in _OBJECTS:
        copy = known[id(value)] = object.__new__(kind)
        for name, each in value.__dict__.items():
            copy.__dict__[name] = _copied(each, known)
    elif isinstance(value, msgspec.Struct) and not value.__struct_config__.frozen:
        # Its own copy function copies it shallowly; then each field is copied.
        copy = known[id(value)] = value.__copy__()  # type: ignore[attr-defined]
        for name in value.__struct_fields__:
            setattr(copy, name, _copied(getattr(value, name), known))
    else:
        return value
    return copy


_PLAIN = {int, str, bytes, bool, type(None), tuple, frozenset, float, *_SHARED}


Channel = tuple[str, str, Message]
"""A message with its source and its receiver: the protocol sends it once."""


class Number(NamedTuple):
    """The numbers of a request: among those of its client, and ``of``: its role's number of the request, of the reading
    or of the attempt to add.
    """

    order: int
    of: int


class Wanted(NamedTuple):
    """A message that a client's role will send."""

    bookie: str
    message: Message
    number: Number
    request: Request


class Settings(NamedTuple):
    """Settings of the ledger and its clients. ``beyond``: the first entry that the protocol never reads."""

    quorums: tuple[int, int, int]
    in_flight: int
    reads_in_flight: int
    beyond: int
    loses: bool
    protections: Protections


class System:
    """The roles and their environment. Every message in flight has the number of its request, and its counterpart in
    the store.
    """

    def __init__(self, settings: Settings, bookies: tuple[str, ...], protections: Protections) -> None:
        self.settings = settings
        self.protections = protections
        """The protections of the roles."""
        self.roles: dict[str, Any] = {b: Bookie(protections) for b in bookies}
        self.stored: dict[str, dict[int, bytes]] = {b: {} for b in bookies}
        self.own = set(self.roles)
        """Roles that are not shared with another system."""
        self.outbox: dict[str, tuple[Wanted, ...]] = {}
        self.wanted: dict[str, int] = {}
        """The requests of each client so far; ``looked_at``: the last that was in its outbox after a step."""
        self.looked_at: dict[str, int] = {}
        self.flying: dict[Channel, tuple[Number, Request | Response]] = {}
        self.lost: dict[Channel, Number] = {}
        self.dropped: dict[Channel, Number] = {}
        """Messages to a bookie that crashed while they were in flight, where the protocol does not model losses."""
        self.writes: dict[str, interface.WriteMetadata | interface.CreateMetadata] = {}
        """Writes in flight to the metadata service; ``reads``: reads in flight."""
        self.reads: dict[str, int] = {}
        self.answers: dict[str, tuple[int, interface.Outcome, int]] = {}
        """Answers of the metadata service that clients have not received yet."""
        self.timers: dict[str, tuple[tuple[Any, int], ...]] = {}
        """The timers of clients that are set: their keys, and when each is due."""
        self.found: dict[str, bytes] = {}
        """The entries that have been sent to readers."""
        self.results: dict[str, tuple[interface.Result, ...]] = {}
        self.metadata: LedgerMetadata | None = None
        self.version = 0
        self.left: dict[str, frozenset[str]] = {}
        """The bookies that have left the ensemble of each client."""

    def fork(self) -> System:
        """A system in the same state, which continues independently."""
        other = System.__new__(System)
        for name, value in self.__dict__.items():
            other.__dict__[name] = dict(value) if type(value) is dict else value
        self.own, other.own = set(), set()
        return other

    # -- roles ---------------------------------------------------------------------------------------------------------

    def role(self, who: str) -> Any:
        """The role, not shared with another system, so that it can handle an event."""
        if who not in self.own:
            self.roles[who] = copied(self.roles[who])
            if who in self.stored:
                self.stored[who] = dict(self.stored[who])
            self.own.add(who)
        return self.roles[who]

    def _add(self, who: str, role: Any) -> None:
        self.roles[who] = role
        self.own.add(who)

    def add_writer(self, who: str) -> None:
        """Add a client that creates the ledger."""
        ensemble_size, write_quorum, ack_quorum = self.settings.quorums
        settings = WriterSettings(
            ensemble_size,
            write_quorum,
            ack_quorum,
            password=PASSWORD,
            creation_token=CREATION_TOKEN,
            in_flight_limit=self.settings.in_flight,
        )
        self._add(who, Writer(LEDGER, settings, self.protections))

    def add_recoverer(self, who: str) -> None:
        """Add a client that recovers the ledger."""
        settings = RecovererSettings(PASSWORD, self.settings.reads_in_flight)
        self._add(who, Recoverer(LEDGER, settings, self.protections))

    def add_reader(self, who: str) -> None:
        """Add a client that reads."""
        self._add(who, Reader(LEDGER, ReaderSettings(PASSWORD), self.protections))

    def replace_bookie(self, b: str) -> None:
        """A bookie has lost everything, and is back in limbo."""
        self.roles[b] = Bookie(self.protections)
        self.own.add(b)
        self.stored[b] = {}
        self._give_bookie(b, interface.Call(1, "enter limbo", (LEDGER,)))

    # -- bookies -------------------------------------------------------------------------------------------------------

    def ask(self, b: str, request: Request) -> Response:
        """Let a bookie handle a request, and return its response."""
        event: interface.Event = interface.RequestArrived(1, 1, request)
        if type(request) is AddEntry:
            event = interface.AddsArrived(1, (AddRequests(((1, request),)),))
        elif is_plain_read(request):
            event = interface.ReadsArrived(1, 1)
        answers = self._give_bookie(b, event, request)
        if len(answers) != 1:
            raise Difference(f"what {b} answers to {request!r}", "one answer", answers)
        return answers[0]

    def _give_bookie(self, b: str, event: interface.Event, request: Request | None = None) -> list[Response]:
        """Give a bookie an event, with the request that arrived if there is one, and let its disk do its work. Return
        the responses that the bookie sends.
        """
        role, sent = self.role(b), list[Response]()
        stored, events = self.stored[b], deque([event])
        while events:
            written = 0
            for effect in role.receive(events.popleft(), 0):
                if type(effect) is interface.Journal:
                    written = effect.position
                elif type(effect) is interface.JournalAdds:
                    written = effect.position
                    for adds in effect.adds:
                        stored |= {record.entry_id: record.body for record in adds.records()}  # type: ignore[attr-defined]
                elif type(effect) is interface.LookUp:
                    entry_id = max(stored, default=-1) if effect.entry_id == NO_ENTRY_YET else effect.entry_id
                    code = Code.OK if entry_id in stored else Code.NO_ENTRY
                    events.append(interface.Found(effect.number, code, entry_id, stored.get(entry_id)))
                elif type(effect) is interface.LookUpReads and type(request) is ReadEntry:
                    body = stored.get(request.entry_id)
                    found = FoundRequests(LEDGER, ((1, request.entry_id, body),))
                    code = Code.NO_ENTRY if body is None else Code.OK
                    events.append(interface.ReadsFound(effect.number, LEDGER, code, found))
                elif type(effect) is interface.Answer:
                    sent.append(effect.response)
                elif type(effect) is interface.AnswerAdds:
                    sent += (response for adds in effect.adds for _, response in adds.responses(effect.code))  # type: ignore[attr-defined]
                elif type(effect) is interface.AnswerReads:
                    sent += (response for _, response in effect.reads.responses(effect.code, effect.lac))  # type: ignore[attr-defined]
                elif type(effect) is not interface.Result:
                    raise Difference(f"what {b} wants done", "nothing else", effect)
            if written:
                events.append(interface.JournalSynced(written))
        return sent

    # -- clients -------------------------------------------------------------------------------------------------------

    def give(self, c: str, event: interface.Event, now: int = 0) -> None:
        """Give a client an event."""
        detour = list[interface.Send]()
        for effect in self.role(c).receive(event, now):
            if type(effect) is interface.Send:
                if self._is_detour(c, effect.request):
                    detour.append(effect)
                else:
                    self._want(c, effect.bookie, effect.request, effect.txn)
            elif type(effect) is interface.SendReads:
                for entry_id in effect.entry_ids:
                    self._want(c, effect.bookie, ReadEntry(LEDGER, entry_id), effect.reading)
            elif type(effect) is interface.SendAdds:
                for at in range(len(effect.adds)):
                    quorums = effect.ensemble_size, effect.write_quorum
                    if is_in_write_set(effect.place, effect.adds.first + at, *quorums):
                        self._want(c, effect.bookie, effect.adds[at], effect.attempt)
            elif type(effect) is interface.WriteMetadata or type(effect) is interface.CreateMetadata:
                self.writes[c] = effect
            elif type(effect) is interface.ReadMetadata:
                self.reads[c] = effect.txn
            elif type(effect) is interface.SetTimer:
                self.timers[c] = (*self.timers.get(c, ()), (effect.key, now + effect.delay))
            elif type(effect) is interface.ReadOver:
                result = interface.Result(effect.token, self.found.get(c), effect.error)
                self.results[c] = (*self.results.get(c, ()), result)
            elif type(effect) is interface.Result:
                self.results[c] = (*self.results.get(c, ()), effect)
            elif type(effect) is not interface.Confirmed:  # which the LAC of the role says
                raise Difference(f"what {c} wants done", "nothing else", effect)
        # The bookie with the highest LAC answers first: a reader does not wait for all.
        for send in sorted(detour, key=lambda send: self.lac_of_last(send.bookie), reverse=True):
            self.give(c, interface.Received(send.txn, send.bookie, self.ask(send.bookie, send.request)))

    def _is_detour(self, c: str, request: Request) -> bool:
        """Whether a role asks for something that the protocol knows without asking, or that makes no difference there:
        the length of a ledger that is recovered, and the LAC that an ordinary reader begins with.
        """
        reads_length = type(request) is ReadEntry and not request.fence and isinstance(self.roles[c], Recoverer)
        return reads_length or type(request) is ReadLac

    def lac_of_last(self, b: str) -> int:
        """The LAC in the last entry of a bookie, as the protocol counts."""
        stored = self.stored[b]
        return header(stored[max(stored)])[2] + 1 if stored else 0

    def _want(self, c: str, b: str, request: Request, of: int) -> None:
        try:
            message = protocol_request(request)
        except NoCounterpart as error:
            raise Difference(f"what {c} sends to {b}", "a message of the protocol", str(error)) from None
        order = self.wanted[c] = self.wanted.get(c, 0) + 1
        self.outbox[c] = (*self.outbox.get(c, ()), Wanted(b, message, Number(order, of), request))

    def call(self, c: str, operation: str, *arguments: Any) -> int:
        """Let the caller of a client call an operation. Return the token of its result."""
        token = len(self.results.get(c, ())) + 1
        self.give(c, interface.Call(token, operation, arguments))
        return token

    def append(self, c: str, data: bytes) -> None:
        """Let the caller of a client append an entry."""
        self.give(c, interface.Append(len(self.results.get(c, ())) + 1, (data,)))

    def read(self, c: str, entry_id: int) -> None:
        """Let the caller of a reader request an entry."""
        self.give(c, interface.ReadEntries(len(self.results[c]) + 1, entry_id, entry_id))

    def list_bookies(self, c: str, bookies: tuple[str, ...]) -> None:
        """Notify a client of the list of bookies."""
        self.give(c, interface.BookiesChanged(bookies))

    def fire(self, c: str) -> None:
        """Fire all timers of a client that are set now."""
        timers, self.timers[c] = self.timers.get(c, ()), ()
        for key, due in timers:
            self.give(c, interface.TimerFired(key), due)

    def error_of(self, c: str) -> interface.Error | None:
        """The error of the last call of a client that ended, or None."""
        results = self.results.get(c)
        return results[-1].error if results else None

    # -- messages ------------------------------------------------------------------------------------------------------

    def send(self, c: str, b: str, message: Message, lost: bool) -> None:
        """The protocol sends a message, which the role must have in its outbox."""
        wanted = self.outbox.get(c, ())
        for place, each in enumerate(wanted):
            if each.bookie == b and each.message == message:
                self.outbox[c] = wanted[:place] + wanted[place + 1 :]
                self._launch((c, b, message), each.number, each.request, lost)
                return
        raise Difference(
            f"what {c} sends to {b}", message, [each.message for each in wanted if each.bookie == b] or "nothing"
        )

    def _launch(self, channel: Channel, number: Number, what: Request | Response, lost: bool) -> None:
        if not lost:
            self.flying[channel] = (number, what)
        elif self.settings.loses:
            self.lost[channel] = number

    def answer(self, b: str, c: str, message: Message, number: Number, response: Response, lost: bool) -> None:
        """A bookie sends a response."""
        self._launch((b, c, message), number, response, lost)

    def take(self, source: str, to: str, message: Message) -> tuple[Number, Any]:
        """A message arrives."""
        return self.flying.pop((source, to, message))

    def time_out(self, c: str, channel: Channel) -> None:
        """A client gives up waiting for an answer."""
        number, (source, to, message) = self.lost.pop(channel), channel
        self.answered(c, to if source == c else source, number, message, None)

    def answered(self, c: str, b: str, number: Number, message: Message, response: Response | None) -> None:
        """A bookie answers a client, or (None) the client gives up waiting."""
        txn = number.of
        if isinstance(message, (AddEntryRequest, AddEntryResponse)):
            code = None if response is None else response.code
            self.give(c, interface.AddsAnswered(b, (message.entry.id - 1,), code, txn))
            return
        if not isinstance(self.roles[c], Reader):
            self.give(c, interface.Unanswered(txn, b) if response is None else interface.Received(txn, b, response))
            return
        assert isinstance(message, (ReadRequest, ReadResponse))
        assert response is None or isinstance(response, ReadEntryResponse)
        answers = Answers()
        entry = answers.add(self.roles[c].digests, txn, b, (LEDGER, message.entry_id - 1), response)
        if entry is not None:
            self.found[c] = entry.data
        for event in answers.taken():
            self.give(c, event)

    # -- the metadata service ------------------------------------------------------------------------------------------

    def answer_write(self, c: str, outcome: interface.Outcome, txn: int, version: int = -1) -> None:
        """Answer the write of a client. If the outcome is unknown, or the write was refused, the client reads the
        metadata again.
        """
        self.give(c, interface.MetadataAnswer(txn, outcome, version))
        if outcome is interface.Outcome.UNKNOWN:
            self.fire(c)
        self.answer_read(c)

    def answer_read(self, c: str, seen: tuple[LedgerMetadata, int] | None = None) -> None:
        """Answer the read of the metadata that a client waits for, if there is one. ``seen``: the metadata that it
        reads, if not the current ones.
        """
        txn = self.reads.pop(c, None)
        if txn is None:
            return
        metadata, version = seen or (self.metadata, self.version)
        if metadata is None:
            self.give(c, interface.MetadataAnswer(txn, interface.Outcome.NO_LEDGER))
        else:
            self.give(c, interface.MetadataAnswer(txn, interface.Outcome.OK, version, metadata))
