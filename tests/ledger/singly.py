"""Requests and answers of a bookie one at a time, for tests that check each separately."""

from __future__ import annotations

from typing import Any

from fencepost.ledger.messages import AddEntry, Request
from fencepost.ledger.records import EntryAdded, LacWritten
from fencepost.ledger.roles import interface as i
from fencepost.ledger.roles.requests import AddRequests, FoundRequests, is_plain_read
from fencepost.ledger.rules.codes import Code


def asked(connection: int, txn: int, request: Request) -> i.Event:
    """The event of one request that arrives alone."""
    if type(request) is AddEntry:
        return i.AddsArrived(connection, (AddRequests(((txn, request),)),))
    return i.ReadsArrived(connection, 1) if is_plain_read(request) else i.RequestArrived(connection, txn, request)


def replayed(record: Any) -> i.Replayed:
    """The event of one replayed record."""
    return i.Replayed(LacWritten(record.ledger, record.lac, b"") if type(record) is EntryAdded else record)


def singly(effect: Any) -> list[Any]:
    """Split an effect about several entries into effects about one entry each."""
    if isinstance(effect, i.JournalAdds):
        records = [record for adds in effect.adds for record in adds.records()]  # type: ignore[attr-defined]
        first = effect.position - len(records) + 1
        return [i.Journal(position, record) for position, record in enumerate(records, first)]
    if isinstance(effect, i.AnswerAdds):
        adds = effect.adds
        return [
            i.Answer(effect.connection, txn, response)
            for each in adds
            for txn, response in each.responses(effect.code)  # type: ignore[attr-defined]
        ]
    if isinstance(effect, i.AnswerReads):
        responses = effect.reads.responses(effect.code, effect.lac)  # type: ignore[attr-defined]
        return [i.Answer(effect.connection, txn, response) for txn, response in responses]
    return [effect]


def found(look: i.LookUpReads, ledger: int, code: Code, *reads: tuple[int, int, bytes | None]) -> i.ReadsFound:
    """The event of finished reads. Each read has its number, its entry and its body, and all have the same code."""
    return i.ReadsFound(look.number, ledger, code, FoundRequests(ledger, reads))
