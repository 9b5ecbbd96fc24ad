"""The decisions of a log's writers, readers and trimmers, as pure functions.

They follow ``LedgerChaining.tla`` (Jack Vanlightly, 2021), which is the protocol `ledger-chaining`. Any number of
clients may believe that they lead. A leader closes the last ledger, creates a new one, and appends it to the chain on
condition that nobody else has changed the chain. Only then does it write to the ledger. The checker explores these
functions in the protocol `log`, and the writer's role runs them.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from fencepost.language.values import Record
from fencepost.log.chain import Batch, Chain


class Protections(Record):
    """The protections of a log, one switch each. Only tests turn any of them off; see :data:`ALL`.

    ``last_ledger_is_closed``: a leader closes the last ledger before it creates one. ``closing_fences``: once another
    writer closes a ledger, bookies refuse entries of the ledger's writer. ``chain_precedes_entries``: a ledger is in
    the chain before it is written to. ``updates_are_conditional``: the chain is replaced only if nobody else has
    changed it. ``rivals_prevail``: a leader that finds another's ledger at the end of the chain steps down.
    ``unanswered_is_looked_up``: after an update without an answer, the leader reads the chain instead of assuming
    success. ``last_entry_decides``: the entries in a closed ledger count as appended, and only the rest are written
    again. ``seal_is_final``: nothing is appended to the chain of a sealed log. ``batches_are_remembered``: a batch that
    is in the log is not attached again. ``batches_are_whole``: one update attaches all ledgers of a batch.
    ``withdrawals_are_noticed``: nobody attaches a withdrawn ledger.
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
    """The state of a writer between its election and its first write. These are the states of `ledger-chaining`, some
    of them split in two.
    """

    WAITING = "waiting"
    """It does not believe that it leads."""
    GET_MD_FOR_CLOSING = "get metadata for closing"
    CLOSE_LAST_LEDGER = "close last ledger"
    PENDING_CREATE_LEDGER = "pending create ledger"
    PENDING_APPEND_LEDGER = "pending append ledger"
    LOOK_UP_CHAIN = "look up chain"
    """The update of the chain was refused or not answered, so it reads the chain. `ledger-chaining` counts this as
    pending.
    """
    HAS_OPEN_LEDGER = "has open ledger"
    CLOSE_OWN_LEDGER = "close own ledger"
    """`ledger-chaining` counts this as an open ledger."""


# -- on the way to an open ledger -------------------------------------------------------------------------------------


def after_reading(chain: Chain, seals: bool = False, protections: Protections = ALL) -> Status | None:
    """The next step of a leader that has read the chain: GetLastLedger of the spec. None: the log is sealed, and there
    is nothing to do.

    ``seals``: it wants only to close the last ledger and seal the log.
    """
    if chain.sealed and protections.seal_is_final:
        return None
    if chain.links and protections.last_ledger_is_closed:
        return Status.CLOSE_LAST_LEDGER
    return after_closing(seals)


def after_closing(seals: bool = False) -> Status:
    """The next step of a leader once the last ledger, its own or another's, is closed: create one, or seal the log."""
    return Status.PENDING_APPEND_LEDGER if seals else Status.PENDING_CREATE_LEDGER


def fences(protections: Protections = ALL) -> bool:
    """Return whether a leader that closes another's ledger fences it: CloseLastLedgerSuccess of the spec."""
    return protections.closing_fences


def takes_update(expected: int, actual: int, protections: Protections = ALL) -> bool:
    """Return whether the chain is replaced, given the version that the writer has read: AppendLedgerSuccess and
    AppendLedgerBadVersion.
    """
    return expected == actual or not protections.updates_are_conditional


class Update(enum.Enum):
    """The fate of an update of the chain, as the leader finds when it reads the chain again."""

    DONE = "done"
    TRY_AGAIN = "try again"
    """Nobody else has appended: the chain was only trimmed, or did not change."""
    SEALED = "sealed"
    LOST = "lost"
    """Another leader appended a ledger: step down."""


