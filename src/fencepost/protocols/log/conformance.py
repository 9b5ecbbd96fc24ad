"""How traces of logs conform to the protocol: the step of each event of writers and of clients that trim a log.

The protocol is :class:`fencepost.protocols.log.running.RunningLog`. A client of it is one writer of a log, which may
lead several times. An entry of it is a run of appends with the same history: written, acknowledged, and closed in or
out together. So a trace of millions of entries becomes some hundred for each ledger.

Some steps have no event when they happen, and later events imply them: which unanswered updates were carried out, which
entries had reached a ledger when it was fenced, which client has recovered a ledger that no leader in the trace has,
and that an untraced client has attached ledgers.

The protocol does not have the numbers of entries within a ledger, nor the requests to update the chain. What an event
says about them must follow from the earlier events of its writer; if it does not, its step is refused.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec

from fencepost.language.protocol import Protocol
from fencepost.language.values import ModelValue
from fencepost.log.chain import SUBJECT
from fencepost.log.rules import Attaching, Status, Update
from fencepost.protocols.log.log import Becomes
from fencepost.protocols.log.running import RunningLog
from fencepost.traces.validation.conformance import Conformance, Event, NotCovered, by_action, known, rounded
from fencepost.traces.validation.steps import Has, Step
from fencepost.traces.validation.traces import each_change_once

MOST_RUNS = 200
"""About how many runs of appends a ledger is split into."""

CHAIN = "chain"

EventKey: TypeAlias = tuple[str, int, int]
"""An event: node, incarnation, number."""

Writer: TypeAlias = tuple[str, int, str]
"""A client of the protocol: node, incarnation, actor."""


class _Ledger(msgspec.Struct):
    """Everything that the trace says about a ledger.

    ``ends``: numbers of entries at which it is said to end, or to be acknowledged up to, when it is closed. ``base``:
    the number of the append that is its first entry. ``written``, ``acknowledged``: numbers of entries.
    ``owner_closed``: the owner has closed it. ``fenced``: a leader has started to fence it. ``found_fenced``,
    ``found_closed``: its owner has found it fenced or closed by somebody else, perhaps by its own unanswered request.
    """

    owner: Writer | None = None
    base: int = 0
    written: int = 0
    acknowledged: int = 0
    last_entry: int | None = None
    owner_closed: bool = False
    fenced: bool = False
    found_fenced: bool = False
    found_closed: bool = False
    is_of_batch: bool = False
    ends: set[int] = set()

    @property
    def kept(self) -> int:
        """The number of its entries that count as written before it was fenced."""
        if self.owner_closed:
            return self.written
        if self.last_entry is not None:
            return min(self.written, max(self.last_entry + 1, self.acknowledged))
        return self.acknowledged if self.fenced or self.found_fenced else self.written


class _Own(msgspec.Struct):
    """The own ledger of a writer by its events: its number, how many entries were written and are acknowledged, and the
    number of the append that is its first entry. ``next_append``: the number that its next append must have. Both
    numbers are -1 where they are not known.
    """

    ledger: int = -1
    base: int = -1
    written: int = 0
    acknowledged: int = 0
    next_append: int = -1


class _Links(Has, frozen=True):
    """Matches the ledgers of a chain by how many there are, and the last of them; 0 if it is in no trace."""

    value: tuple[int, int | None]

    def matches(self, value: Any) -> bool:
        """Whether a value is the links of such a chain."""
        return (len(value), value[-1].ledger if value else None) == self.value

    def __str__(self) -> str:
        count, last = self.value
        return f"there are {count:,}{'' if last is None else f', and the last is of ledger {last}'}"


class _Update(msgspec.Struct):
    """An update of the chain that was sent. ``answer``: the event with its outcome. ``made``: the version that it has
    made, if any.
    """

    event: Event
    answer: Event | None = None
    made: int | None = None

    @property
    def is_unanswered(self) -> bool:
        return self.answer is None or self.answer.action.endswith("_unanswered")

    @property
    def what(self) -> Any:
        """The change that is made once, however often it is tried: a ledger or a batch is put into the log, or the log
        is sealed (None). Each trim is a change of its own.
        """
        parameters = self.event.parameters
        if self.event.action == "sends_trim":
            return self.event.place
        return tuple(parameters["ledgers"]) if "ledgers" in parameters else parameters["ledger"]


class LogConformance(Conformance):
    """One log in one run."""

    name: ClassVar[str] = "log"
    protocol: ClassVar[type[Protocol]] = RunningLog
    subjects: ClassVar[str] = f"{SUBJECT}.+"
    heeds: ClassVar[tuple[str, ...]] = ("client_creates_ledger", "client_confirms")

    def __init__(self, subject: str, events: Sequence[Event]) -> None:
        super().__init__(subject, events := each_change_once(events))
        self.writers: dict[Writer, int] = {}
        self.numbers: dict[int, int] = {}
        """The numbers of ledgers in the protocol."""
        self.ledgers: dict[int, _Ledger] = defaultdict(_Ledger)
        self.updates: dict[EventKey, _Update] = {}
        """The updates by the events that send them. ``answers``: by the events of their outcomes."""
        self.answers: dict[EventKey, _Update] = {}
        self.reads: dict[int, Event] = {}
        """For each version of the chain that was read, one event with its contents."""
        self.fences: dict[int, list[EventKey]] = defaultdict(list)
        """The events of fences of each ledger."""
        self.changed: set[int] = set()
        """The versions that withdrew batches."""
        self.sealed_before: set[EventKey] = set()
        """The look-ups of batches by clients that have found the log sealed."""
        self.untraced: dict[int, tuple[int | None, tuple[int, ...]]] = {}
        """The versions that no event of the trace has written: the last ledger before each, and the ledgers that the
        version has added. An unknown ledger has a negative id.
        """
        self.batches: dict[str, list[int]] = defaultdict(list)
        """The numbers of the batches of each writer."""
        self.attempts: set[tuple[object, ...]] = set()
        self.deleted = False
        self.written_by: dict[int, str | None] = {}
        """The versions that the metadata service has traced, and the client of a simulator, or session, that wrote
        each.
        """
        self.wrong: dict[EventKey, str] = {}
        """The events that contradict earlier ones of the same writer, and how."""
        self.own: dict[Writer, _Own] = defaultdict(_Own)
        pending: dict[Writer, _Update] = {}
        self._found_sealed: set[Writer] = set()
        self._looked_up: dict[Writer, Event] = {}
        """The last look-up of a batch by each client."""
        self._last_made: dict[tuple[str, int], int] = {}
        """The last version that each incarnation of a metadata service has traced."""
        self._confirmed: dict[tuple[str, int, str], int] = {}
        """The last confirmed entry of each ledger that a process traces itself."""
        for event in events:
            if event.subject == subject:
                self._look(event, pending)
            elif event.subject is not None and event.action in self.heeds:
                confirmed = event.parameters["lac"] if event.action == "client_confirms" else -1
                self._confirmed[event.node, event.incarnation, event.subject] = confirmed
        self._compare_writers()
        self.first = min(self.reads, default=0)
        self._infer_updates()
        for last, ledgers in self.untraced.values():
            if last is not None and ledgers:
                self.ledgers[last].fenced = True
        self.cuts = {writer: self._cuts(writer) for writer in self.writers}
        self.offsets: dict[Writer, int] = {}
        entries = 0
        for writer, cuts in self.cuts.items():
            self.offsets[writer] = entries
            entries += max(0, len(cuts) - 1)
        self.runs = entries
        self.acknowledged: dict[int, int] = {}
        """The first unacknowledged append of each ledger, among those whose steps are known."""
        self.unseen = self._unseen()

    # -- looking ahead -------------------------------------------------------------------------------------------------

    def _look(self, event: Event, pending: dict[Writer, _Update]) -> None:
        action, parameters, writer = event.action, event.parameters, _writer(event)
        if action == "metadata_written":
            version, service = parameters["version"], (event.node, event.incarnation)
            if 0 < version <= self._last_made.get(service, -1):
                self.wrong[event.place] = f"the version before it is {self._last_made[service]}"
            self._last_made[service] = version
            self.written_by[version] = parameters.get("client") or parameters.get("session")
            return
        if action in ("metadata_deleted", "log_deleted"):
            self.deleted = True
            self._last_made.clear()
            return
        if action not in _STEPS:
            return
        if action not in _BY_SOMEBODY:
            self.writers.setdefault(writer, len(self.writers))
        for each in parameters.get("ledgers", ()):
            self.ledgers[each].is_of_batch = True
        if parameters.get("writer") is not None:
            self.batches[parameters["writer"]].append(parameters["number"])
        number: int = parameters.get("ledger", -1)
        ledger = self.ledgers[number] if number is not None and number >= 0 else None
        wrong = self._contradiction(event, pending.get(writer))
        if wrong:
            self.wrong[event.place] = wrong
        match action:
            case "sends_update" | "sends_trim" | "sends_batch":
                pending[writer] = self.updates[event.place] = _Update(event)
                if action == "sends_trim":
                    self.reads.setdefault(parameters["version"], event)
            case "get_last_ledger" | "look_up_chain" | "delete_superseded_batch" | "delete_withdrawn_batch":
                self.reads.setdefault(parameters["version"], event)
                if action == "delete_withdrawn_batch":
                    self.changed.add(parameters["made"])
                elif action == "get_last_ledger":
                    (self._found_sealed.add if parameters["status"] is None else self._found_sealed.discard)(writer)
            case "look_up_batch":
                self._looked_up[writer] = event
                self.attempts.add((parameters["writer"], parameters["number"], *parameters["ledgers"]))
                if writer in self._found_sealed:
                    self.sealed_before.add(event.place)
            case "create_ledger" if ledger is not None:
                ledger.owner = writer
            case "write_entry" if ledger is not None:
                ledger.owner = writer
                ledger.base = parameters["append"] - parameters["entry"]
                ledger.written = parameters["entry"] + parameters["count"]
            case "acknowledge_entry" if ledger is not None:
                ledger.acknowledged = max(ledger.acknowledged, parameters["entry"] + 1)
            case "fence_last_ledger" if ledger is not None:
                ledger.fenced = True
                self.fences[number].append(event.place)
            case "close_own_ledger" if ledger is not None:
                ledger.owner_closed = True
                ledger.acknowledged = max(ledger.acknowledged, parameters["acknowledged"])
            case "close_own_ledger_bad_version" if ledger is not None:
                ledger.found_fenced = ledger.found_closed = True
                ledger.acknowledged = max(ledger.acknowledged, parameters["acknowledged"])
            case "ledger_fenced" if ledger is not None:
                ledger.found_fenced = True
        if ledger is not None and parameters.get("last_entry") is not None:
            ledger.ends.update((parameters["last_entry"] + 1, parameters.get("acknowledged", 0)))
            if ledger.last_entry is None:
                ledger.last_entry = parameters["last_entry"]
        if action == "abdicate":
            pending.pop(writer, None)  # it has given up the update
        elif action in _ANSWERS and writer in pending:
            update = self.answers[event.place] = pending.pop(writer)
            update.answer = event

    def _contradiction(self, event: Event, sent: _Update | None) -> str:
        """How an event contradicts what its writer told before: of its ledger, and of the update of the chain that it
        ``sent`` last and that was not answered. Empty if it does not.
        """
        action, parameters, own = event.action, event.parameters, self.own[_writer(event)]
        number: Any = parameters.get("ledger")
        if action in _ANSWERS:
            return _not_answered(event, sent)
        if sent is not None and action in _NEED_ANSWER:
            return f"the update before it, event {sent.event.seq}, is not answered"
        match action:
            case "sends_batch":
                looked_up = self._looked_up.get(_writer(event))
                if looked_up is None or looked_up.parameters["ledgers"] != parameters["ledgers"]:
                    return "it has not looked up these ledgers"
                if parameters["last"] != parameters["ledgers"][-1]:
                    return "the last of these ledgers is another one"
            case "create_ledger":
                own.ledger, own.base, own.written, own.acknowledged = number, -1, 0, 0
            case "write_entry" | "acknowledge_entry" | "close_own_ledger" | "close_own_ledger_bad_version":
                if number != own.ledger:
                    return f"the ledger of this writer is {own.ledger}" if own.ledger >= 0 else "it has no ledger"
                confirmed = self._confirmed.get((event.node, event.incarnation, str(number)))
                if action == "acknowledge_entry" and confirmed is not None and parameters["entry"] > confirmed:
                    return f"the ledger was confirmed up to entry {confirmed} by then"
                return _writes_on(event, own) if action == "write_entry" else _counts(event, own)
            case "abdicate" | "ledger_fenced":
                own.ledger = -1
            case "become_leader":
                own.ledger = own.next_append = -1
        return ""

    def _compare_writers(self) -> None:
        """Compare who has written each version by the metadata service and by the answers to updates. A session is not
        compared: a client may get another one before it writes.
        """
        made = {event.parameters["version"]: event for event in self.events if "client" in event.parameters}
        for update in self.updates.values():
            version = update.answer.parameters.get("version") if update.answer is not None else None
            if version in made and made[version].parameters["client"] != update.event.node:
                self.wrong[made[version].place] = f"version {version} was written by {update.event.node}"

    def _infer_updates(self) -> None:
        """Infer which unanswered updates were carried out: some update made every version of the chain."""
        of_version: dict[int, list[_Update]] = defaultdict(list)
        known: dict[int, _Update | None] = dict.fromkeys(self.changed)
        last = max((self.first, *self.reads, *self.changed, *self.written_by))
        for update in self.updates.values():
            if update.answer is not None and update.answer.parameters.get("version") is not None:
                update.made = update.answer.parameters["version"]
                known[update.made] = update
                last = max(last, update.made)
            elif update.is_unanswered:
                of_version[update.event.parameters["version"] + 1].append(update)
        done = {update.what for update in known.values() if update is not None}
        for version in range(self.first + 1, last + 1):
            if version in known:
                continue
            candidates, least = of_version.get(version, []), 0
            if not candidates:  # an update that should have been refused, by its version, or else an untraced client
                lost = [
                    update
                    for early, updates in of_version.items()
                    if early < version
                    for update in updates
                    if update.made is None
                ]
                candidates = [update for update in lost if update.what not in done]
                least = 3
            best = max(candidates, key=lambda update: self._evidence(update, version), default=None)
            if best is not None and self._evidence(best, version) >= least:
                best.made = version
                known[version] = best
                done.add(best.what)
        self._infer_untraced(known)

    def _infer_untraced(self, known: Mapping[int, _Update | None]) -> None:
        """Infer the changes of the versions that no event has written, from the lists that were read before and after:
        ledgers were attached.
        """
        nothing = {"length": 0, "trimmed": 0, "sealed": False, "last": None}
        read = self.reads[self.first].parameters if self.first else nothing
        length: Any = read["length"]
        trimmed, sealed, end = read["trimmed"], read["sealed"], read["last"]
        untraced: list[int] = []
        before: int | None = None
        for version in range(self.first + 1, max(self.reads, default=0) + 1):
            update = known.get(version)
            if version not in known:
                untraced.append(version)
                before = end
            elif update is not None:
                parameters = update.event.parameters
                number, trims = parameters.get("ledger"), parameters.get("trims", 0)
                added = (*parameters.get("ledgers", ()), *([] if number is None else [number]))
                sealed = sealed or not (added or trims)
                length, trimmed, end = length + len(added), trimmed + trims, added[-1] if added else end
            if version not in self.reads:
                continue
            found = self.reads[version].parameters
            count = found["length"] - length
            if untraced:
                if (found["trimmed"], found["sealed"]) != (trimmed, sealed) or count < 0:
                    if self.deleted:
                        raise NotCovered(
                            "the log was deleted, and another one of its name was made: they are told of as if they"
                            " were one"
                        )
                    raise NotCovered(
                        f"version {untraced[-1]} of the list of ledgers was written by somebody of whom the trace does"
                        " not tell"
                    )
                for each in untraced[:-1]:
                    self.untraced[each] = (None, ())
                ids = (*(-len(self.ledgers) - place - 1 for place in range(count - 1)), found["last"])
                self.untraced[untraced[-1]] = (before, ids if count else ())
                for number in self.untraced[untraced[-1]][1]:
                    self.ledgers[number].is_of_batch = True
                untraced = []
            length, trimmed, sealed, end = found["length"], found["trimmed"], found["sealed"], found["last"]

    def _evidence(self, update: _Update, version: int) -> int:
        """How strongly the trace suggests that an unanswered update has made a version."""
        parameters, by = update.event.parameters, self.written_by.get(version)
        if by is not None and by not in _names(update):
            return -2
        number, trims = parameters.get("ledger"), parameters.get("trims", 0)
        if "ledgers" in parameters:
            number = parameters["last"]
        if number is None and not trims:  # a seal, which stays
            return 3 if all(event.parameters["sealed"] for read, event in self.reads.items() if read >= version) else -1
        earlier = max((read for read in self.reads if read < version), default=None)
        later = min((read for read in self.reads if read >= version), default=None)
        if earlier is None or later is None:
            return 0
        before, after = self.reads[earlier].parameters, self.reads[later].parameters
        if number is None:
            return 1 if after["trimmed"] - before["trimmed"] >= trims else -1
        if after["last"] == number:
            return 3
        if after["length"] == before["length"] or later == version:
            return -1
        return 2 if self.fences[number] or self.ledgers[number].written else 0

    def _unseen(self) -> list[Event]:
        """The steps without an event, as events. Each has a node of its own, since it is ordered by its causes only."""
        unseen: list[Event] = []

        def add(action: str, **parameters: Any) -> EventKey:
            event = Event(f"({len(unseen) + 1})", 1, 1, action, self.subject, parameters)
            unseen.append(event)
            return event.place

        if self.first:
            add("log_is_older")
        for update in self.updates.values():
            if update.is_unanswered and update.made is not None:
                add("late_update", by=update.event.place, version=update.made)
        for number, ledger in self.ledgers.items():
            if ledger.found_fenced:  # perhaps before any leader in the trace has
                self.fences[number].append(add("ledger_is_fenced", ledger=number))
            if ledger.found_closed and not ledger.owner_closed:
                add("ledger_is_closed", ledger=number, last_entry=ledger.last_entry)
        for version, (last, ledgers) in self.untraced.items():
            if not ledgers:
                add("delete_withdrawn_batch", made=version, ledgers=())
                continue
            if last is not None and not self.ledgers[last].is_of_batch and not self.ledgers[last].owner_closed:
                self.fences[last].append(add("ledger_is_fenced", ledger=last, attaches=version))
                end = self.ledgers[last].last_entry
                add(
                    "ledger_is_closed",
                    ledger=last,
                    last_entry=self.ledgers[last].kept - 1 if end is None else end,
                    attaches=version,
                )
            place = add("batch_is_attached", version=version, ledgers=ledgers, last=last)
            if last is not None:
                self.fences[last].append(place)
        return unseen

    def _cuts(self, writer: Writer) -> list[int]:
        """The numbers at which the appends of a writer are split into runs."""
        needed: set[int] = set()
        ledgers = {
            number: ledger for number, ledger in self.ledgers.items() if ledger.owner == writer and ledger.written
        }
        for ledger in ledgers.values():
            ends = (0, ledger.kept, ledger.written, ledger.acknowledged, *ledger.ends)
            needed.update(
                ledger.base + (end if end == ledger.acknowledged else min(end, ledger.written)) for end in ends
            )
        wished: dict[int, set[int]] = defaultdict(set)
        for event in self.events:
            if event.action == "write_entry" and _writer(event) == writer:
                wished[event.parameters["ledger"]].add(event.parameters["append"])
            elif event.action == "acknowledge_entry" and _writer(event) == writer:
                number = event.parameters["ledger"]
                wished[number].add(self.ledgers[number].base + event.parameters["entry"] + 1)
        for cuts in wished.values():
            in_order = sorted(cuts)
            needed.update(in_order[:: len(in_order) // MOST_RUNS + 1])
        return sorted(needed)

    # -- the protocol --------------------------------------------------------------------------------------------------

    def constants(self) -> Mapping[str, Any]:
        """See :class:`Conformance`."""
        older = self.reads[self.first].parameters if self.first else None
        self.older = 0 if older is None else older["length"] - older["trimmed"]
        if older is not None and older["last"] is not None:
            self.numbers[older["last"]] = self.older
        return {
            "clients": rounded(max(1, len(self.writers))),
            "next_ledger_limit": rounded(self.older + len(self.ledgers) + 2),
            "entries": rounded(self.runs + 1),
            "remembers": False,
            "most_attempts": len(self.attempts) and rounded(len(self.attempts)),
            "batch_writers": rounded(len(self.batches)),
            "batch_numbers": rounded(max((len({*numbers}) for numbers in self.batches.values()), default=0)),
        }

    def hidden(self, protocol: Protocol) -> Iterable[Step]:
        """Nothing: these traces report every step."""
        return ()

    def bind(self, protocol: Protocol) -> None:
        """See :class:`Conformance`."""
        assert isinstance(protocol, RunningLog)
        self.c = {writer: protocol.clients[place] for writer, place in self.writers.items()}
        self.acknowledged.clear()
        spare = self.older
        for event in sorted([*self.events, *self.unseen], key=lambda event: event.action != "create_ledger"):
            if event.subject != self.subject or event.action not in _STEPS:
                continue
            for number in (event.parameters.get("ledger"), *event.parameters.get("ledgers", ())):
                if number is not None and number not in self.numbers:
                    spare += 1
                    self.numbers[number] = spare
        self.writers_of_batches = {name: place for place, name in enumerate(self.batches)}
        self.ranks = {name: sorted({*numbers}) for name, numbers in self.batches.items()}

    def names(self) -> Mapping[str, str]:
        """See :class:`Conformance`."""
        return {str(self.c[writer]): " ".join(map(str, writer)) for writer in self.writers}

    def is_untouched(self) -> bool:
        """See :class:`Conformance`. The log was created, and perhaps deleted."""
        return not self.updates and not self.reads

    def in_order(self) -> Sequence[Event]:
        """See :class:`Conformance`. Steps without an event come last: each is taken as soon as its causes are."""
        return [*self.events, *self.unseen]

    def steps(self, event: Event) -> Iterable[Step]:
        """See :class:`Conformance`."""
        if event.place in self.wrong:
            return (Step(event.action, wrong=self.wrong[event.place]),)
        steps = _STEPS.get(event.action) if event.subject == self.subject else None
        return () if steps is None else steps(self, event)

    def _who(self, event: Event) -> tuple[tuple[str, ModelValue], ...]:
        return (("c", self.c[_writer(event)]),)

    def _is(self, event: Event, status: Status) -> tuple[tuple[Any, ...], Any]:
        """The condition that a client has this status."""
        return (("client", self.c[_writer(event)], "status"), status)

    def _about(self, event: Event) -> tuple[tuple[tuple[Any, ...], Any], ...]:
        """The condition that the client is busy with the ledger that the event names, if it names one."""
        number = event.parameters["ledger"]
        return () if number is None else ((("client", self.c[_writer(event)], "ledger"), self.numbers[number]),)

    def _chain_is(self, event: Event) -> tuple[tuple[tuple[Any, ...], Any], ...]:
        """The condition that the chain is as the event has read it."""
        seen = event.parameters
        last = None if seen["last"] is None else self.numbers.get(seen["last"], 0)
        return (
            (("version",), seen["version"]),
            (("chain", "trimmed"), seen["trimmed"]),
            (("chain", "sealed"), seen["sealed"]),
            (("chain", "links"), _Links((seen["length"] - seen["trimmed"], last))),
        )

    # -- becoming and being leader -------------------------------------------------------------------------------------

    def _alone(self, event: Event) -> Iterator[Step]:
        yield Step(event.action, self._who(event), before=self._about(event) if "ledger" in event.parameters else ())

    def _reads_chain(self, event: Event) -> Iterator[Step]:
        after: tuple[tuple[tuple[Any, ...], Any], ...]
        if event.parameters["status"] is None:
            after = ((("client", self.c[_writer(event)], "ended"), True),)
        else:
            status = known(Status, event, "status")
            after = (self._is(event, _LIKE.get(status, status)),)
        reads = (CHAIN, event.parameters["version"])
        yield Step(event.action, self._who(event), reads=reads, before=self._chain_is(event), after=after)

    def _looks_up(self, event: Event) -> Iterator[Step]:
        parameters, c = event.parameters, self.c[_writer(event)]
        update, seals = known(Update, event, "update"), parameters["ledger"] is None
        if update is Update.SEALED or (update is Update.DONE and seals):
            after = ((("client", c, "ended"), True),)
        else:
            after = (self._is(event, _AFTER_LOOKING_UP[update, seals]),)
        before = (*self._about(event), *self._chain_is(event))
        yield Step(event.action, self._who(event), reads=(CHAIN, parameters["version"]), before=before, after=after)

    def _fences(self, event: Event) -> Iterator[Step]:
        """A leader starts to fence a ledger. Entries that count as written came before that, and so did the close by
        its owner, if any.
        """
        number = event.parameters["ledger"]
        if self.ledgers[number].owner_closed:
            yield Step(None, receives=("closed", number, event.place))
        else:
            yield from self._after_entries(event, number)
        yield Step(event.action, self._who(event), before=self._about(event))

    def _after_entries(self, event: Event, number: int) -> Iterator[Step]:
        ledger = self.ledgers[number]
        if ledger.owner is not None and ledger.kept:
            yield Step(None, receives=("written", number, event.place))

    def _closes_last(self, event: Event) -> Iterator[Step]:
        number, last = event.parameters["ledger"], event.parameters["last_entry"]
        if last is None:
            raise NotCovered(f"ledger {number} of the log was deleted by somebody")
        wrong, ledger = "", self.ledgers[number]
        if ledger.owner is not None and not -1 <= last < ledger.written:
            wrong = f"{ledger.written:,} entries of the ledger were written"
        elif ledger.owner is None and last != ledger.last_entry:
            wrong = f"the ledger was closed at entry {ledger.last_entry}"
        picks = (self._runs_to(number, last),)
        yield Step(event.action, self._who(event), picks, before=self._about(event), wrong=wrong)

    def _runs_to(self, number: int, last: int) -> int:
        """The last entry of a ledger, as a number of runs."""
        ledger = self.ledgers[number]
        if ledger.owner is None or not ledger.written:
            return -1
        cuts = self.cuts[ledger.owner]
        end = ledger.base + min(last + 1, ledger.written)
        return bisect_left(cuts, end) - bisect_left(cuts, ledger.base) - 1

    def _unseen_fence(self, event: Event) -> Iterator[Step]:
        number = event.parameters["ledger"]
        yield from self._after_entries(event, number)
        attaches = event.parameters.get("attaches")
        sends = () if attaches is None else (("fenced", attaches),)
        yield Step(event.action, (("ledger", self.numbers[number]),), sends=sends)

    def _unseen_close(self, event: Event) -> Iterator[Step]:
        number = event.parameters["ledger"]
        last = self._runs_to(number, event.parameters["last_entry"])
        attaches = event.parameters.get("attaches")
        about = (("ledger", self.numbers[number]),)
        if attaches is None:
            yield Step(event.action, about, (last,))
        else:
            yield Step(event.action, about, (last,), receives=("fenced", attaches), sends=(("ended", attaches),))

    def _is_older(self, event: Event) -> Iterator[Step]:
        read = self.reads[self.first].parameters
        about = (
            ("version", self.first),
            ("links", self.older),
            ("trimmed", read["trimmed"]),
            ("sealed", read["sealed"]),
        )
        yield Step(event.action, about, writes=(CHAIN, self.first))

    # -- updates of the chain ------------------------------------------------------------------------------------------

    def _creates(self, event: Event) -> Iterator[Step]:
        yield Step(event.action, self._who(event), (self.numbers[event.parameters["ledger"]],))

    def _sends(self, event: Event) -> Iterator[Step]:
        """An update is sent. If the trace has no answer to it, its client had given it up."""
        update = self.updates[event.place]
        if update.answer is None and update.made is not None:
            if event.action == "sends_batch":
                action = "attach_batch_unanswered"
            else:
                action = "append_ledger_unanswered" if event.parameters["ledger"] is not None else "seal_unanswered"
            yield self._unanswered(event, action, update)
        elif event.action == "sends_batch":
            c = self.c[_writer(event)]
            yield Step(None, before=((("attachment", c, "version"), event.parameters["version"]),))
        else:
            of_version = (("client", self.c[_writer(event)], "version"), event.parameters["version"])
            seals = event.parameters["ledger"] is None
            status = Status.PENDING_CREATE_LEDGER if seals else Status.PENDING_APPEND_LEDGER
            yield Step(None, before=(of_version, self._is(event, status), *self._about(event)))

    def _sends_trim(self, event: Event) -> Iterator[Step]:
        yield Step(None, reads=(CHAIN, event.parameters["version"]), before=self._chain_is(event))

    def _unanswered(self, event: Event, action: str, update: _Update) -> Step:
        becomes = Becomes.LOST if update.made is None else Becomes.LATE
        sends = () if update.made is None else (("late", update.event.place),)
        return Step(action, self._who(event), (becomes,), sends=sends)

    def _is_unanswered(self, event: Event) -> Iterator[Step]:
        step = self._unanswered(event, event.action, self.answers[event.place])
        if "status" in event.parameters:
            step.after = (self._is(event, known(Status, event, "status")),)
            step.before = self._about(event)
        yield step

    def _is_done(self, event: Event) -> Iterator[Step]:
        version = event.parameters["version"]
        after = () if event.action == "seal" else (self._is(event, known(Status, event, "status")),)
        yield _change(event.action, version, self._who(event), after=after, before=self._about(event))

    def _is_refused(self, event: Event) -> Iterator[Step]:
        after = (self._is(event, known(Status, event, "status")),)
        yield Step(event.action, self._who(event), before=self._about(event), after=after)

    def _is_late(self, event: Event) -> Iterator[Step]:
        by, version = event.parameters["by"], event.parameters["version"]
        sent = self.updates[by].event
        if sent.action == "sends_trim":
            yield self._trim(sent, version)
        else:
            yield _change("late_update", version, self._who(sent), receives=("late", by))

    def _trims(self, event: Event) -> Iterator[Step]:
        yield self._trim(self.answers[event.place].event, event.parameters["version"])

    def _trim(self, sent: Event, version: int) -> Step:
        return _change("trim", version, picks=(sent.parameters["trims"],))

    # -- batches -------------------------------------------------------------------------------------------------------

    def _some(self, ledgers: Sequence[int]) -> tuple[int, ...]:
        return (len(ledgers), *[self.numbers[ledger] for ledger in ledgers])

    def _batch(self, event: Event) -> tuple[int, int]:
        """The writer and the number of a batch in the protocol."""
        writer, number = event.parameters["writer"], event.parameters["number"]
        return (0, 0) if writer is None else (self.writers_of_batches[writer], self.ranks[writer].index(number))

    @property
    def _has_untraced(self) -> bool:
        """Whether the log may have batches that no event of the trace has attached."""
        return self.first > 0 or any(ledgers for _, ledgers in self.untraced.values())

    def _looks_up_batch(self, event: Event) -> Iterator[Step]:
        """A client looks up whether its batch may be attached."""
        parameters, c = event.parameters, self.c[_writer(event)]
        found = known(Attaching, event, "found")
        if event.place in self.sealed_before:
            is_over = found in (Attaching.SEALED, Attaching.THERE)
            yield Step(None, after=((("client", c, "ended"), is_over),))
            return
        is_remembered = parameters["writer"] is not None
        yield Step(
            "write_batch", self._who(event), (is_remembered, *self._batch(event), *self._some(parameters["ledgers"]))
        )
        picks = (found is Attaching.THERE and self._has_untraced, found is Attaching.WITHDRAWN)
        after = (
            (("attachment", c, "version"), parameters["version"])
            if found is Attaching.ATTACH
            else (("attachment", c, "attempt"), 0)
        )
        before = ((("client", c, "version"), parameters["version"]),)
        yield Step(event.action, self._who(event), picks, before=before, after=(after,))

    def _attaches(self, event: Event) -> Iterator[Step]:
        last = self.answers[event.place].event.parameters["last"]
        yield _change(event.action, event.parameters["version"], self._who(event), (self.numbers[last],))

    def _withdraws(self, event: Event) -> Iterator[Step]:
        parameters = event.parameters
        yield _change(event.action, parameters["made"], picks=self._some(parameters["ledgers"]))

    def _deletes_superseded(self, event: Event) -> Iterator[Step]:
        if not self._has_untraced:
            picks = (*self._batch(event), *self._some(event.parameters["ledgers"]))
            reads = (CHAIN, event.parameters["version"])
            yield Step(event.action, (), picks, reads=reads, before=self._chain_is(event))

    def _untraced_batch(self, event: Event) -> Iterator[Step]:
        """Ledgers were attached by an untraced client, which has had the last one closed before."""
        version, last = event.parameters["version"], event.parameters["last"]
        receives: tuple[Any, ...] | None = None
        if last is not None and self.ledgers[last].owner_closed:
            receives = ("closed", last, event.place)
        elif last is not None and not self.ledgers[last].is_of_batch:
            receives = ("ended", version)
        yield _change(event.action, version, picks=self._some(event.parameters["ledgers"]), receives=receives)

    # -- entries -------------------------------------------------------------------------------------------------------

    def _writes(self, event: Event) -> Iterator[Step]:
        """The runs that begin here. Runs that do not count as written are left out."""
        parameters, writer = event.parameters, _writer(event)
        number, first = parameters["ledger"], parameters["append"]
        ledger, cuts = self.ledgers[number], self.cuts[writer]
        end = min(first + parameters["count"], ledger.base + ledger.kept)
        begun = cuts[bisect_left(cuts, first) : bisect_left(cuts, end)]
        if not begun:
            yield Step(None, after=(self._is(event, Status.HAS_OPEN_LEDGER),))
            return
        last = cuts[bisect_left(cuts, ledger.base + ledger.kept) - 1]
        here = (("client", self.c[writer], "ledger"), self.numbers[number])
        for run in begun:
            sends = tuple(("written", number, place) for place in self.fences[number]) if run == last else ()
            entry = self.offsets[writer] + bisect_left(cuts, run) + 1
            yield Step(event.action, self._who(event), (entry,), after=(here,), sends=sends)

    def _acknowledges(self, event: Event) -> Iterator[Step]:
        """The runs that end here, or ended before."""
        ledger, writer = self.ledgers[event.parameters["ledger"]], _writer(event)
        cuts = self.cuts[writer]
        end = ledger.base + event.parameters["entry"] + 1
        before = self.acknowledged.get(event.parameters["ledger"], ledger.base)
        for _ in range(bisect_right(cuts, end) - bisect_right(cuts, before)):
            yield Step(event.action, self._who(event))
        self.acknowledged[event.parameters["ledger"]] = max(before, end)

    def _closes_own(self, event: Event) -> Iterator[Step]:
        parameters, number = event.parameters, event.parameters["ledger"]
        picks = (self._runs_to(number, parameters["last_entry"]),) if event.action == "close_own_ledger" else ()
        confirmed = (
            ("ledgers", self.numbers[number], "confirmed"),
            self._runs_to(number, parameters["acknowledged"] - 1) + 1,
        )
        sends = (
            tuple(("closed", number, place) for place in self.fences[number])
            if event.action == "close_own_ledger"
            else ()
        )
        yield Step(event.action, self._who(event), picks, sends=sends, after=(confirmed,))


def _change(
    action: str,
    version: int,
    parameters: Any = (),
    picks: Any = (),
    after: Any = (),
    before: Any = (),
    receives: Any = None,
) -> Step:
    """A step that makes a version of the list of ledgers."""
    after = (*after, (("version",), version))
    return Step(action, parameters, picks, receives=receives, writes=(CHAIN, version), after=after, before=before)


def _names(update: _Update) -> tuple[Any, ...]:
    """The names by which a metadata service may know the client that sent an update."""
    return update.event.node, update.event.parameters.get("session")


def _not_answered(event: Event, sent: _Update | None) -> str:
    """Why an event is no answer to the update that its client sent last; empty if it is one."""
    kind = "trim" if event.action.startswith("trim") else "batch" if "batch" in event.action else "update"
    if sent is None or sent.event.action != f"sends_{kind}":
        return "it answers no update that its client has sent"
    asked = sent.event.parameters
    if kind == "update" and asked["ledger"] != event.parameters["ledger"]:
        return f"the update that it answers, event {sent.event.seq}, is of ledger {asked['ledger']}"
    return ""


def _writes_on(event: Event, own: _Own) -> str:
    """Why a writer cannot write these entries next; empty if it can."""
    entry, append, count = (event.parameters[name] for name in ("entry", "append", "count"))
    if entry != own.written:
        return f"the next entry of the ledger is {own.written}"
    if own.base < 0:
        if append != own.next_append >= 0:
            return f"the next append is {own.next_append}"
        own.base = append
    elif append != own.base + entry:
        return f"entry {entry} of the ledger is append {own.base + entry}"
    own.written, own.next_append = entry + count, append + count
    return ""


def _counts(event: Event, own: _Own) -> str:
    """Why entries of a writer's ledger cannot be acknowledged, or the ledger cannot end, as an event tells; empty if
    they can.
    """
    if event.action == "acknowledge_entry":
        last, acknowledged = event.parameters["entry"], event.parameters["entry"] + 1
        if acknowledged <= own.acknowledged:
            return f"{own.acknowledged:,} entries of the ledger are acknowledged already"
    else:
        last, acknowledged = event.parameters["last_entry"], event.parameters["acknowledged"]
        if acknowledged < own.acknowledged:
            return f"{own.acknowledged:,} entries of the ledger are acknowledged already"
    if not -1 <= last < own.written or acknowledged > own.written:
        return f"{own.written:,} entries of the ledger were written"
    own.acknowledged = acknowledged
    if event.action != "acknowledge_entry":
        own.ledger = -1
        own.next_append = own.base + acknowledged if own.base >= 0 else own.next_append
    return ""


def _writer(event: Event) -> Writer:
    return (event.node, event.incarnation, event.actor)


_LIKE = {Status.PENDING_APPEND_LEDGER: Status.PENDING_CREATE_LEDGER}
"""Statuses that are one status in the protocol. A leader that seals the log needs no ledger: in the protocol it has the
status in which it would create one.
"""

_AFTER_LOOKING_UP = {
    (Update.DONE, False): Status.HAS_OPEN_LEDGER,
    (Update.TRY_AGAIN, False): Status.PENDING_APPEND_LEDGER,
    (Update.TRY_AGAIN, True): Status.PENDING_CREATE_LEDGER,
    (Update.LOST, False): Status.WAITING,
    (Update.LOST, True): Status.WAITING,
}

_ANSWERS = (
    "append_ledger",
    "append_ledger_bad_version",
    "append_ledger_unanswered",
    "seal",
    "seal_bad_version",
    "seal_unanswered",
    "trim",
    "trim_bad_version",
    "trim_unanswered",
    "attach_batch",
    "attach_batch_bad_version",
    "attach_batch_unanswered",
)

_NEED_ANSWER = ("sends_update", "sends_batch", "get_last_ledger", "look_up_chain", "look_up_batch")
"""The actions before which a client that has sent an update has its answer, or steps down."""

_BY_SOMEBODY = (
    "sends_trim",
    "trim",
    "trim_bad_version",
    "trim_unanswered",
    "withdraw_batch",
    "delete_withdrawn_batch",
    "delete_superseded_batch",
)
"""The actions of clients that do not lead."""

_STEPS: Mapping[str, Callable[[LogConformance, Event], Iterable[Step]]] = by_action(
    {
        "become_leader abdicate ledger_fenced attach_batch_bad_version": LogConformance._alone,
        "get_last_ledger": LogConformance._reads_chain,
        "look_up_chain": LogConformance._looks_up,
        "fence_last_ledger": LogConformance._fences,
        "close_last_ledger": LogConformance._closes_last,
        "create_ledger": LogConformance._creates,
        "sends_update sends_batch": LogConformance._sends,
        "append_ledger seal": LogConformance._is_done,
        "append_ledger_bad_version seal_bad_version": LogConformance._is_refused,
        "append_ledger_unanswered seal_unanswered attach_batch_unanswered": LogConformance._is_unanswered,
        "sends_trim": LogConformance._sends_trim,
        "trim_bad_version trim_unanswered withdraw_batch": lambda self, event: (),
        "trim": LogConformance._trims,
        "look_up_batch": LogConformance._looks_up_batch,
        "attach_batch": LogConformance._attaches,
        "delete_withdrawn_batch": LogConformance._withdraws,
        "delete_superseded_batch": LogConformance._deletes_superseded,
        "batch_is_attached": LogConformance._untraced_batch,
        "write_entry": LogConformance._writes,
        "acknowledge_entry": LogConformance._acknowledges,
        "close_own_ledger close_own_ledger_bad_version": LogConformance._closes_own,
        "log_is_older": LogConformance._is_older,
        "late_update": LogConformance._is_late,
        "ledger_is_fenced": LogConformance._unseen_fence,
        "ledger_is_closed": LogConformance._unseen_close,
    }
)
