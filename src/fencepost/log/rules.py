"""The decisions of writers, readers and trimmers of a log, as functions of values.

What keeps a log whole is ``LedgerChaining.tla`` (Jack Vanlightly, 2021), which is the protocol `ledger-chaining`: any
number of clients may believe that they lead. A leader closes the last ledger, creates one, puts it at the end of the
chain on condition that nobody else has done so, and only then writes to it. The protocol `log` explores these
functions, and the writer's role runs them.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from fencepost.language.values import Record
from fencepost.log.chain import Batch, Chain


class Protections(Record):
    """The protections of a log, one switch for each. All but tests use :data:`ALL`.

    ``last_ledger_is_closed``: a leader closes the last ledger before it creates one. ``closing_fences``: bookies take
    nothing more from the writer of a ledger that another one closes. ``chain_precedes_entries``: nothing is written to
    a ledger that is not in the chain. ``updates_are_conditional``: the chain is replaced only if nobody else has
    changed it. ``rivals_prevail``: a leader that finds the ledger of another at the end of the chain steps down.
    ``unanswered_is_looked_up``: an update of the chain without an answer is not taken for done. ``last_entry_decides``:
    after a ledger was closed, what is in it counts as appended, and only the rest is written again. ``seal_is_final``:
    nothing is appended to the chain of a log that is sealed. ``batches_are_remembered``: a batch that is in the log is
    not attached again. ``batches_are_whole``: all ledgers of a batch are attached by one update.
    ``withdrawals_are_noticed``: nobody attaches a ledger that is to be deleted.
    """

    last_ledger_is_closed: bool = True
    closing_fences: bool = True
    chain_precedes_entries: bool = True
    updates_are_conditional: bool = True
    rivals_prevail: bool = True
    unanswered_is_looked_up: bool = True
    last_entry_decides: bool = True
    seal_is_final: bool = True
    batches_are_remembered: bool = True
    batches_are_whole: bool = True
    withdrawals_are_noticed: bool = True


ALL = Protections()


class Status(enum.Enum):
    """Where a writer is on its way from being elected to writing: the states of `ledger-chaining`, and those that it
    has as one step.
    """

    WAITING = "waiting"
    """It does not believe that it leads."""
    GET_MD_FOR_CLOSING = "get metadata for closing"
    CLOSE_LAST_LEDGER = "close last ledger"
    PENDING_CREATE_LEDGER = "pending create ledger"
    PENDING_APPEND_LEDGER = "pending append ledger"
    LOOK_UP_CHAIN = "look up chain"
    """The update of the chain was refused or not answered: it reads the chain to know. In `ledger-chaining` it is
    pending still.
    """
    HAS_OPEN_LEDGER = "has open ledger"
    CLOSE_OWN_LEDGER = "close own ledger"
    """In `ledger-chaining` it has an open ledger until that is closed."""


# -- on the way to an open ledger -------------------------------------------------------------------------------------


def after_reading(chain: Chain, seals: bool = False, protections: Protections = ALL) -> Status | None:
    """The next step of a leader that has read the chain: GetLastLedger of the spec. None: the log is sealed, so that
    there is nothing to do.

    ``seals``: it wants no ledger, and only the last one closed.
    """
    if chain.sealed and protections.seal_is_final:
        return None
    if chain.links and protections.last_ledger_is_closed:
        return Status.CLOSE_LAST_LEDGER
    return after_closing(seals)


def after_closing(seals: bool = False) -> Status:
    """The next step of a leader when the last ledger is closed, its own or another's: it creates one, or seals the log
    at once.
    """
    return Status.PENDING_APPEND_LEDGER if seals else Status.PENDING_CREATE_LEDGER


def fences(protections: Protections = ALL) -> bool:
    """Whether a leader that closes the ledger of another fences it: CloseLastLedgerSuccess of the spec."""
    return protections.closing_fences


def takes_update(expected: int, actual: int, protections: Protections = ALL) -> bool:
    """Whether the chain is replaced, given the version that the writer has seen: AppendLedgerSuccess and
    AppendLedgerBadVersion.
    """
    return expected == actual or not protections.updates_are_conditional


class Update(enum.Enum):
    """The fate of a leader's update of the chain, once the leader has read the chain again."""

    DONE = "done"
    TRY_AGAIN = "try again"
    """Nobody else has appended: the chain was only trimmed, or not changed at all."""
    SEALED = "sealed"
    LOST = "lost"
    """Another leader has appended a ledger: step down."""


