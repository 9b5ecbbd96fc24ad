"""The chained log as it runs: `log`, with the behaviour of real writers and a real metadata service.

Traces of running systems are validated with this protocol. The rules, the steps of leaders and the properties are those
of `log`. The timing differs, and so does what a trace can show:

- Nobody knows which client is elected. A client believes that it is, and steps down at any time. No property relies on
  elections.
- Ledgers have any ids, and some are created by clients that never put them into the chain.
- An entry is identified by a number that its client gives it.
- An update of the chain, including a seal, may go unanswered, be lost, or be carried out late.
- A client that does not lead may also recover a ledger: it fences and closes it. A client that closes a ledger may find
  that this was done.
- Several of the oldest ledgers are trimmed at once.
- Batches have any writers, numbers and ledgers. A client that reads the chain before its version is changed may or may
  not see that a ledger is withdrawn. One that reads it later does see it.
- A client that is not in the trace attaches a batch, or changes only the version of the chain.
- The log may be older than the trace. Then it begins with ledgers that are not in the trace.
"""

from __future__ import annotations

from typing import Any, ClassVar

from fencepost import ModelValue, PerKey, action, configuration, constant, constraint, one_of, per_key, require
from fencepost.language.declarations import varied
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.log.chain import Batch, Chain, Link
from fencepost.log.rules import (
    Attaching,
    Status,
    before_attaching,
    fences,
    never_attached,
    takes_unanswered_for_done,
    takes_update,
)
from fencepost.protocols.log.log import UNPROTECTED, Attempt, Becomes, Client, Log

SMALL: dict[str, Any] = {"entries": 1, "next_ledger_limit": 3}


