"""Offloading: a closed ledger of a log moves from the bookies to an object store, while readers read it.

The decisions are those of :mod:`fencepost.log.offload_rules`, which the offloaders of logs run. There is one ledger,
which is closed, and its place in the list of the log. A further ledger would only change the version of the list, as a
trim and a withdrawal do.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, ClassVar

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Record,
    action,
    assumption,
    configuration,
    constant,
    invariant,
    leads_to,
    model_values,
    per_key,
    require,
    state,
    strong,
    weak,
)
from fencepost.log import offload_rules as rules
from fencepost.log.offload_rules import Noted, Protections
from fencepost.protocols.protections import switched_on
from fencepost.protocols.types import Types, typed


class Object(enum.Enum):
    """What the object store has of an attempt."""

    NONE = "none"
    PART = "part"
    """Something that is not the whole ledger: some of its files are missing or damaged."""
    WHOLE = "whole"


class Step(enum.Enum):
    """How far an offloader is."""

    IDLE = "idle"
    WRITING = "writing"
    FINISHING = "finishing"
    """Some of the object is written."""
    NOTING = "noting"
    """The record is written last. Only without ``records_precede_objects``."""
    VERIFYING = "verifying"
    READING = "reading"
    CHECKING = "checking"
    """It has read the list, and reads its record."""
    UPDATING = "updating"
    DELETING = "deleting"


class Offloader(Record):
    """A process that copies the ledger: its attempt, and whether the list is still as it has read it."""

    step: Step = Step.IDLE
    attempt: int = 0
    is_current: bool = False
    may_name: bool = False
    """Whether the list that it has read has the ledger, and names no object."""


class Sweep(enum.Enum):
    """How far the remover of objects is."""

    IDLE = "idle"
    WITHDRAWN = "withdrawn"
    """The record is withdrawn."""
    LISTED = "listed"
    """It looks for objects without a record, and has listed the objects, or read the records."""
    REMOVING = "removing"
    FORGETTING = "forgetting"
    """The object is removed, and its record is not."""


class Sweeper(Record):
    """The process that removes objects: which attempt's object it is at."""

    step: Sweep = Sweep.IDLE
    attempt: int = 0


class Reading(enum.Enum):
    """How far the reader is."""

    BEGINS = "begins"
    TRIES = "tries"
    """It has read the list."""
    FAILED = "failed"
    """The ledger was not where the list said."""
    DONE = "done"
    TRIMMED = "trimmed"
    LOST = "lost"
    """It takes the ledger for lost."""


class Reader(Record):
    """A reader of the log: the attempt whose object it reads; 0: it asks the bookies."""

    step: Reading = Reading.BEGINS
    source: int = 0


def _attempts(protocol: LogOffload) -> Iterable[int]:
    return range(1, protocol.attempts + 1)


TYPES: Types = {
    "offloader.attempt": lambda protocol, attempt: 0 <= attempt <= protocol.attempts,
    "sweeper.attempt": lambda protocol, attempt: 0 <= attempt <= protocol.attempts,
    "reader.source": lambda protocol, attempt: 0 <= attempt <= protocol.attempts,
    "named": lambda protocol, attempt: 0 <= attempt <= protocol.attempts,
    "begun": lambda protocol, attempt: 0 <= attempt <= protocol.attempts,
    "records": lambda protocol, record: type(record) is Noted,
    "objects": lambda protocol, held: type(held) is Object,
    "is_in_log": lambda protocol, held: type(held) is bool,
    "is_on_bookies": lambda protocol, held: type(held) is bool,
    "crashes": lambda protocol, crashes: 0 <= crashes <= protocol.max_crashes,
    "damages": lambda protocol, damages: 0 <= damages <= protocol.max_damages,
}


def _without(violated: str, doc: str, **constants: Any) -> Any:
    return configuration(violated, doc, **constants)


READABLE = "what_is_not_trimmed_is_readable"
KEPT = "no_named_object_is_lost"
FOUND = "no_reader_takes_it_for_lost"
ENDS = "orphans_end"


