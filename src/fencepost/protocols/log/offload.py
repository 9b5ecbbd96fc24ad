"""Offloading: a closed ledger of a log moves from the bookies to an object store, while readers read it.

The decisions are those of :mod:`fencepost.log.offload_rules`, which the offloaders of logs run. There is one ledger,
which is closed, and its place in the list of the log. A further ledger would only change the version of the list, as a
trim and a withdrawal do. With ``deleters``, the log is deleted meanwhile, and with ``may_append`` its writer adds one
more ledger.
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
    RECORDING = "recording"
    """It has read the list, and records its attempt. Only with ``deleters``; else that is one step."""
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
    CLEANING = "cleaning"
    """It gives up, and removes its object. Only with ``deleters``; else the remover does."""
    FORGETTING = "forgetting"
    """It has removed its object, and its record is there."""


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


class Node(enum.Enum):
    """What the metadata service has of the log."""

    THERE = "there"
    SEALED = "sealed"
    """Its deletion has begun."""
    DELETED = "deleted"
    BACK = "back"
    """Somebody has made it again, without a ledger."""


class Following(enum.Enum):
    """The next ledger of the log."""

    NOT_YET = "not yet"
    MADE = "made"
    """The bookies have it, and the list does not."""
    LISTED = "listed"
    GONE = "gone"


class Stray(enum.Enum):
    """Why an object may be there that has no record."""

    NO = "no"
    LATE = "late"
    """It was written after somebody had removed the object of that attempt. Nobody fences an object store."""
    LEFT = "left"
    """That, and its offloader ended before it removed the object."""


class Deletion(enum.Enum):
    """What a deleter does next."""

    IDLE = "idle"
    LIST = "list"
    """It has sealed the log, and reads the list."""
    TRIMS = "trims"
    """It reads the records of trims."""
    LEDGERS = "ledgers"
    RECORDS = "records"
    """It reads the records of objects."""
    WITHDRAWING = "withdrawing"
    """It reads the list, and withdraws the objects that it does not name."""
    LISTING = "listing"
    """It lists the objects of the folder that the records name."""
    STRAYS = "strays"
    """It reads the records again, and removes objects without one."""
    OBJECTS = "objects"
    RECORD = "record"
    """It removes the record of the object that it has removed."""
    NODE = "node"


class Deleter(Record):
    """A process that deletes the log: what it knows of the ledgers, the records that it has read, the objects, and the
    strays that were there when it read the records.
    """

    step: Deletion = Deletion.IDLE
    has_ledger: bool = False
    has_following: bool = False
    records: frozenset[int] = frozenset()
    objects: frozenset[int] = frozenset()
    strays: frozenset[int] = frozenset()


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
    "deleter.records": lambda protocol, records: records <= {*_attempts(protocol)},
    "deleter.objects": lambda protocol, objects: objects <= {*_attempts(protocol)},
    "deleter.strays": lambda protocol, strays: strays <= {*_attempts(protocol)},
    "strays": lambda protocol, stray: type(stray) is Stray,
    "node": lambda protocol, node: type(node) is Node,
    "following": lambda protocol, following: type(following) is Following,
    "writer_is_current": lambda protocol, is_current: type(is_current) is bool,
}


def _deletion(violated: str, doc: str, **constants: Any) -> Any:
    least = {"offloaders": 1, "attempts": 1, "deleters": 1, "max_crashes": 0, "may_trim": False}
    return configuration(violated, doc, **{**least, **constants})


def _without(violated: str, doc: str, **constants: Any) -> Any:
    return configuration(violated, doc, **constants)


READABLE = "what_is_not_trimmed_is_readable"
KEPT = "no_named_object_is_lost"
FOUND = "no_reader_takes_it_for_lost"
CLEAN = "nothing_is_left"
GONE = "no_deleted_log_is_back"


class LogOffload(Protocol):
    """A closed ledger of a log is offloaded by several processes at once, read, and trimmed."""

    name: ClassVar[str] = "log-offload"

    offloaders: tuple[ModelValue, ...] = model_values("o", 2, "the processes that offload", symmetric=True)
    attempts: int = constant(2, "how often somebody begins to copy the ledger")
    max_crashes: int = constant(1, "how many processes end before their time")
    max_damages: int = constant(0, "how often the object store keeps something else than was written")
    may_trim: bool = constant(True, "whether the log is trimmed")
    deleters: tuple[ModelValue, ...] = model_values("d", 0, "the processes that delete the log", symmetric=True)
    may_append: bool = constant(False, "whether a writer adds another ledger")

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
    seals_precede_deletion: bool = constant(True, "a log is sealed before anything of it is deleted")
    trims_are_read_last: bool = constant(True, "a deletion reads the list before it reads what was trimmed")
    ledgers_precede_nodes: bool = constant(True, "the ledgers of a log are deleted before its node")
    deletions_withdraw: bool = constant(True, "a deletion withdraws an object that is under way")
    strays_precede_records: bool = constant(True, "a deletion removes strays while a record names their folder")
    objects_precede_records: bool = constant(True, "a deletion removes an object before its record")
    late_records_are_heeded: bool = constant(True, "a deletion that finds new records removes their objects, too")
    nodes_are_made_inside: bool = constant(True, "nothing is recorded for a log that does not exist")
    offloaders_clean_up: bool = constant(True, "an offloader that gives up removes its object")
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

    deleter: PerKey[ModelValue, Deleter] = per_key(deleters, Deleter)
    node: Node = state(Node.THERE, held_by="zk")
    following: Following = state(Following.NOT_YET, held_by="bookies")
    writer_is_current: bool = state(False)
    strays: PerKey[int, Stray] = state(per_key(_attempts, Stray.NO))
    """Which objects may be there without a record."""

    configurations = {
        "default": configuration(doc="two offloaders, one crash, and a trim"),
        "small": configuration(offloaders=1, attempts=1, doc="one attempt"),
        "damaged-objects": configuration(
            offloaders=1, max_damages=1, doc="one offloader, and the object store keeps something else once"
        ),
        "deletion": configuration(
            offloaders=1, deleters=1, max_crashes=2,
            doc="a log is deleted while it is offloaded and trimmed, with two crashes",
        ),
        "two-deleters": configuration(
            offloaders=1, attempts=1, deleters=2, max_crashes=2, doc="two processes delete it, with two crashes"
        ),
        "deletion-and-writer": configuration(
            offloaders=1, attempts=1, deleters=2, may_append=True, doc="its writer adds a ledger meanwhile"
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
        "deleted-unsealed": _deletion(
            READABLE, "the ledgers of a log are deleted that its writer still appends to",
            seals_precede_deletion=False, may_append=True,
        ),
        "trims-read-first": _deletion(
            CLEAN, "a trim comes between the look at what was trimmed and that at the list",
            trims_are_read_last=False, may_trim=True,
        ),
        "node-deleted-first": _deletion(
            CLEAN, "nobody knows the ledgers of the log any more", ledgers_precede_nodes=False,
        ),
        "deletion-not-noticed": _deletion(
            CLEAN, "the list of a log that is deleted names an object that was written after its removal",
            deletions_withdraw=False,
        ),
        "strays-last": _deletion(
            CLEAN, "the deletion is interrupted when no record is left that names the folder of a stray",
            strays_precede_records=False, attempts=2, max_crashes=2,
        ),
        "records-removed-first": _deletion(
            CLEAN, "the deletion is interrupted, and nobody knows the object", objects_precede_records=False,
            max_crashes=1,
        ),
        "late-record-not-heeded": _deletion(
            CLEAN, "an offloader records its attempt after the deletion has read the records",
            late_records_are_heeded=False,
        ),
        "node-made-again": _deletion(
            GONE, "an offloader that began before the deletion records its attempt after it",
            nodes_are_made_inside=False,
        ),
        "object-left-behind": _deletion(
            CLEAN, "an offloader writes on during the deletion, and gives up", offloaders_clean_up=False,
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
        self.writer_is_current = False

    @property
    def is_whole(self) -> bool:
        """Whether the log is there, and nobody deletes it."""
        return self.node is Node.THERE

    def _remove_object(self, attempt: int) -> None:
        self.objects[attempt] = Object.NONE
        self.strays[attempt] = Stray.NO

    def _remove_record(self, attempt: int) -> None:
        """Remove the record of an object that was removed. Its offloader may have written another file since."""
        self.records[attempt] = Noted.NOT
        self._note_late(attempt)

    def _note_late(self, attempt: int) -> None:
        if self.deleters and self.records[attempt] is Noted.NOT and self.objects[attempt] is not Object.NONE:
            self.strays[attempt] = Stray.LATE if self._is_written(attempt) else Stray.LEFT

    def _is_written(self, attempt: int) -> bool:
        """Whether an offloader is at this attempt."""
        return any(
            self.offloader[o].step is not Step.IDLE and self.offloader[o].attempt == attempt for o in self.offloaders
        )

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
        if self.deleters:
            me.step = Step.RECORDING
            return
        if self.records_precede_objects:
            self.records[me.attempt] = Noted.BEGUN
        me.step = Step.WRITING

    @action(o=offloaders)
    def offloader_records(self, o: ModelValue) -> None:
        """It records its attempt below the node of the log, or gives up if there is none."""
        me = self._at(o, Step.RECORDING)
        if self.node is Node.DELETED:
            if self.nodes_are_made_inside:
                self.offloader[o] = Offloader()
                return
            self.node = Node.BACK
        self.records[me.attempt] = Noted.BEGUN
        me.step = Step.WRITING

    @action(o=offloaders)
    def offloader_writes(self, o: ModelValue) -> None:
        """It writes the first files of the object."""
        me = self._at(o, Step.WRITING)
        self.objects[me.attempt] = Object.PART
        self._note_late(me.attempt)
        me.step = Step.FINISHING

    @action(o=offloaders)
    def offloader_finishes(self, o: ModelValue) -> None:
        """It writes the last file of the object. If a remover was there meanwhile, the others are missing."""
        me = self._at(o, Step.FINISHING)
        if self.objects[me.attempt] is Object.PART:
            self.objects[me.attempt] = Object.WHOLE
        else:
            self.objects[me.attempt] = Object.PART
            self._note_late(me.attempt)
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
            self._ends(o)

    @action(o=offloaders)
    def offloader_waits_no_longer(self, o: ModelValue) -> None:
        """It leaves the ledger on the bookies for now, or somebody else has deleted it."""
        self._at(o, Step.DELETING)
        self._ends(o)

    def _gives_up(self, o: ModelValue) -> None:
        if self.deleters and self.offloaders_clean_up:
            self.offloader[o] = Offloader(Step.CLEANING, self.offloader[o].attempt)
        else:
            self._ends(o)

    def _ends(self, o: ModelValue) -> None:
        self.offloader[o] = Offloader()

    @action(o=offloaders)
    def offloader_removes_object(self, o: ModelValue) -> None:
        """It has given up, and removes its object. Only with ``deleters``."""
        me = self._at(o, Step.CLEANING)
        self._remove_object(me.attempt)
        me.step = Step.FORGETTING

    @action(o=offloaders)
    def offloader_removes_record(self, o: ModelValue) -> None:
        """The record follows its object."""
        me = self._at(o, Step.FORGETTING)
        self.records[me.attempt] = Noted.NOT
        self._ends(o)

    @action(o=offloaders)
    def offloader_crashes(self, o: ModelValue) -> None:
        """It ends, and knows nothing any more."""
        me = self.offloader[o]
        require(self.crashes < self.max_crashes and me.step is not Step.IDLE)
        self.crashes += 1
        if self.strays[me.attempt] is Stray.LATE:
            self.strays[me.attempt] = Stray.LEFT
        self._ends(o)

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
        require(not self.is_in_log and self.is_on_bookies and self.node is not Node.DELETED)
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
        if self.node is Node.DELETED:
            self.sweeper = Sweeper()
            return
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
        self._remove_object(me.attempt)
        me.step = Sweep.FORGETTING

    @action
    def sweeper_removes_record(self) -> None:
        """The record follows its object."""
        me = self._sweeping(Sweep.FORGETTING)
        self._remove_record(me.attempt)
        self.sweeper = Sweeper()

    @action
    def sweeper_crashes(self) -> None:
        """It ends, and knows nothing any more."""
        require(self.crashes < self.max_crashes and self.sweeper.step is not Sweep.IDLE)
        self.crashes += 1
        self.sweeper = Sweeper()

    # -- a writer ------------------------------------------------------------------------------------------------------

    @action
    def writer_makes_ledger(self) -> None:
        """The writer, which has read the list, creates the next ledger."""
        require(self.may_append and self.following is Following.NOT_YET and self.is_whole)
        self.following = Following.MADE
        self.writer_is_current = True

    @action
    def writer_adds_ledger(self) -> None:
        """The list gets the ledger, on condition of its version."""
        require(self.following is Following.MADE and self.writer_is_current)
        self.following = Following.LISTED
        self._list_changes()

    @action
    def writer_is_refused(self) -> None:
        """Somebody has changed the list. The writer reads it again, and deletes its ledger if the log takes no more."""
        require(self.following is Following.MADE and not self.writer_is_current)
        if self.is_whole:
            self.writer_is_current = True
        else:
            self.following = Following.GONE

    # -- deleting the log ----------------------------------------------------------------------------------------------

    def _deleting(self, d: ModelValue, step: Deletion) -> Deleter:
        me = self.deleter[d]
        require(me.step is step)
        return me

    @action(d=deleters)
    def deleter_seals(self, d: ModelValue) -> None:
        """It seals the log, which raises the version of the list."""
        me = self._deleting(d, Deletion.IDLE)
        require(self.is_whole)
        if self.seals_precede_deletion:
            self.node = Node.SEALED
            self._list_changes()
        me.step = Deletion.LIST if self.trims_are_read_last else Deletion.TRIMS

    @action(d=deleters)
    def deleter_begins_again(self, d: ModelValue) -> None:
        """It finds the log sealed, as a deletion leaves it that did not finish, or is not over."""
        me = self._deleting(d, Deletion.IDLE)
        require(self.node is Node.SEALED)
        me.step = Deletion.LIST if self.trims_are_read_last else Deletion.TRIMS

    @action(d=deleters)
    def deleter_reads_list(self, d: ModelValue) -> None:
        """It reads which ledgers the log has. Perhaps another deleter was faster."""
        me = self._deleting(d, Deletion.LIST)
        if self.node is Node.DELETED:
            self.deleter[d] = Deleter()
            return
        me.has_ledger = me.has_ledger or self.is_in_log
        me.has_following = self.following is Following.LISTED
        me.step = Deletion.TRIMS if self.trims_are_read_last else self._known()

    @action(d=deleters)
    def deleter_reads_trims(self, d: ModelValue) -> None:
        """It reads which ledgers were trimmed, and are perhaps not deleted yet."""
        me = self._deleting(d, Deletion.TRIMS)
        me.has_ledger = me.has_ledger or (self.node is not Node.DELETED and not self.is_in_log and self.is_on_bookies)
        me.step = self._known() if self.trims_are_read_last else Deletion.LIST

    def _known(self) -> Deletion:
        return Deletion.LEDGERS if self.ledgers_precede_nodes else Deletion.NODE

    @action(d=deleters)
    def deleter_deletes_ledger(self, d: ModelValue) -> None:
        """The bookies lose one of the ledgers that it knows, or have lost them."""
        me = self._deleting(d, Deletion.LEDGERS)
        if me.has_ledger:
            self.is_on_bookies = me.has_ledger = False
        elif me.has_following:
            self.following, me.has_following = Following.GONE, False
        else:
            me.step = Deletion.RECORDS

    @action(d=deleters)
    def deleter_reads_records(self, d: ModelValue) -> None:
        """It reads the records of objects. They name the folder in which it looks for strays."""
        me = self._deleting(d, Deletion.RECORDS)
        me.records = frozenset(attempt for attempt in self.records if self.records[attempt] is not Noted.NOT)
        if not me.records:
            me.step = Deletion.NODE
            return
        me.step = Deletion.WITHDRAWING if self.deletions_withdraw else self._withdrawn()
        me.strays = frozenset(attempt for attempt in self.strays if self.strays[attempt] is Stray.LEFT)

    @action(d=deleters)
    def deleter_withdraws(self, d: ModelValue) -> None:
        """It withdraws objects that the list does not name: their offloaders may be at work. No update needs to fail:
        what is behind one is written, so it will be removed.
        """
        me = self._deleting(d, Deletion.WITHDRAWING)
        if self.node is Node.DELETED:
            self.deleter[d] = Deleter()
            return
        for attempt in me.records:
            if self.records[attempt] is Noted.BEGUN and self.named != attempt:
                self.records[attempt] = Noted.WITHDRAWN
        me.step = self._withdrawn()

    def _withdrawn(self) -> Deletion:
        return Deletion.LISTING if self.strays_precede_records else Deletion.OBJECTS

    @action(d=deleters)
    def deleter_lists_objects(self, d: ModelValue) -> None:
        """It lists the objects of the log."""
        me = self._deleting(d, Deletion.LISTING)
        me.objects = frozenset(attempt for attempt in self.objects if self.objects[attempt] is not Object.NONE)
        me.step = Deletion.STRAYS

    @action(d=deleters)
    def deleter_removes_strays(self, d: ModelValue) -> None:
        """It reads the records after that, and removes objects without one."""
        me = self._deleting(d, Deletion.STRAYS)
        for attempt in me.objects:
            if self.records[attempt] is Noted.NOT:
                self._remove_object(attempt)
        me.objects = frozenset()
        me.step = Deletion.OBJECTS if self.strays_precede_records else Deletion.NODE

    @action(d=deleters)
    def deleter_removes_object(self, d: ModelValue) -> None:
        """The object store loses the next object whose record it has read; or the record goes first, without
        ``objects_precede_records``.
        """
        me = self._deleting(d, Deletion.OBJECTS)
        if not me.records:
            me.step = Deletion.NODE if self.strays_precede_records else Deletion.LISTING
            return
        if self.objects_precede_records:
            self._remove_object(min(me.records))
        else:
            self.records[min(me.records)] = Noted.NOT
        me.step = Deletion.RECORD

    @action(d=deleters)
    def deleter_removes_record(self, d: ModelValue) -> None:
        """The record follows its object."""
        me = self._deleting(d, Deletion.RECORD)
        if self.objects_precede_records:
            self._remove_record(min(me.records))
        else:
            self._remove_object(min(me.records))
        me.records -= {min(me.records)}
        me.step = Deletion.OBJECTS
        if all(self.records[attempt] is Noted.NOT for attempt in self.records):
            for attempt in me.strays:
                self.strays[attempt] = Stray.NO  # nothing leads to it any more, so it must be gone

    @action(d=deleters)
    def deleter_deletes_node(self, d: ModelValue) -> None:
        """It deletes the node of the log, which goes only if no node is below it. There may be new records."""
        me = self._deleting(d, Deletion.NODE)
        if any(self.records[attempt] is not Noted.NOT for attempt in self.records):
            if self.late_records_are_heeded and self.ledgers_precede_nodes:
                me.step = Deletion.RECORDS
            else:
                for attempt in self.records:
                    self.records[attempt] = Noted.NOT
            return
        if self.node is not Node.BACK:
            self.node = Node.DELETED
        self.is_in_log, self.named = False, 0
        self._list_changes()
        self.deleter[d] = Deleter()
        if not self.ledgers_precede_nodes:
            me.step = Deletion.LEDGERS

    @action(d=deleters)
    def deleter_crashes(self, d: ModelValue) -> None:
        """It ends, and knows nothing any more."""
        require(self.crashes < self.max_crashes and self.deleter[d].step is not Deletion.IDLE)
        self.crashes += 1
        self.deleter[d] = Deleter()

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
        """The bookies have the ledger, or the list names an object that is whole, unless the log was trimmed or is
        being deleted.
        """
        is_needed = self.is_in_log and self.is_whole
        return not is_needed or self.is_on_bookies or (self.named > 0 and self._is_whole(self.named))

    def _is_whole(self, attempt: int) -> bool:
        return self.objects[attempt] is Object.WHOLE

    @invariant
    def no_named_object_is_lost(self) -> bool:
        """An object that the list names is whole, whether or not the bookies still have the ledger."""
        return self.named == 0 or not self.is_whole or self._is_whole(self.named)

    @invariant
    def what_the_list_names_is_recorded(self) -> bool:
        """The record of an object that the list names is there: it says in which object store it is."""
        return self.named == 0 or not self.is_whole or self.records[self.named] is not Noted.NOT

    @invariant
    def no_reader_takes_it_for_lost(self) -> bool:
        """No reader takes a ledger for lost."""
        return self.reader.step is not Reading.LOST or not self.is_whole

    @invariant
    def nothing_is_left(self) -> bool:
        """The bookies have no ledger of a deleted log, and the object store no object. An object may be there that was
        written after the deletion, or another remover, had removed it: its offloader removes it, unless it crashed.
        """
        return self.node is not Node.DELETED or (
            not self.is_on_bookies
            and self.following is not Following.LISTED
            and all(
                self.objects[attempt] is Object.NONE
                or self.strays[attempt] is Stray.LEFT
                or (self.strays[attempt] is Stray.LATE and self._is_written(attempt))
                for attempt in self.objects
            )
        )

    @invariant
    def no_deleted_log_is_back(self) -> bool:
        """Nobody brings back a log that was deleted."""
        return self.node is not Node.BACK

    # -- what must happen ----------------------------------------------------------------------------------------------

    fairness = [
        weak(offloader_records),
        weak(offloader_writes),
        weak(offloader_finishes),
        weak(offloader_verifies),
        weak(offloader_reads_list),
        weak(offloader_reads_record),
        weak(offloader_updates_list),
        weak(offloader_is_refused),
        weak(offloader_removes_object),
        weak(offloader_removes_record),
        strong(sweeper_withdraws),
        weak(sweeper_raises_version),
        strong(sweeper_takes_superseded),
        strong(sweeper_looks_for_stray),
        weak(sweeper_finds_stray),
        weak(sweeper_removes_object),
        weak(sweeper_removes_record),
        weak(deleter_begins_again),
        weak(deleter_reads_list),
        weak(deleter_reads_trims),
        weak(deleter_deletes_ledger),
        weak(deleter_reads_records),
        weak(deleter_withdraws),
        weak(deleter_lists_objects),
        weak(deleter_removes_strays),
        weak(deleter_removes_object),
        weak(deleter_removes_record),
        weak(deleter_deletes_node),
    ]

    @leads_to(attempt=_attempts, when=lambda protocol: False)
    def orphans_end(self, attempt: int) -> tuple[bool, bool]:
        """An object that the list does not name is removed, or the list names it in the end."""
        return (
            self.objects[attempt] is not Object.NONE and self.named != attempt,
            self.objects[attempt] is Object.NONE or self.named == attempt,
        )

    @leads_to(when=lambda protocol: False)
    def deletions_end(self) -> tuple[bool, bool]:
        """A deletion that has begun is finished in the end, by its process or by one that is run again."""
        return self.node is Node.SEALED, self.node is Node.DELETED