class RunningLog(Log):
    """The life of one log in a running system."""

    name: ClassVar[str] = "running-log"

    next_ledger_limit: int = constant(3, "ledgers are numbered below this")
    entries: int = constant(1, "numbers that entries may have")
    lost_answers: bool = constant(True, "whether updates of the chain may go unanswered, done or not")
    late_updates: bool = constant(
        True, "whether such an update may also be carried out later, whatever its client is doing"
    )
    trims: bool = constant(True, "whether the oldest ledgers are trimmed")
    sealing: bool = constant(True, "whether leaders seal the log")
    remembers: bool = constant(True, "whether the state keeps acknowledgements and trimmed ledgers, for the properties")
    versions: int = constant(0, "versions of the chain up to which behaviours are explored; 0: no limit")

    batch_writers: int = constant(1, "writers of batches")
    batch_numbers: int = constant(1, "numbers that batches may have")

    newest: PerKey[ModelValue, int] = per_key(lambda protocol: protocol.clients, 0)
    """The highest number that a client has given to an entry."""
    withdrawn_at: PerKey[int, int] = per_key(lambda protocol: range(1, protocol.next_ledger_limit), 0)
    """The version of the chain that makes the withdrawal of a ledger visible; 0: not withdrawn."""

    configurations = {
        "default": configuration(**SMALL, clients=1, versions=2, doc="one client, two ledgers and one entry"),
        "two-clients": configuration(
            **SMALL, clients=2, versions=2, sealing=False, doc="two clients, and nobody seals the log"
        ),
        "batches": configuration(
            clients=1,
            entries=0,
            next_ledger_limit=3,
            versions=2,
            sealing=False,
            trims=False,
            most_attempts=2,
            doc="one client that attaches batches of any ledgers, or finds them withdrawn or attached",
        ),
        **varied(UNPROTECTED, {"not-fenced": {**SMALL, "clients": 2, "versions": 2}}),
    }

    @constraint
    def chain_has_few_versions(self) -> bool:
        """Leaders can retry forever, so the number of versions is limited."""
        return not self.versions or self.version <= self.versions

    # -- becoming and being leader -------------------------------------------------------------------------------------

    @action(c=Log.clients, by="metadata")
    def leader_chosen(self, c: ModelValue) -> None:
        """Nobody knows which client is elected, so this never happens."""
        require(False)

    @action(c=Log.clients)
    def become_leader(self, c: ModelValue) -> None:
        """A client believes that it is elected, and reads the chain next."""
        client = self.client[c]
        require(not client.leader)
        client.leader = True
        client.status = Status.GET_MD_FOR_CLOSING

    @action(c=Log.clients)
    def abdicate(self, c: ModelValue) -> None:
        """A client steps down, for any reason. It leaves its ledger open: the next leader will close it."""
        require(self.client[c].leader)
        self._step_down(c)

    def _acknowledge(self, entries: tuple[int, ...]) -> None:
        if self.remembers:
            super()._acknowledge(entries)

    def _deny(self, entries: tuple[int, ...]) -> None:
        if self.remembers:
            super()._deny(entries)

    # -- closing the last ledger ---------------------------------------------------------------------------------------

    @action(c=Log.clients)
    def fence_last_ledger(self, c: ModelValue) -> None:
        """The leader recovers the last ledger, or retries after a failure. If the ledger is closed already, nothing
        happens.
        """
        client = self._leading(c, Status.CLOSE_LAST_LEDGER)
        self._begin_recovery(client.ledger)
        client.has_fenced = True

    @action(c=Log.clients)
    def close_last_ledger(self, c: ModelValue) -> None:
        """The leader closes the ledger that it has fenced, or finds that it was closed at that entry."""
        client = self._leading(c, Status.CLOSE_LAST_LEDGER)
        require(client.has_fenced)
        self._ends(client.ledger)
        self._closed_last(c)

    @action(c=Log.clients)
    def last_ledger_already_closed(self, c: ModelValue) -> None:
        """Disabled: a leader cannot distinguish this from having closed the ledger."""
        require(False)

    @action(ledger=lambda self: range(1, self.next_ledger_limit), by="somebody")
    def ledger_is_fenced(self, ledger: int) -> None:
        """A client that does not lead starts to recover a ledger that is not closed."""
        require(self.ledgers[ledger].status is not None)
        self._begin_recovery(ledger)

    def _begin_recovery(self, number: int) -> None:
        ledger = self.ledgers[number]
        if ledger.status is not LedgerStatus.CLOSED:
            ledger.status = LedgerStatus.IN_RECOVERY
            ledger.fenced = fences(self.protections)

    @action(ledger=lambda self: range(1, self.next_ledger_limit), by="somebody")
    def ledger_is_closed(self, ledger: int) -> None:
        """A ledger in recovery is closed, by a leader that does not record it, or by somebody else."""
        require(self.ledgers[ledger].status in (LedgerStatus.IN_RECOVERY, LedgerStatus.CLOSED))
        self._ends(ledger)

    def _ends(self, number: int) -> None:
        """Close a ledger at an entry, unless it is closed at this entry already."""
        ledger = self.ledgers[number]
        last_entry = one_of(range(-1, len(ledger.entries)))
        if ledger.status is LedgerStatus.CLOSED:
            require(ledger.last_entry == last_entry)
            return
        require(last_entry >= ledger.confirmed - 1)
        ledger.last_entry = last_entry
        ledger.status = LedgerStatus.CLOSED

    # -- chaining a new ledger -----------------------------------------------------------------------------------------

    @action(c=Log.clients)
    def create_ledger(self, c: ModelValue) -> None:
        """The leader creates a ledger. Nobody can find it until it is in the chain."""
        client = self._leading(c, Status.PENDING_CREATE_LEDGER)
        ledger = one_of(range(1, self.next_ledger_limit))
        require(self.ledgers[ledger].status is None)
        require(not self.withdrawn_at[ledger])
        self.ledgers[ledger].status = LedgerStatus.OPEN
        client.ledger, client.saw_open = ledger, True
        client.status = Status.PENDING_APPEND_LEDGER

    @action(c=Log.clients)
    def append_ledger_unanswered(self, c: ModelValue) -> None:
        """The update is not answered. It was done, is lost, or is yet to be done."""
        client = self._leading(c, Status.PENDING_APPEND_LEDGER)
        version, updated = client.version, client.chain.appended(client.ledger, 0)
        if takes_unanswered_for_done(self.protections):
            client.chain, client.version = updated, client.version + 1
            client.status = Status.HAS_OPEN_LEDGER
        else:
            client.status = Status.LOOK_UP_CHAIN
        self._unanswered(client, updated, version)

    def _unanswered(self, client: Client, updated: Chain, version: int) -> None:
        becomes = one_of(Becomes)
        if becomes is Becomes.LATE:
            require(client.late is None)
            client.late, client.late_version = updated, version
        elif becomes is Becomes.DONE and takes_update(version, self.version, self.protections):
            self._replace_chain(updated)

    # -- writing -------------------------------------------------------------------------------------------------------

    @action(c=Log.clients)
    def write_entry(self, c: ModelValue) -> None:
        """The leader writes the next entry, unless its ledger is fenced. Entries that its last ledger was closed
        without come first.
        """
        client = self._writing(c)
        ledger = self.ledgers[client.ledger]
        require(not ledger.fenced)
        entry = one_of(range(1, self.entries + 1))
        if client.again:
            require(entry == client.again[0])
            client.again = client.again[1:]
        else:
            require(entry > self.newest[c])
            self.newest[c] = entry
            if self.remembers:
                require(entry == self.next_entry)
                self.next_entry += 1
        if self.remembers and not ledger.entries:
            self.begun = (*self.begun, client.ledger)
        ledger.entries = (*ledger.entries, entry)

    @action(c=Log.clients)
    def close_own_ledger(self, c: ModelValue) -> None:
        """The leader closes its own ledger, or finds that a recovery closed it meanwhile. Its entries are appended, and
        the others are written again.
        """
        client = self._leading(c, Status.HAS_OPEN_LEDGER)
        self._ends(client.ledger)
        self._reconcile(c)
        client.status = Status.PENDING_CREATE_LEDGER

    # -- sealing and trimming ------------------------------------------------------------------------------------------

    @action(c=Log.clients)
    def seal_bad_version(self, c: ModelValue) -> None:
        """Somebody else has changed the chain since. The leader that wants to seal the log looks it up."""
        client = self._leading(c, Status.PENDING_CREATE_LEDGER)
        require(not client.again)
        require(not takes_update(client.version, self.version, self.protections))
        client.seals = True
        client.status = Status.LOOK_UP_CHAIN

    @action(c=Log.clients)
    def seal_unanswered(self, c: ModelValue) -> None:
        """The update that seals the log is not answered. It was done, is lost, or is yet to be done."""
        client = self._leading(c, Status.PENDING_CREATE_LEDGER)
        require(not client.again)
        client.seals = True
        client.status = Status.LOOK_UP_CHAIN
        self._unanswered(client, client.chain.as_sealed(), client.version)

    @action(by="somebody")
    def trim(self) -> None:
        """A client trims the oldest ledgers, if another follows them."""
        require(len(self.chain.links) > 1)
        count = one_of(range(1, len(self.chain.links)))
        if self.remembers:
            self.trimmed = (*self.trimmed, *[link.ledger for link in self.chain.links[:count]])
        self._replace_chain(self.chain.without_first(count))

    # -- batches -------------------------------------------------------------------------------------------------------

    @action(c=Log.clients)
    def write_batch(self, c: ModelValue) -> None:
        """A client will attach a batch: closed ledgers that are in no log, written by it or by others. It may have
        tried the same before.
        """
        attachment = self.attachment[c]
        require(attachment.version < 0)
        is_remembered = one_of((True, False))
        batch = Batch(f"q{one_of(range(self.batch_writers))}", one_of(range(self.batch_numbers)))
        attempt = Attempt(self._some_ledgers(), batch=batch if is_remembered else None)
        require(len(attempt.ledgers) > 0)
        if attempt not in self.attempts:
            require(len(self.attempts) < self.most_attempts)
            if self.remembers:
                require(
                    all(self.ledgers[each].status is None and not self.withdrawn_at[each] for each in attempt.ledgers)
                )
            self.attempts = (*self.attempts, attempt)
            for ledger in attempt.ledgers:
                self.ledgers[ledger].status = LedgerStatus.CLOSED
        attachment.attempt = self.attempts.index(attempt) + 1

    def _some_ledgers(self) -> tuple[int, ...]:
        count = one_of(range(self.next_ledger_limit))
        ledgers = tuple([one_of(range(1, self.next_ledger_limit)) for _ in range(count)])
        require(len({*ledgers}) == count)
        return ledgers

    @action(c=Log.clients)
    def look_up_batch(self, c: ModelValue) -> None:
        """A leader that has closed the last ledger looks up whether its batch is in the log, perhaps by an untraced
        update, or withdrawn. If neither, it sends the update.
        """
        client = self._leading(c, Status.PENDING_CREATE_LEDGER)
        attachment = self.attachment[c]
        require(attachment.attempt > 0)
        require(attachment.version < 0)
        is_untraced, is_noticed = one_of((False, True)), one_of((False, True))
        require(not (is_untraced and self.remembers))
        attempt = self.attempts[attachment.attempt - 1]
        must_be_noticed = any(0 < self.withdrawn_at[ledger] <= client.version for ledger in attempt.ledgers)
        are_pending = not (is_noticed or must_be_noticed)
        step = before_attaching(client.chain, attempt.batch, attempt.ledgers, are_pending, self.protections)
        if step is Attaching.ATTACH and not is_untraced:
            attachment.chain, attachment.version = client.chain, client.version
        else:
            attachment.attempt = 0

    @action(c=Log.clients)
    def attach_batch(self, c: ModelValue) -> None:
        """The chain is as the client last read it. The client appends the ledgers of the batch, including the last of
        them.
        """
        attachment = self.attachment[c]
        require(attachment.version >= 0)
        require(takes_update(attachment.version, self.version, self.protections))
        updated, last = self._with_batch(attachment), one_of(range(1, self.next_ledger_limit))
        require(updated.last == last)
        self._replace_chain(updated)
        attachment.attempt, attachment.chain, attachment.version = 0, Chain(), -1
        self._read_again(c)

    @action(c=Log.clients)
    def attach_batch_unanswered(self, c: ModelValue) -> None:
        """The update is not answered. It was done, is lost, or is yet to be done. The client reads the chain again, or
        fails.
        """
        attachment = self.attachment[c]
        require(attachment.version >= 0)
        updated, version = self._with_batch(attachment), attachment.version
        self._unanswered(self.client[c], updated, version)
        attachment.chain, attachment.version = Chain(), -1
        self._read_again(c)

    @action(by="somebody")
    def batch_is_attached(self) -> None:
        """A client without any other event in the trace has closed the last ledger, and attaches a batch."""
        require(not self.remembers)
        ledgers = self._some_ledgers()
        require(len(ledgers) > 0)
        require(not self.chain.sealed)
        require(all(self.ledgers[ledger].status is None for ledger in ledgers))
        last = self.chain.last
        require(last is None or self.ledgers[last].status is LedgerStatus.CLOSED)
        chain = self.chain
        for ledger in ledgers:
            self.ledgers[ledger].status = LedgerStatus.CLOSED
            chain = chain.appended(ledger, 0)
        self._replace_chain(chain)

    @action(by="somebody")
    def withdraw_batch(self) -> None:
        """A withdrawal has no effect until the version of the chain is changed."""
        require(False)

    @action(by="somebody")
    def delete_withdrawn_batch(self) -> None:
        """A client that has withdrawn ledgers changes the version of the chain. Then the ledgers that are not in the
        chain are deleted.
        """
        require(not self.remembers or len(self.attempts) > 0)
        ledgers = self._some_ledgers()
        require(not self.remembers or any(attempt.ledgers == ledgers for attempt in self.attempts))
        self.version += 1
        for ledger in ledgers:
            if not self.withdrawn_at[ledger]:
                self.withdrawn_at[ledger] = self.version
            if self.remembers and ledger not in self.all_ledgers():
                self.ledgers[ledger].status = None

    @action(by="somebody")
    def delete_superseded_batch(self) -> None:
        """A batch is in the log with other ledgers than these, which are deleted."""
        require(not self.remembers or len(self.attempts) > 0)
        batch = Batch(f"q{one_of(range(self.batch_writers))}", one_of(range(self.batch_numbers)))
        ledgers = self._some_ledgers()
        require(not self.remembers or any((each.ledgers, each.batch) == (ledgers, batch) for each in self.attempts))
        require(all(never_attached(self.chain, batch, ledger) for ledger in ledgers))
        if self.remembers:
            for ledger in ledgers:
                self.withdrawn_at[ledger] = self.version
                self.ledgers[ledger].status = None

    # -- logs that are older than their traces -------------------------------------------------------------------------

    @action(
        version=lambda self: (), links=lambda self: (), trimmed=lambda self: (), sealed=(False, True), by="somebody"
    )
    def log_is_older(self, version: int, links: int, trimmed: int, sealed: bool) -> None:
        """The log has ledgers already, with the lowest numbers. Only the last of them may still be open. The trace does
        not have their entries.
        """
        require(self.version == 0)
        self.version = version
        self.chain = Chain(tuple([Link(number, 0) for number in range(1, links + 1)]), trimmed, sealed)
        for number in range(1, links + 1):
            self.ledgers[number].status = LedgerStatus.CLOSED if number < links or sealed else LedgerStatus.OPEN
