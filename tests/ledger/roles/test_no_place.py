"""Why there is no ensemble: what a writer, a handle and the check before a stop say."""

from __future__ import annotations

import pytest

from fencepost.ledger.client.calls import error_of
from fencepost.ledger.errors import NotEnoughBookiesError
from fencepost.ledger.roles.adds import Adds
from fencepost.ledger.roles.interface import PLACING, BookiesChanged, Call, Error, Result
from fencepost.ledger.roles.writer import Writer, WriterSettings
from fencepost.ledger.rules import placement as rules
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata
from fencepost.ledger.rules.placement import Placement, Policy, Unplaced
from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.rules.replication import Risk, risks

POLICY = Policy(enforce_min_num_racks_per_write_quorum=True)

CASES = [
    ("a", "XYYX", rules.STEPS, Unplaced.TOO_FEW),
    ("abc", "XXXX", rules.STEPS, Unplaced.UNMET),
    ("abd", "XYYX", 1, Unplaced.UNKNOWN),
]


def available(bookies: str, racks: str) -> BookiesChanged:
    where = tuple((bookie, f"/{rack}") for bookie, rack in zip("abcd", racks, strict=True))
    return BookiesChanged(tuple(bookies), placement=Placement(POLICY, where))


@pytest.mark.parametrize(("bookies", "racks", "steps", "why"), CASES)
def test_a_writer_says_why_its_ledger_is_not_created(
    bookies: str, racks: str, steps: int, why: Unplaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "STEPS", steps)
    writer = Writer(7, WriterSettings(2, 2, 2, b""))
    writer.receive(available(bookies, racks), 0)
    (result,) = writer.receive(Call(1, "create"), 0)
    assert isinstance(result, Result) and result.error is PLACING[why]
    error = error_of(result.error, 7)
    assert isinstance(error, NotEnoughBookiesError) and error.why is why and "ledger 7" in str(error)
    assert ("has not tried all" in str(error)) is (why is Unplaced.UNKNOWN)
    assert ("there is no such ensemble" in str(error)) is (why is Unplaced.UNMET)


def test_errors_of_other_kinds_have_no_reason() -> None:
    assert not isinstance(error_of(Error.WRITE_FAILED, 7), NotEnoughBookiesError)


@pytest.mark.parametrize(
    ("bookies", "racks", "steps", "why"),
    [
        ("b", "XYYX", rules.STEPS, Unplaced.TOO_FEW),
        ("bc", "XYYY", rules.STEPS, Unplaced.UNMET),
        ("bd", "XYYX", 0, Unplaced.UNKNOWN),
    ],
)
def test_a_change_of_ensemble_says_why_not(
    bookies: str, racks: str, steps: int, why: Unplaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "STEPS", steps)
    adds = Adds(("a", "b"), 2, 2, -1, 0, ALL)
    adds._fails("a", ())
    assert adds.replacement(("a", "b"), available(bookies, racks)) is why


@pytest.mark.parametrize(
    ("writable", "racks", "steps", "risk"),
    [
        ("abc", "XYYX", rules.STEPS, Risk.UNWRITABLE),
        ("abcd", "XYYY", rules.STEPS, Risk.MISPLACED),
        ("abcd", "XYYX", 0, Risk.UNKNOWN),
        ("abcd", "XYYX", rules.STEPS, None),
    ],
)
def test_before_a_stop(
    writable: str, racks: str, steps: int, risk: Risk | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "STEPS", steps)
    metadata = LedgerMetadata(3, 3, 3, (Fragment(0, ("a", "b", "c")),))
    found = risks(metadata, "a", "abcd", writable, available("", racks).placement)
    assert found == ([] if risk is None else [(0, risk)])