def after_update(seen: Chain, ledger: int | None, found: Chain, protections: Protections = ALL) -> Update:
    """The fate of the update that appends a ledger to the chain, or seals the log if ``ledger`` is None.

    ``seen``: the chain on which the update was based. ``found``: the chain as read after the update's answer, or after
    the answer was lost. A bad version proves nothing, since a trim changes the version too. A missing answer proves
    nothing either. In the spec nobody trims and every answer comes, so there a bad version means a rival. See
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
    """Return whether a ledger for the end of the chain ``seen`` never entered the chain and never will, so that it can
    be deleted. Another update has succeeded since.

    Its place would be ``seen.length``; that answers the question unless the place was trimmed. A late update is
    refused.
    """
    return found.index(ledger) is None and found.trimmed <= seen.length


def takes_unanswered_for_done(protections: Protections = ALL) -> bool:
    """Return whether a leader takes an unanswered update of the chain for done."""
    return not protections.unanswered_is_looked_up


def may_write(status: Status, protections: Protections = ALL) -> bool:
    """Return whether a leader may write to the ledger that it created: WriteToLedger of the spec. The ledger must be in
    the chain.
    """
    if status is Status.PENDING_APPEND_LEDGER:
        return not protections.chain_precedes_entries
    return status is Status.HAS_OPEN_LEDGER


# -- appends ----------------------------------------------------------------------------------------------------------


def has_room(appends: int, size: int, most_appends: int, most_bytes: int) -> bool:
    """Return whether this number of appends and bytes may wait or be under way. A single append always fits."""
    return appends <= most_appends and (size <= most_bytes or appends <= 1)


def appended_by(closed_at: int, written: int, acknowledged: int, protections: Protections = ALL) -> int:
    """How many of the entries that a leader has written to a closed ledger are in it: those up to its last entry.

    ``written`` and ``acknowledged`` count entries of that ledger. Entries in it are appended, acknowledged or not. The
    others never will be, so the leader writes them again: nothing is lost or written twice. Raises ``ValueError`` if
    the ledger ends before an acknowledged entry.
    """
    if closed_at + 1 < acknowledged:
        raise ValueError(
            f"the ledger was closed at entry {closed_at}, and {acknowledged} entries of it were acknowledged"
        )
    return min(closed_at + 1, written) if protections.last_entry_decides else acknowledged


class Failure(enum.Enum):
    """The reason why a leader cannot write to its ledger any more."""

    FENCED = "fenced"
    """Another writer closes the ledger, or has closed it."""
    TROUBLE = "trouble"
    """Not enough bookies take entries, or they are too slow."""


class After(enum.Enum):
    """What a leader does after a failure."""

    ROLL = "roll"
    STEP_DOWN = "step down"


def after_failure(failure: Failure) -> After:
    """What a leader does that cannot write to its ledger. It steps down if another writer has the ledger
    (CloseOwnLedgerBadVersion); otherwise it rolls over.
    """
    return After.STEP_DOWN if failure is Failure.FENCED else After.ROLL


class Limits(Record):
    """When a leader rolls over: after ``entries``, after ``size`` bytes, or ``age`` microseconds after the ledger's
    first entry. 0 disables a limit.
    """

    entries: int = 0
    size: int = 0
    age: int = 0


def is_full(limits: Limits, entries: int, size: int, age: int) -> bool:
    """Return whether the leader rolls over: its ledger is not empty, and is large or old enough."""
    return entries > 0 and (0 < limits.entries <= entries or 0 < limits.size <= size or 0 < limits.age <= age)


def room(limits: Limits, entries: int, size: int, age: int, offsets: Sequence[int], waiting: int = 0) -> int:
    """Return how many waiting entries the leader's ledger takes before it is full. It is empty or has ``entries`` of
    ``size`` bytes.

    ``offsets``: the bytes before each entry, ascending, and those of all. The entries from index ``waiting`` on wait.
    """
    if is_full(limits, entries, size, age):
        return 0
    most = len(offsets) - 1 - waiting
    if limits.entries > 0:
        most = min(most, limits.entries - entries)
    if limits.size > 0:
        most = min(most, bisect_left(offsets, offsets[waiting] + limits.size - size, waiting) - waiting)
    return most


# -- batches ----------------------------------------------------------------------------------------------------------

BATCH_WRITERS = 1000
"""The number of batch writers that a log remembers: the ones that attached a batch most recently."""


class Attaching(enum.Enum):
    """The outcome of an attempt to attach the closed ledgers of a batch."""

    ATTACH = "attach"
    THERE = "there"
    """The batch is in the log already, by these ledgers or others. Ledgers that are not in the log are deleted."""
    WITHDRAWN = "withdrawn"
    """A ledger of the batch is withdrawn, and will be deleted."""
    SEALED = "sealed"


def before_attaching(
    chain: Chain, batch: Batch | None, ledgers: tuple[int, ...], are_pending: bool, protections: Protections = ALL
) -> Attaching:
    """Decide what to do with the ledgers of a batch. The leader has read the chain, and then checked that all of them
    ``are_pending``.

    ``batch``: None if the log should not remember it. A withdrawal marks the ledger first, and then changes the version
    of the chain. So if a ledger is withdrawn after this check, the update of the chain is refused.
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
    """The chain with the ledgers of a batch at its end, in order, with the same ``time``. It remembers the batch,
    unless that is None.

    The last batch of each writer is remembered, for :data:`BATCH_WRITERS` writers. The writer that attached a batch
    least recently is forgotten first.
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
    """Return whether a ledger of a batch will never enter the chain, so that it can be deleted: other ledgers of the
    batch are in the log.
    """
    return chain.index(ledger) is None and chain.last_batch(batch.writer) >= batch.number


# -- times ------------------------------------------------------------------------------------------------------------


def entry_time(header: int, created: int) -> int:
    """The time of an entry in milliseconds since 1970: the later of its header's and its ledger's.

    Several clocks stamp the entries of a batch before they are in the log, so their headers have time 0. They count as
    appended when they were attached. So times never go back within a log.
    """
    return max(header, created)


# -- reading ----------------------------------------------------------------------------------------------------------


class Onward(enum.Enum):
    """What a reader does at the end of a ledger, if there is no next one."""

    WAIT = "wait"
    """Another ledger may come."""
    END = "end"
    """The log is sealed."""
    TRIMMED = "trimmed"
    """The ledger is not in the log any more, so its successor is unknown."""


def first_of(chain: Chain) -> int | Onward:
    """The first ledger that a reader of the log reads, or what it does if there is none."""
    if chain.links:
        return chain.links[0].ledger
    return Onward.END if chain.sealed else Onward.WAIT


def follows(chain: Chain, ledger: int) -> int | Onward:
    """The ledger to read after a closed one, or what the reader does if there is none."""
    index = chain.index(ledger)
    if index is None:
        return Onward.TRIMMED
    if index + 1 < len(chain.links):
        return chain.links[index + 1].ledger
    return Onward.END if chain.sealed else Onward.WAIT


def is_through(entry: int, closed_at: int | None) -> bool:
    """Return whether a reader at this entry is at the end of its ledger: the ledger is closed before the entry.
    ``closed_at`` is None while it is not closed.
    """
    return closed_at is not None and entry > closed_at


def place_of_time(chain: Chain, time: int) -> int:
    """The index in ``chain.links`` of the ledger in which to search for the first entry of a time or later, in
    milliseconds since 1970. It is the last ledger that is older. 0 for an empty chain.

    If it has no such entry, the search ends at the start of the next ledger.
    """
    return max(0, bisect_left(chain.links, time, key=lambda link: link.created) - 1)


class Search(Record):
    """A binary search for the first entry of a ledger at a time or later. The result is between ``low`` and ``high``;
    ``high`` means that there is none.
    """

    low: int
    high: int

    @property
    def probe(self) -> int | None:
        """The entry to read next; None once the result is known: ``low``."""
        return (self.low + self.high) // 2 if self.low < self.high else None

    def probed(self, time_of_probe: int, time: int) -> Search:
        """The search after this probe was read."""
        middle = (self.low + self.high) // 2
        return Search(middle + 1, self.high) if time_of_probe < time else Search(self.low, middle)


# -- trimming ---------------------------------------------------------------------------------------------------------


def trimmable_before_ledger(chain: Chain, ledger: int) -> int:
    """The number of ledgers before this one, which can be trimmed; 0 if it is not in the log."""
    return chain.index(ledger) or 0


def trimmable_before_time(chain: Chain, time: int) -> int:
    """The number of ledgers without an entry of this time or later, in milliseconds since 1970: the next ledger is no
    later. The last ledger never counts.
    """
    return max(0, bisect_right(chain.links, time, key=lambda link: link.created) - 1)


def trimmable_of_read(chain: Chain, ledgers: Sequence[int]) -> int:
    """The number of ledgers before all that cursors are in. A cursor in a ledger outside the log has read nothing."""
    return min((chain.index(ledger) or 0 for ledger in ledgers), default=len(chain.links))


def trimmable_but(chain: Chain, keep: int) -> int:
    """The number of ledgers besides the newest ``keep``, which is at least 1."""
    return max(0, len(chain.links) - max(1, keep))