def after_update(seen: Chain, ledger: int | None, found: Chain, protections: Protections = ALL) -> Update:
    """The fate of the update that puts a ledger at the end of the chain, or (None) seals the log.

    ``seen``: the chain that the update was made from. ``found``: the chain as it is, read after the answer, or after it
    failed to come. A bad version alone says nothing: a trim changes the version too, and an update without an answer
    may have been done. In the spec nobody trims, and every answer comes: there a bad version is a rival. See
    AppendLedgerBadVersion.
    """
    if ledger is not None and found.last == ledger:
        return Update.DONE if not found.sealed else Update.SEALED
    if found.sealed and protections.seal_is_final:
        return Update.DONE if ledger is None else Update.SEALED
    if found.length != seen.length and protections.rivals_prevail:
        return Update.LOST
    return Update.TRY_AGAIN


def never_chained(seen: Chain, ledger: int, found: Chain) -> bool:
    """Whether a ledger that was to follow the chain ``seen`` has never been in the chain, given that another update was
    made: so that it can be deleted.

    It would have come at the place ``seen.length``, so it is known if that was not trimmed. An update that is still to
    come is refused.
    """
    return found.index(ledger) is None and found.trimmed <= seen.length


def takes_unanswered_for_done(protections: Protections = ALL) -> bool:
    """Whether a leader goes on without looking when the update of the chain was not answered."""
    return not protections.unanswered_is_looked_up


def may_write(status: Status, protections: Protections = ALL) -> bool:
    """Whether a leader may write to the ledger that it has created: WriteToLedger of the spec, only when the ledger is
    in the chain.
    """
    if status is Status.PENDING_APPEND_LEDGER:
        return not protections.chain_precedes_entries
    return status is Status.HAS_OPEN_LEDGER


# -- appends ----------------------------------------------------------------------------------------------------------


def has_room(appends: int, size: int, most_appends: int, most_bytes: int) -> bool:
    """Whether so many appends with so many bytes may wait or be under way. One append is never too large."""
    return appends <= most_appends and (size <= most_bytes or appends <= 1)


def appended_by(closed_at: int, written: int, acknowledged: int, protections: Protections = ALL) -> int:
    """How many of the entries that a leader has written to a ledger are in it, now that it is closed: those up to its
    last entry.

    ``written`` and ``acknowledged`` count entries of that ledger. What is in it was appended, acknowledged or not, and
    the rest was not and never will be: so nothing is lost and nothing is written twice. Raises ``ValueError`` if the
    ledger ends ahead of what was acknowledged.
    """
    if closed_at + 1 < acknowledged:
        raise ValueError(
            f"the ledger was closed at entry {closed_at}, and {acknowledged} entries of it were acknowledged"
        )
    return min(closed_at + 1, written) if protections.last_entry_decides else acknowledged


class Failure(enum.Enum):
    """Why a leader cannot write to its ledger any more."""

    FENCED = "fenced"
    """Somebody else closes the ledger, or has."""
    TROUBLE = "trouble"
    """Not enough bookies take entries, or they take them too slowly."""


class After(enum.Enum):
    """The reaction of a leader to a failure."""

    ROLL = "roll"
    STEP_DOWN = "step down"


def after_failure(failure: Failure) -> After:
    """The reaction of a leader that cannot write to its ledger: it steps down if somebody else has it
    (CloseOwnLedgerBadVersion), else it rolls over.
    """
    return After.STEP_DOWN if failure is Failure.FENCED else After.ROLL


class Limits(Record):
    """When a leader rolls over to the next ledger: ``entries``, ``size`` in bytes, ``age`` in microseconds since its
    first entry; 0: never for that.
    """

    entries: int = 0
    size: int = 0
    age: int = 0


def is_full(limits: Limits, entries: int, size: int, age: int) -> bool:
    """Whether the leader rolls over: its ledger has something in it, and is large or old enough."""
    return entries > 0 and (0 < limits.entries <= entries or 0 < limits.size <= size or 0 < limits.age <= age)


# -- batches ----------------------------------------------------------------------------------------------------------

BATCH_WRITERS = 1000
"""Writers of batches of which a log remembers the last batch: of those that have attached one last."""


class Attaching(enum.Enum):
    """The outcome of an attempt to attach the ledgers of a batch, which are closed and in no log."""

    ATTACH = "attach"
    THERE = "there"
    """The batch is in the log already, by these ledgers or by others: those that are not in the log are deleted."""
    WITHDRAWN = "withdrawn"
    """Somebody is about to delete a ledger of the batch."""
    SEALED = "sealed"


def before_attaching(
    chain: Chain, batch: Batch | None, ledgers: tuple[int, ...], are_pending: bool, protections: Protections = ALL
) -> Attaching:
    """The decision about the ledgers of a batch by a leader that has read the chain, and after that whether they
    ``are_pending``, each of them.

    ``batch``: None if it is not to be remembered. A withdrawal marks the ledger first, and then changes the version of
    the chain. So an update that is made on what was read here is refused if a ledger was withdrawn since.
    """
    if any(chain.index(ledger) is not None for ledger in ledgers):
        return Attaching.THERE
    if batch is not None and chain.last_batch(batch.writer) >= batch.number and protections.batches_are_remembered:
        return Attaching.THERE
    if chain.sealed and protections.seal_is_final:
        return Attaching.SEALED
    return Attaching.ATTACH if are_pending or not protections.withdrawals_are_noticed else Attaching.WITHDRAWN


