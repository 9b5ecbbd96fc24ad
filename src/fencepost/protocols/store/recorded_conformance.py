"""How recordings of a store conform to the protocol `recorded-store`: the steps of each message and each version of the
metadata.

A recorder (:mod:`fencepost.ledger.recording`) has one order of all that it has seen. Steps have that order, with two
exceptions:

- A bookie decides at some time between a request and its response. That it lacks an entry, or was not fenced, counts as
  decided as early as possible; that it has an entry, or is fenced, as late as possible.
- A version of the metadata existed before it was seen, at the earliest when the read of the one before the last had
  ended. It is placed where it was seen, unless a step needs it earlier.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec

from fencepost.language.protocol import Protocol
from fencepost.language.values import Value
from fencepost.ledger.rules.codes import NEGATIVES, Code
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.ledger.rules.recovery import says_fenced
from fencepost.protocols.store.conformance import StoreConformance, check_form
from fencepost.protocols.store.recorded import RecordedStore
from fencepost.traces.validation.conformance import Conformance, Event, NotCovered, known, rounded
from fencepost.traces.validation.steps import Step

RECORDER = "record"
"""The kind of node that traces messages."""

LAST = -1
"""The entry of a read that asks for the last one."""

LISTED = 1_000
"""The maximum number of runs of entries in the answer to a list of entries."""

REQUEST, RESPONSE = "request", "response"
DECIDED, PLACED = "decided", "placed"
"""Actions of events that are inserted between recorded ones: a bookie decides; metadata exist at the latest."""

Parameters: TypeAlias = Mapping[str, Any]


def is_recording(events: Iterable[Event]) -> bool:
    """Whether a recorder traces a ledger, and no client of it does."""
    kinds = {event.node: event.parameters["kind"] for event in events if event.action == "started"}
    telling = {kinds.get(event.node) for event in events if event.subject is not None}
    return RECORDER in telling and "client" not in telling


class RecordedConformance(Conformance):
    """One ledger in one recording."""

    name: ClassVar[str] = "recorded-store"
    protocol: ClassVar[type[Protocol]] = RecordedStore

    def __init__(self, subject: str, events: Sequence[Event]) -> None:
        super().__init__(subject, events)
        recorders = {
            event.node: event.parameters
            for event in events
            if event.action == "started" and event.parameters["kind"] == RECORDER
        }
        self.events = [event for event in events if event.node in recorders]
        lives = {(event.node, event.incarnation) for event in self.events if event.subject is not None}
        if len(lives) != 1:
            raise NotCovered(
                f"{len(lives)} recordings tell of the ledger: what has happened between them, or in which order, nobody"
                " has seen"
            )
        (life,) = lives
        self.events = [event for event in self.events if (event.node, event.incarnation) == life]
        self.recorded = [each["bookie"] for each in recorders[life[0]]["bookies"]]
        self.versions = [event for event in self.events if event.action == "metadata_seen"]
        self._check()
        named = [event.parameters["bookie"] for event in self.events if "bookie" in event.parameters]
        self.bookies = {bookie: place for place, bookie in enumerate(dict.fromkeys([*self.recorded, *named]))}
        self.whole = bool(self.versions[0].parameters.get("new", self.versions[0].parameters["version"] == 0))
        self.durable = not any(event.parameters.get("deferred_sync") for event in self.events)
        self.request_of: dict[int, Event] = {}
        """The request of each response, by the number of its event."""
        self.decided: dict[int, list[Event]] = defaultdict(list)
        """Responses that are decided as early as possible, by the numbers of the events of their requests."""
        self.unasked: set[int] = set()
        self._match()
        self.lives = self._lives()

    def _check(self) -> None:
        if not self.versions:
            raise NotCovered("no metadata of the ledger are in the recording")
        for event in self.events:
            check_form(event)
            if event.action == "metadata_unreadable":
                raise NotCovered(f"metadata of the ledger could not be read: {event.parameters['reason']}")
            if event.subject is not None and event.parameters.get("code") == "UNAUTHORIZED":
                raise NotCovered(
                    "somebody has another key than the ledger, and which other requests are theirs is not to be seen"
                )
        for event in self.versions:
            for _, ensemble in event.parameters["metadata"]["fragments"]:
                for bookie in ensemble:
                    if bookie not in self.recorded:
                        raise NotCovered(f"bookie {bookie} has entries of the ledger, and was not recorded")
        ids = [event.parameters["version"] for event in self.versions]
        if ids != sorted(set(ids)):
            raise NotCovered("the ledger was deleted, and another one of the same id was created")

    # -- looking ahead -----------------------------------------------------------------------------------------------

    def _match(self) -> None:
        """Match responses with their requests."""
        waiting: dict[tuple[Any, ...], deque[Event]] = defaultdict(deque)
        for event in self.events:
            if event.subject is None:
                continue
            if event.action == "request_passed":
                waiting[_key(event.parameters)].append(event)
            elif _is_response(event):
                if event.parameters.get("unasked"):
                    continue
                queue = waiting.get(_key(event.parameters))
                if not queue:
                    self.unasked.add(event.seq)
                    continue
                request = queue.popleft()
                if event.parameters["kind"] == "add" and request.parameters["entry"] != event.parameters["entry"]:
                    self.unasked.add(event.seq)
                    continue
                self.request_of[event.seq] = request
                if event.parameters["code"] == "OK" or _code(event) in NEGATIVES:
                    self.decided[request.seq].append(event)

    def _lives(self) -> set[int]:
        """The events at which connections begin before which a bookie may have restarted: no earlier connection is used
        after that.
        """
        used: dict[tuple[str, str, int], int] = {}
        current: dict[tuple[str, str], int] = {}
        for event in self.events:
            key = (event.parameters.get("bookie", ""), event.parameters.get("connection", ""))
            if event.action == "connected":
                current[key] = event.seq
                used[(*key, event.seq)] = event.seq
            elif _is_response(event) and key in current:
                used[(*key, current[key])] = event.seq
        found: set[int] = set()
        reach: dict[str, int] = {}
        for (bookie, _, begin), end in sorted(used.items(), key=lambda item: item[0][2]):
            if begin > reach.get(bookie, -1):
                found.add(begin)
            reach[bookie] = max(end, reach.get(bookie, -1))
        return found

    # -- the protocol ------------------------------------------------------------------------------------------------

    def constants(self) -> Mapping[str, Any]:
        """See :class:`Conformance`."""
        metadata = self.versions[0].parameters["metadata"]
        return {
            "bookies": max(len(self.bookies), 1),
            "entries": rounded(self._last_entry() + 2, 64),
            "ensemble_size": metadata["ensemble_size"],
            "write_quorum": metadata["write_quorum"],
            "ack_quorum": metadata["ack_quorum"],
            "whole": self.whole,
            "durable": self.durable,
        }

    def _last_entry(self) -> int:
        last: int = 62
        for event in self.events:
            entry, found = event.parameters.get("entry"), event.parameters.get("found")
            last = max(last, entry if entry is not None else LAST, found if found is not None else LAST)
            for run in event.parameters.get("entries") or ():
                last = max(last, run[1])
        ends: list[int] = [event.parameters["metadata"]["last_entry"] for event in self.versions]
        return max(last, *ends)

    def hidden(self, protocol: Protocol) -> Iterable[Step]:
        """Nothing: these traces report every step."""
        return ()

    def bind(self, protocol: Protocol) -> None:
        """See :class:`Conformance`."""
        assert isinstance(protocol, RecordedStore)
        self.b = {name: protocol.bookies[place] for name, place in self.bookies.items()}

    def names(self) -> Mapping[str, str]:
        """See :class:`Conformance`."""
        return {str(value): name for name, value in self.b.items()}

    @classmethod
    def is_over(cls, events: Sequence[Event]) -> bool:
        """See :class:`Conformance`."""
        return any(
            event.action == "metadata_gone"
            or (event.action == "metadata_seen" and event.parameters["metadata"]["state"] == "CLOSED")
            for event in events
        )

    def in_order(self) -> Sequence[Event]:
        """Order the events: early decisions of bookies come after their requests, and metadata are ordered
        separately.
        """
        ordered: list[Event] = []
        self.place: dict[int, int] = {}
        for event in self.events:
            if event.action in ("metadata_seen", "metadata_gone"):
                self.place[event.seq] = len(self.place)
                ordered.append(msgspec.structs.replace(event, node=f"{event.node}, metadata"))
                ordered.append(msgspec.structs.replace(event, action=PLACED))
                continue
            ordered.append(event)
            ordered += [
                msgspec.structs.replace(response, action=DECIDED) for response in self.decided.get(event.seq, ())
            ]
        return ordered

    def steps(self, event: Event) -> Iterable[Step]:
        """See :class:`Conformance`."""
        steps = _STEPS.get(event.action)
        return () if steps is None else steps(self, event)

    # -- events of all ledgers -----------------------------------------------------------------------------------------

    def _connected(self, event: Event) -> Iterator[Step]:
        if event.seq in self.lives:
            yield Step("bookie_may_start_anew", self._who(event))

    def _redirected(self, event: Event) -> Iterator[Step]:
        """A bookie that registers again, while clients are there, may be found by one before it is redirected to the
        recorder again.
        """
        if any(other.action == "connected" for other in self.events[: self._index(event)]):
            yield Step("bookie_may_be_reached_unseen", self._who(event))

    def _index(self, event: Event) -> int:
        return next(place for place, other in enumerate(self.events) if other.seq == event.seq)

    def _unparsed(self, event: Event) -> Iterator[Step]:
        yield Step("bookie_may_be_reached_unseen", self._who(event))

    def _who(self, event: Event) -> tuple[tuple[str, Value], ...]:
        return (("b", self.b[event.parameters["bookie"]]),)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _request(self, event: Event) -> Iterator[Step]:
        yield from self._sent(event, arrives=True)

    def _dropped(self, event: Event) -> Iterator[Step]:
        if event.parameters["direction"] == REQUEST:
            yield from self._sent(event, arrives=False)
        else:
            yield from self._answered(event, heard=False)

    def _sent(self, event: Event, arrives: bool) -> Iterator[Step]:
        parameters, who, goes = event.parameters, self._who(event), (("arrives", arrives),)
        kind, entry = parameters["kind"], parameters.get("entry")
        _needs(event, _OF_REQUEST.get(kind, ()))
        if kind == "add":
            fields = tuple((name, parameters[name]) for name in ("lac", "length", "recovery"))
            yield Step("client_sends_add", (*who, ("entry_id", entry), *fields, *goes))
        elif kind == "write_lac":
            yield Step("client_tells_lac", (*who, ("lac", parameters["lac"]), *goes))
        elif kind in ("read", "batch_read") and parameters["fence"]:
            if entry == LAST:
                yield Step("client_sends_fence", (*who, *goes))
            else:
                yield Step("client_sends_recovery_read", (*who, ("entry_id", entry), *goes))

    # -- responses ---------------------------------------------------------------------------------------------------

    def _decided(self, event: Event) -> Iterator[Step]:
        """The answer of a bookie, decided as early as its request."""
        parameters, who = event.parameters, self._who(event)
        kind, entry, fence = parameters["kind"], parameters.get("entry"), bool(parameters.get("fence"))
        is_negative = _code(event) in NEGATIVES
        if kind == "add" and not is_negative and not parameters["recovery"]:
            yield Step("bookie_takes_add", who)
        elif kind == "list_entries":
            runs = tuple((first, last) for first, last in parameters["entries"])
            if parameters["runs"] <= LISTED:
                yield Step("bookie_lists_entries", (*who, ("runs", runs)))
        elif is_negative and self._waits(event):
            return  # decided when the wait ends, and then the ledger may be gone
        elif is_negative and (kind == "read_lac" or (kind == "read" and entry == LAST)):
            yield Step("bookie_lacks_everything", (*who, ("fence", fence)))
        elif is_negative and kind in ("read", "batch_read"):
            yield Step("bookie_lacks_entry", (*who, ("entry_id", entry), ("fence", fence)))

    def _waits(self, event: Event) -> bool:
        """Whether a response answers a long poll, which is about the LAC."""
        request = self.request_of.get(event.seq)
        return request is not None and "previous_lac" in request.parameters

    def _response(self, event: Event) -> Iterator[Step]:
        yield from self._answered(event, heard=True)

    def _answered(self, event: Event, heard: bool) -> Iterator[Step]:
        if event.seq in self.unasked:
            yield Step(
                "bookie_confirms_add" if event.parameters["kind"] == "add" else None,
                receives=("nobody asked", event.seq),
            )
            return
        parameters, who = event.parameters, self._who(event)
        kind, code, entry = parameters["kind"], _code(event), parameters.get("entry")
        for name in ("lac", "max_lac", "last_entry_lac"):
            if parameters.get(name) is not None and not (
                kind == "read" and name == "lac" and parameters["found"] is None
            ):
                yield Step("bookie_tells_lac", (*who, ("lac", parameters[name])))
        if code is Code.UNKNOWN_LEDGER_STATE:
            shows = parameters.get("found") is not None and parameters.get("found") == entry
            yield Step("bookie_is_in_limbo", (*who, ("shows", shows)))
        elif kind == "add":
            yield from self._add_answered(event, heard)
        elif kind in ("read", "batch_read"):
            yield from self._read_answered(event, heard)

    def _add_answered(self, event: Event, heard: bool) -> Iterator[Step]:
        parameters, who = event.parameters, self._who(event)
        if parameters["code"] == "OK":
            about = (
                ("entry_id", parameters["entry"]),
                ("recovery", bool(parameters.get("recovery"))),
                ("heard", heard),
            )
            yield Step("bookie_confirms_add", (*who, *about))
        elif parameters["code"] == "FENCED" and not parameters.get("recovery"):
            yield Step("bookie_refuses_add", who)

    def _read_answered(self, event: Event, heard: bool) -> Iterator[Step]:
        parameters, who = event.parameters, self._who(event)
        entry, code, fence = parameters["entry"], _code(event), bool(parameters.get("fence"))
        if fence and says_fenced(code):
            yield Step("bookie_is_fenced", (*who, ("heard", heard and entry == LAST)))
        if code is Code.OK and heard:
            yield from self._shown(event, who)
        elif code in NEGATIVES and fence and entry != LAST and heard:
            yield Step("recovery_hears_of_no_entry", (*who, ("entry_id", entry)))

    def _shown(self, event: Event, who: tuple[tuple[str, Value], ...]) -> Iterator[Step]:
        parameters = event.parameters
        if parameters["kind"] == "batch_read":
            runs = tuple((first, last) for first, last in parameters["entries"])
            yield Step("bookie_shows_batch", (*who, ("runs", runs)))
            return
        found = parameters["found"]
        asked = found if parameters["entry"] == LAST or self._waits(event) else parameters["entry"]
        if asked is not None:
            about = (("found", found), ("lac", parameters["lac"]), ("length", parameters["length"]))
            yield Step("bookie_shows_entry", (*who, ("entry_id", asked), *about))

    # -- metadata ----------------------------------------------------------------------------------------------------

    def _metadata_seen(self, event: Event) -> Iterator[Step]:
        place, parameters = self.place[event.seq], event.parameters
        metadata, version = parameters["metadata"], parameters["version"]
        written = {
            "version": version,
            "quorums": (metadata["ensemble_size"], metadata["write_quorum"], metadata["ack_quorum"]),
            "status": LedgerStatus[metadata["state"]],
            "fragments": tuple(
                Fragment(first, tuple(self.b[bookie] for bookie in ensemble))
                for first, ensemble in metadata["fragments"]
            ),
            "last_entry": metadata["last_entry"] if metadata["state"] == "CLOSED" else LAST,
            "missed": version != (self.versions[place - 1].parameters["version"] + 1 if place else 0),
        }
        if written["missed"]:
            yield Step("metadata_is_missed", receives=self._at_earliest(place))
            yield Step("metadata_written", tuple(written.items()), sends=(("there", place),))
            return
        yield self._in_line("metadata_written", place, tuple(written.items()))

    def _gone(self, event: Event) -> Iterator[Step]:
        yield self._in_line("ledger_is_deleted", self.place[event.seq])

    def _in_line(self, action: str, place: int, parameters: tuple[tuple[str, Value], ...] = ()) -> Step:
        return Step(action, parameters, receives=self._at_earliest(place), sends=(("there", place),))

    def _at_earliest(self, place: int) -> tuple[str, int] | None:
        """A version was not there before the one but last was seen, since it was read only after that."""
        return ("seen", place - 2) if place > 1 else None

    def _placed(self, event: Event) -> Iterator[Step]:
        place = self.place[event.seq]
        yield Step(None, receives=("there", place), sends=(("seen", place),))


_OF_REQUEST: Mapping[str, tuple[str, ...]] = {
    "add": ("entry", "lac", "length", "recovery"),
    "write_lac": ("lac",),
    "read": ("entry", "fence"),
    "batch_read": ("entry", "fence"),
}
"""The fields of a request, by its kind, that its step needs."""


def _needs(event: Event, fields: Iterable[str]) -> None:
    """Raises :class:`NotCovered` if an event lacks one of these fields."""
    for name in fields:
        if name not in event.parameters:
            raise NotCovered(f"{event.node} {event.seq} {event.action}, a {event.parameters['kind']}, has no {name}")


def _code(event: Event) -> Code:
    return known(Code.__members__.__getitem__, event, "code")


_STEPS: Mapping[str, Callable[[RecordedConformance, Event], Iterable[Step]]] = {
    "connected": RecordedConformance._connected,
    "bookie_redirected": RecordedConformance._redirected,
    "unparsed_passed": RecordedConformance._unparsed,
    "request_passed": RecordedConformance._request,
    "response_passed": RecordedConformance._response,
    "message_dropped": RecordedConformance._dropped,
    "connection_cut": RecordedConformance._dropped,
    "metadata_seen": RecordedConformance._metadata_seen,
    "metadata_gone": RecordedConformance._gone,
    DECIDED: RecordedConformance._decided,
    PLACED: RecordedConformance._placed,
}


class AnyStoreConformance(StoreConformance):
    """One ledger in one run, traced by the processes of the store themselves, or recorded."""

    @classmethod
    def of(cls, subject: str, events: Sequence[Event]) -> Conformance:
        """See :class:`Conformance`."""
        return RecordedConformance(subject, events) if is_recording(events) else StoreConformance(subject, events)

    @classmethod
    def is_over(cls, events: Sequence[Event]) -> bool:
        """See :class:`Conformance`."""
        return RecordedConformance.is_over(events) or StoreConformance.is_over(events)


def _is_response(event: Event) -> bool:
    """Whether an event is the answer of a bookie, whichever client received it."""
    if event.action == "response_passed":
        return event.subject is not None
    return (
        event.action in ("message_dropped", "connection_cut")
        and event.parameters["direction"] == RESPONSE
        and event.subject is not None
    )


def _key(parameters: Parameters) -> tuple[Any, ...]:
    """The key that a request and its response share."""
    number = parameters["number"]
    about = number if number is not None else parameters.get("entry")
    return (
        parameters["bookie"],
        parameters["connection"],
        parameters["kind"],
        parameters["protocol"],
        number is None,
        about,
    )
