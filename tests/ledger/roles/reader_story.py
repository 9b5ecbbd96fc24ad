"""A reader whose events and requests the test controls."""

from __future__ import annotations

from typing import Any

from fencepost.ledger.entries import Digests, Entry
from fencepost.ledger.messages import ReadEntryResponse, ReadLac, ReadLacResponse
from fencepost.ledger.roles.interface import (
    Call,
    Effect,
    MetadataAnswer,
    Outcome,
    ReadEntries,
    ReadMetadata,
    ReadsAnswered,
    Received,
    Result,
    Send,
    SendReads,
    SetTimer,
    TimerFired,
    Unanswered,
    WantEntries,
)
from fencepost.ledger.roles.reader import Reader, ReaderSettings
from fencepost.ledger.roles.reading import Answers
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import DigestType, LedgerMetadata

DIGESTS = Digests(DigestType.CRC32, b"p")
LACK = Code.NO_ENTRY


def body(entry_id: int, lac: int = -1) -> bytes:
    return DIGESTS.entry_body(Entry(1, entry_id, lac, 0, b"entry %d" % entry_id))


def ledger(*ensembles: tuple[int, str]) -> LedgerMetadata:
    fragments = tuple(Fragment(first, tuple(bookies)) for first, bookies in ensembles)
    return LedgerMetadata(3, 3, 2, fragments, password=b"p")


OPEN = ledger((0, "abc"))


class Story:
    """A reader of ledger 1. Its requests wait for the test to answer them, by bookie. ``timers`` has the keys of the
    timers that are set, ``all`` every request so far. Traces of the opening of the ledger are left out.
    """

    def __init__(self, metadata: LedgerMetadata = OPEN, lac: int = 5, traces: bool = False) -> None:
        self.reader = Reader(1, ReaderSettings(b"p", speculation_delay=10, poll_wait=1000))
        self.sent: dict[str, Any] = {}
        self.all: list[Send | SendReads] = []
        self.timers: list[Any] = []
        self.metadata_txn = 0
        self.token = 0
        self.now = 0
        assert self.call("open") == [ReadMetadata(1, 1, watch=True)]
        effects = self.metadata(metadata, 3)
        if effects:
            assert effects == [Result(1, metadata.last_entry)]
        else:
            self.lac("a", body(lac + 1, lac))
            assert self.lac("b") == [Result(1, lac)]
            self.lac("c")
        self.reader.traces = self.reader.readings.traces = traces

    def happen(self, event: Any) -> list[Effect]:
        """Deliver an event. Returns the effects other than requests and timers."""
        effects = self.reader.receive(event, self.now)
        for effect in effects:
            if isinstance(effect, (Send, SendReads)):
                before = self.sent.get(effect.bookie)
                if isinstance(effect, SendReads) and isinstance(before, SendReads) and before.reading == effect.reading:
                    both = [*before.entry_ids, *effect.entry_ids]
                    self.sent[effect.bookie] = SendReads(effect.reading, effect.bookie, both)
                else:
                    self.sent[effect.bookie] = effect
                self.all.append(effect)
            elif isinstance(effect, SetTimer):
                self.timers.append(effect.key)
            elif isinstance(effect, ReadMetadata):
                self.metadata_txn = effect.txn
        return [effect for effect in effects if not isinstance(effect, (Send, SendReads, SetTimer))]

    def call(self, operation: str, *arguments: Any) -> list[Effect]:
        self.token += 1
        return self.happen(Call(self.token, operation, arguments))

    def read(self, first: int, last: int | None = None) -> list[Effect]:
        """One caller reads a range of entries."""
        self.token += 1
        return self.happen(ReadEntries(self.token, first, first if last is None else last))

    def want(self, *entry_ids: int) -> list[Effect]:
        """Callers read entries, each separately."""
        return self.happen(WantEntries(entry_ids))

    def asked(self) -> dict[str, list[int]]:
        """The entries requested from each bookie."""
        return {bookie: [*send.entry_ids] for bookie, send in self.sent.items() if isinstance(send, SendReads)}

    def give(self, bookie: str, *entry_ids: int, code: Code | None = Code.OK, lac: int = -1) -> list[Effect]:
        """A bookie answers some of the entries requested from it."""
        send = self.sent.pop(bookie)
        assert isinstance(send, SendReads)
        left = [each for each in send.entry_ids if each not in entry_ids]
        assert len(left) + len(entry_ids) == len(send.entry_ids)
        if left:
            self.sent[bookie] = SendReads(send.reading, bookie, left)
        return self.happen(ReadsAnswered(send.reading, bookie, entry_ids, code, lac=lac))

    def metadata(self, metadata: LedgerMetadata | None, version: int = 3) -> list[Effect]:
        outcome = Outcome.NO_LEDGER if metadata is None else Outcome.OK
        return self.happen(MetadataAnswer(self.metadata_txn, outcome, version, metadata))

    def lac(
        self, bookies: str, last_entry: bytes | None = None, told: bytes | None = None, code: Code = Code.OK
    ) -> list[Effect]:
        """Bookies answer with their LAC."""
        effects: list[Effect] = []
        for bookie in bookies:
            send = self.sent.pop(bookie)
            assert isinstance(send, Send) and send.request == ReadLac(1)
            effects += self.happen(Received(send.txn, bookie, ReadLacResponse(1, code, told, last_entry)))
        return effects

    def answer(self, bookies: str, answer: Code | bytes | None, lac: int = -1) -> list[Effect]:
        """Bookies answer a read with a code or an entry. None: they do not answer."""
        effects: list[Effect] = []
        for bookie in bookies:
            send = self.sent.pop(bookie)
            code, found = (Code.OK, answer) if isinstance(answer, bytes) else (answer, None)
            if isinstance(send, SendReads):
                answers = Answers()
                for entry_id in send.entry_ids:
                    response = None if code is None else ReadEntryResponse(1, entry_id, code, lac, found)
                    answers.add(DIGESTS, send.reading, bookie, (1, entry_id), response)
                for event in answers.taken():
                    effects += self.happen(event)
            elif code is None:
                effects += self.happen(Unanswered(send.txn, bookie))
            else:
                entry_id = send.request.entry_id
                effects += self.happen(Received(send.txn, bookie, ReadEntryResponse(1, entry_id, code, lac, found)))
        return effects

    def timer(self, late: int = 0) -> list[Effect]:
        """Fire the timer that was set last, at its time or later."""
        key = self.timers.pop()
        if key[0] == "late":
            self.now = (self.reader.readings.due or 0) + late
        return self.happen(TimerFired(key))