def with_batch(
    chain: Chain, batch: Batch | None, ledgers: tuple[int, ...], time: int, protections: Protections = ALL
) -> Chain:
    """The chain with the ledgers of a batch at its end, in their order, all of the same ``time``; it remembers the
    batch if there is one to be remembered.

    Of each writer the last batch is remembered, and of :data:`BATCH_WRITERS` writers: who has attached none for the
    longest time is forgotten.
    """
    if not protections.batches_are_whole:
        ledgers = ledgers[:1]
    for ledger in ledgers:
        chain = chain.appended(ledger, time)
    if batch is None:
        return chain
    others = tuple(each for each in chain.batches if each.writer != batch.writer)
    return chain.replace(batches=(*others, batch)[-BATCH_WRITERS:])


def never_attached(chain: Chain, batch: Batch, ledger: int) -> bool:
    """Whether a ledger of a batch will not be in the chain any more, so that it can be deleted: the batch is there, by
    other ledgers.
    """
    return chain.index(ledger) is None and chain.last_batch(batch.writer) >= batch.number


# -- times ------------------------------------------------------------------------------------------------------------


def entry_time(header: int, created: int) -> int:
    """The time of an entry, in ms since 1970: the one in its header, or that of its ledger in the chain if this is
    later.

    Entries of a batch are written before they are in the log, by several clocks at once. They have the time at which
    they were attached: 0 is in their headers. So times never go back within a log.
    """
    return max(header, created)


# -- reading ----------------------------------------------------------------------------------------------------------


class Onward(enum.Enum):
    """Where a reader goes that is through with a ledger, if not to another one."""

    WAIT = "wait"
    """Another ledger may come."""
    END = "end"
    """The log is sealed."""
    TRIMMED = "trimmed"
    """The ledger is not in the log any more, so that nobody can say what followed it."""


def first_of(chain: Chain) -> int | Onward:
    """The ledger in which a reader of all that is not trimmed begins."""
    if chain.links:
        return chain.links[0].ledger
    return Onward.END if chain.sealed else Onward.WAIT


def follows(chain: Chain, ledger: int) -> int | Onward:
    """The ledger that comes after one that is closed and was read to its end."""
    index = chain.index(ledger)
    if index is None:
        return Onward.TRIMMED
    if index + 1 < len(chain.links):
        return chain.links[index + 1].ledger
    return Onward.END if chain.sealed else Onward.WAIT


def is_through(entry: int, closed_at: int | None) -> bool:
    """Whether a reader at an entry is through with its ledger: only if that is closed, ahead of the entry. None: it is
    not closed.
    """
    return closed_at is not None and entry > closed_at


def place_of_time(chain: Chain, time: int) -> int:
    """The place in ``chain.links`` of the ledger to search for the first entry of a time or later, in ms since 1970:
    the last one that is older, found without reading a ledger. 0 for an empty chain.

    If no entry in it is late enough, the next ledger begins with that which is searched for.
    """
    return max(0, bisect_left(chain.links, time, key=lambda link: link.created) - 1)


class Search(Record):
    """The search for the first entry of a ledger with a time or later. It is at ``low``, or between, or at ``high``,
    where none is late enough.
    """

    low: int
    high: int

    @property
    def probe(self) -> int | None:
        """The entry to read next; None if it is found: ``low``."""
        return (self.low + self.high) // 2 if self.low < self.high else None

    def probed(self, time_of_probe: int, time: int) -> Search:
        """The rest of the search, once the probe was read."""
        middle = (self.low + self.high) // 2
        return Search(middle + 1, self.high) if time_of_probe < time else Search(self.low, middle)


# -- trimming ---------------------------------------------------------------------------------------------------------


def trimmable_before_ledger(chain: Chain, ledger: int) -> int:
    """How many ledgers come before one, and can be trimmed; 0 if it is not in the log."""
    return chain.index(ledger) or 0


def trimmable_before_time(chain: Chain, time: int) -> int:
    """How many ledgers hold nothing of a time or later, in ms since 1970: those that another follows which is not
    later. Never the last one.
    """
    return max(0, bisect_right(chain.links, time, key=lambda link: link.created) - 1)


def trimmable_of_read(chain: Chain, ledgers: Sequence[int]) -> int:
    """How many ledgers come before all of those that cursors are in. A cursor in none of the log's has read nothing of
    it.
    """
    return min((chain.index(ledger) or 0 for ledger in ledgers), default=len(chain.links))


def trimmable_but(chain: Chain, keep: int) -> int:
    """How many ledgers are there besides the newest ``keep``, of which there is one at least."""
    return max(0, len(chain.links) - max(1, keep))