class LogOffload(Protocol):
    """A closed ledger of a log is offloaded by several processes at once, read, and trimmed."""

    name: ClassVar[str] = "log-offload"

    offloaders: tuple[ModelValue, ...] = model_values("o", 2, "the processes that offload", symmetric=True)
    attempts: int = constant(2, "how often somebody begins to copy the ledger")
    max_crashes: int = constant(1, "how many processes end before their time")
    max_damages: int = constant(0, "how often the object store keeps something else than was written")
    may_trim: bool = constant(True, "whether the log is trimmed")

    objects_are_own: bool = constant(True, "no two attempts write to one object")
    records_precede_objects: bool = constant(True, "an object is recorded before it is written")
    objects_are_verified: bool = constant(True, "an object is read back before the list names it")
    updates_are_conditional: bool = constant(True, "the list is replaced only if nobody else has changed it")
    list_precedes_deletion: bool = constant(True, "the list names an object before the ledger is deleted")
    withdrawals_are_noticed: bool = constant(True, "an offloader whose record is withdrawn gives up")
    withdrawals_raise_the_version: bool = constant(True, "updates under way fail after a withdrawal")
    named_objects_are_kept: bool = constant(True, "a withdrawn object that the list names is not removed")
    trims_precede_removal: bool = constant(True, "an object is removed once the list does not name it")
    objects_are_listed_first: bool = constant(True, "objects without a record are looked for among the objects first")
    readers_look_again: bool = constant(True, "a reader that does not find the ledger reads the list again")
    strays_are_looked_for: bool = constant(True, "somebody looks for objects without a record")

    offloader: PerKey[ModelValue, Offloader] = per_key(offloaders, Offloader)
    sweeper: Sweeper = state(Sweeper, held_by="sweeper")
    reader: Reader = state(Reader, held_by="reader")

    is_in_log: bool = state(True, held_by="zk")
    named: int = state(0, held_by="zk")
    """The attempt whose object the list names; 0: none."""
    records: PerKey[int, Noted] = state(per_key(_attempts, Noted.NOT), held_by="zk")
    begun: int = state(0, held_by="zk")
    """How many attempts were begun."""
    is_on_bookies: bool = state(True, held_by="bookies")
    objects: PerKey[int, Object] = state(per_key(_attempts, Object.NONE), held_by="store")
    crashes: int = state(0)
    damages: int = state(0)

    configurations = {
        "default": configuration(doc="two offloaders, one crash, and a trim"),
        "small": configuration(offloaders=1, attempts=1, doc="one attempt"),
        "damaged-objects": configuration(
            offloaders=1, max_damages=1, doc="one offloader, and the object store keeps something else once"
        ),
        "shared-objects": _without(
            KEPT, "two attempts write to one object: one damages what the other has offloaded",
            objects_are_own=False, may_trim=False,
        ),
        "recorded-late": _without(
            KEPT, "an object without a record is taken for an orphan, and then the list names it",
            records_precede_objects=False, max_crashes=0, may_trim=False,
        ),
        "not-verified": _without(
            KEPT, "the object store has kept something else, and the ledger is deleted",
            objects_are_verified=False, max_damages=1, may_trim=False,
        ),
        "last-writer-wins": _without(
            KEPT, "an update that was based on an older list names an object that was removed meanwhile",
            updates_are_conditional=False, max_crashes=0,
        ),
        "deleted-early": _without(
            READABLE, "the ledger is deleted before the list names its object",
            list_precedes_deletion=False, may_trim=False,
        ),
        "withdrawal-not-noticed": _without(
            KEPT, "the list names an object that was withdrawn and removed",
            withdrawals_are_noticed=False, max_crashes=0, may_trim=False,
        ),
        "version-not-raised": _without(
            KEPT, "an update that was under way when the object was withdrawn succeeds later",
            withdrawals_raise_the_version=False, max_crashes=0, may_trim=False,
        ),
        "named-object-removed": _without(
            KEPT, "the object that is withdrawn is in the list already",
            named_objects_are_kept=False, max_crashes=0, may_trim=False,
        ),
        "removed-before-trim": _without(
            KEPT, "a trim removes the object first, and the list still names it",
            trims_precede_removal=False, max_crashes=0,
        ),
        "records-read-first": _without(
            KEPT, "a record and its object come between the look at the records and that at the objects",
            objects_are_listed_first=False, max_crashes=0, may_trim=False,
        ),
        "reader-looks-once": _without(
            FOUND, "the ledger moves to the object store between the reader's look at the list and its read",
            readers_look_again=False, max_crashes=0, may_trim=False,
        ),
    }  # fmt: skip

    @assumption
    def somebody_can_begin(self) -> bool:
        """There is at least one attempt."""
        return self.attempts >= 1

    @property
    def protections(self) -> Protections:
        """The protections that are on."""
        return switched_on(self, Protections)

    @property
    def names(self) -> int | None:
        """The attempt whose object the list names."""
        return self.named or None

    def _list_changes(self) -> None:
        """Nobody has the current version any more."""
        for o in self.offloaders:
            self.offloader[o].is_current = False

    # -- an offloader --------------------------------------------------------------------------------------------------

    def _at(self, o: ModelValue, step: Step) -> Offloader:
        me = self.offloader[o]
        require(me.step is step)
        return me

    @action(o=offloaders)
    def offloader_begins(self, o: ModelValue) -> None:
        """It reads the list, which names no object, and records an attempt."""
        me = self._at(o, Step.IDLE)
        require(self.begun < self.attempts and self.is_in_log and not self.named)
        self.begun += 1
        me.attempt = self.begun if self.objects_are_own else 1
        if self.records_precede_objects:
            self.records[me.attempt] = Noted.BEGUN
        me.step = Step.WRITING

    @action(o=offloaders)
    def offloader_writes(self, o: ModelValue) -> None:
        """It writes the first files of the object."""
        me = self._at(o, Step.WRITING)
        self.objects[me.attempt] = Object.PART
        me.step = Step.FINISHING

    @action(o=offloaders)
    def offloader_finishes(self, o: ModelValue) -> None:
        """It writes the last file of the object. If a remover was there meanwhile, the others are missing."""
        me = self._at(o, Step.FINISHING)
        if self.objects[me.attempt] is Object.PART:
            self.objects[me.attempt] = Object.WHOLE
        else:
            self.objects[me.attempt] = Object.PART
        me.step = self._written()

    @action(o=offloaders)
    def store_damages_object(self, o: ModelValue) -> None:
        """It writes the last file, and the object store keeps something else."""
        me = self._at(o, Step.FINISHING)
        require(self.damages < self.max_damages)
        self.damages += 1
        self.objects[me.attempt] = Object.PART
        me.step = self._written()

    def _written(self) -> Step:
        return Step.VERIFYING if self.records_precede_objects else Step.NOTING

    @action(o=offloaders)
    def offloader_notes(self, o: ModelValue) -> None:
        """Without ``records_precede_objects``, it records the object now."""
        me = self._at(o, Step.NOTING)
        self.records[me.attempt] = Noted.BEGUN
        me.step = Step.VERIFYING

    @action(o=offloaders)
    def offloader_verifies(self, o: ModelValue) -> None:
        """It reads the object back. If that is not what was written, it gives up."""
        me = self._at(o, Step.VERIFYING)
        if self.objects[me.attempt] is Object.WHOLE or not self.objects_are_verified:
            me.step = Step.READING
        else:
            self._gives_up(o)

    @action(o=offloaders)
    def offloader_reads_list(self, o: ModelValue) -> None:
        """It reads the list, with its version."""
        me = self._at(o, Step.READING)
        me.is_current = True
        me.may_name = rules.may_name(self.is_in_log, self.names, Noted.BEGUN)
        me.step = Step.CHECKING

    @action(o=offloaders)
    def offloader_reads_record(self, o: ModelValue) -> None:
        """It reads its record, and goes on if the list that it has read may name its object."""
        me = self._at(o, Step.CHECKING)
        if me.may_name and rules.may_name(True, None, self.records[me.attempt], self.protections):
            me.step = Step.UPDATING
        else:
            self._gives_up(o)

    @action(o=offloaders)
    def offloader_updates_list(self, o: ModelValue) -> None:
        """It replaces the list that it has read by one that names its object."""
        me = self._at(o, Step.UPDATING)
        require(rules.takes_update(0, 0 if me.is_current else 1, self.protections))
        self.is_in_log, self.named = True, me.attempt
        self._list_changes()
        me.step = Step.DELETING

    @action(o=offloaders)
    def offloader_is_refused(self, o: ModelValue) -> None:
        """Somebody has changed the list. It reads it again."""
        me = self._at(o, Step.UPDATING)
        require(not me.is_current)
        me.step = Step.READING

    @action(o=offloaders)
    def ledger_is_deleted(self, o: ModelValue) -> None:
        """An offloader deletes the ledger, at the end of its attempt, or because it finds the object in the list."""
        me = self.offloader[o]
        require(self.is_on_bookies)
        require(rules.may_delete_ledger(self.names, self.protections))
        if self.list_precedes_deletion:
            require(me.step in (Step.DELETING, Step.IDLE))
        else:
            require(me.step is Step.READING)
        self.is_on_bookies = False
        if me.step is Step.DELETING:
            self._gives_up(o)

    @action(o=offloaders)
    def offloader_waits_no_longer(self, o: ModelValue) -> None:
        """It leaves the ledger on the bookies for now, or somebody else has deleted it."""
        self._at(o, Step.DELETING)
        self._gives_up(o)

    def _gives_up(self, o: ModelValue) -> None:
        self.offloader[o] = Offloader()

    @action(o=offloaders)
    def offloader_crashes(self, o: ModelValue) -> None:
        """It ends, and knows nothing any more."""
        require(self.crashes < self.max_crashes and self.offloader[o].step is not Step.IDLE)
        self.crashes += 1
        self._gives_up(o)

    # -- a trim --------------------------------------------------------------------------------------------------------

    @action
    def log_is_trimmed(self) -> None:
        """The ledger leaves the list, on condition of its version."""
        require(self.may_trim and self.is_in_log)
        self.is_in_log = False
        self.named = 0
        self._list_changes()

    @action
    def trimmed_ledger_is_deleted(self) -> None:
        """The bookies lose the trimmed ledger."""
        require(not self.is_in_log and self.is_on_bookies)
        self.is_on_bookies = False

    @action
    def trim_removes_object_first(self) -> None:
        """Without ``trims_precede_removal``, a trim begins with the object."""
        require(self.may_trim and not self.trims_precede_removal and self.is_in_log and self.named > 0)
        self.objects[self.named] = Object.NONE

    # -- removing objects ----------------------------------------------------------------------------------------------

    def _sweeping(self, step: Sweep) -> Sweeper:
        require(self.sweeper.step is step)
        return self.sweeper

    @action(attempt=_attempts)
    def sweeper_withdraws(self, attempt: int) -> None:
        """It withdraws an object that the list does not name. Its offloader may still be at work."""
        me = self._sweeping(Sweep.IDLE)
        require(self.records[attempt] is not Noted.NOT)
        require(self.is_in_log and self.named != attempt)
        self.records[attempt] = Noted.WITHDRAWN
        me.step, me.attempt = Sweep.WITHDRAWN, attempt

    @action
    def sweeper_raises_version(self) -> None:
        """It writes the list as it is, which raises its version. What the list names now stays."""
        me = self._sweeping(Sweep.WITHDRAWN)
        if self.withdrawals_raise_the_version:
            self._list_changes()
        if rules.may_remove_withdrawn(self.names, me.attempt, self.protections):
            me.step = Sweep.REMOVING
        else:
            self.sweeper = Sweeper()

    @action(attempt=_attempts)
    def sweeper_takes_superseded(self, attempt: int) -> None:
        """It reads a list that will never name this object."""
        me = self._sweeping(Sweep.IDLE)
        require(self.records[attempt] is not Noted.NOT)
        require(rules.is_superseded(self.is_in_log, self.names, attempt))
        me.step, me.attempt = Sweep.REMOVING, attempt

    @action(attempt=_attempts)
    def sweeper_looks_for_stray(self, attempt: int) -> None:
        """It lists the objects, and reads the records later."""
        me = self._sweeping(Sweep.IDLE)
        require(self.strays_are_looked_for)
        if self.objects_are_listed_first:
            require(self.objects[attempt] is not Object.NONE and self.records[attempt] is Noted.NOT)
        else:
            require(self.records[attempt] is Noted.NOT)
        me.step, me.attempt = Sweep.LISTED, attempt

    @action
    def sweeper_finds_stray(self) -> None:
        """An object has no record."""
        me = self._sweeping(Sweep.LISTED)
        if self.objects_are_listed_first:
            is_stray = self.records[me.attempt] is Noted.NOT
        else:
            is_stray = self.objects[me.attempt] is not Object.NONE
        if is_stray:
            me.step = Sweep.REMOVING
        else:
            self.sweeper = Sweeper()

    @action
    def sweeper_removes_object(self) -> None:
        """The object store loses the object."""
        me = self._sweeping(Sweep.REMOVING)
        self.objects[me.attempt] = Object.NONE
        me.step = Sweep.FORGETTING

    @action
    def sweeper_removes_record(self) -> None:
        """The record follows its object."""
        me = self._sweeping(Sweep.FORGETTING)
        self.records[me.attempt] = Noted.NOT
        self.sweeper = Sweeper()

    @action
    def sweeper_crashes(self) -> None:
        """It ends, and knows nothing any more."""
        require(self.crashes < self.max_crashes and self.sweeper.step is not Sweep.IDLE)
        self.crashes += 1
        self.sweeper = Sweeper()

    # -- a reader ------------------------------------------------------------------------------------------------------

    @action
    def reader_reads_list(self) -> None:
        """The reader learns where the ledger is."""
        require(self.reader.step is Reading.BEGINS)
        if self.is_in_log:
            self.reader = Reader(Reading.TRIES, self.named)
        else:
            self.reader = Reader(Reading.TRIMMED, 0)

    @action
    def reader_tries(self) -> None:
        """It reads the ledger where it believes it to be."""
        require(self.reader.step is Reading.TRIES)
        source = self.reader.source
        is_there = self.objects[source] is Object.WHOLE if source else self.is_on_bookies
        self.reader.step = Reading.DONE if is_there else Reading.FAILED

    @action
    def reader_looks_again(self) -> None:
        """It did not find the ledger there, and reads the list again."""
        require(self.reader.step is Reading.FAILED)
        if not self.is_in_log:
            self.reader = Reader(Reading.TRIMMED, 0)
        elif rules.is_lost(self.reader.source, self.named, self.protections):
            self.reader = Reader(Reading.LOST, 0)
        else:
            self.reader = Reader(Reading.TRIES, self.named)

    # -- what must hold ------------------------------------------------------------------------------------------------

    type_ok = typed(lambda: TYPES, "sweeper", "reader")

    @invariant
    def what_is_not_trimmed_is_readable(self) -> bool:
        """The bookies have the ledger, or the list names an object that is whole, unless the log was trimmed."""
        return not self.is_in_log or self.is_on_bookies or (self.named > 0 and self._is_whole(self.named))

    def _is_whole(self, attempt: int) -> bool:
        return self.objects[attempt] is Object.WHOLE

    @invariant
    def no_named_object_is_lost(self) -> bool:
        """An object that the list names is whole, whether or not the bookies still have the ledger."""
        return self.named == 0 or self._is_whole(self.named)

    @invariant
    def what_the_list_names_is_recorded(self) -> bool:
        """The record of an object that the list names is there: it says in which object store it is."""
        return self.named == 0 or self.records[self.named] is not Noted.NOT

    @invariant
    def no_reader_takes_it_for_lost(self) -> bool:
        """No reader takes a ledger for lost."""
        return self.reader.step is not Reading.LOST

    # -- what must happen ----------------------------------------------------------------------------------------------

    fairness = [
        weak(offloader_writes),
        weak(offloader_finishes),
        weak(offloader_verifies),
        weak(offloader_reads_list),
        weak(offloader_reads_record),
        weak(offloader_updates_list),
        weak(offloader_is_refused),
        strong(sweeper_withdraws),
        weak(sweeper_raises_version),
        strong(sweeper_takes_superseded),
        strong(sweeper_looks_for_stray),
        weak(sweeper_finds_stray),
        weak(sweeper_removes_object),
        weak(sweeper_removes_record),
    ]

    @leads_to(attempt=_attempts, when=lambda protocol: False)
    def orphans_end(self, attempt: int) -> tuple[bool, bool]:
        """An object that the list does not name is removed, or the list names it in the end."""
        return (
            self.objects[attempt] is not Object.NONE and self.named != attempt,
            self.objects[attempt] is Object.NONE or self.named == attempt,
        )
