"""Type invariants cover every part of the state, and reject values of other types."""

from typing import Any

import pytest

from fencepost import ModelValue, Protocol, check, initial
from fencepost.language.loading import SHIPPED, shipped
from fencepost.protocols.bookkeeper.current import BookKeeper
from fencepost.protocols.bookkeeper.ledger import Entry, Fragment, PendingAddOp
from fencepost.protocols.bookkeeper.v4_13 import W1, BookKeeper413, WriterStatus
from fencepost.protocols.ledger_chaining import LedgerChaining, LedgerMetadata, LedgerOnBookies
from fencepost.semantics import Stepper

B1 = ModelValue("b1", 0)
C1 = ModelValue("c1", 0)
STRANGERS = frozenset({W1})


UNTYPED = (
    "kraft-kip-853",
    "kraft-kip-853-join",
    "quorum",
    "running-store",
    "running-log",
    "running-quorum",
    "log-leader",
    "quorum-replica",
    "store-roles",
)
"""The original of the first two has no type invariant, so neither has `quorum`, which combines them. The next have
those of `store` and `log`, which leave out their additional variables. mypy checks the types of the roles of the last
three.
"""


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in UNTYPED])
def test_no_variable_is_left_out(name: str) -> None:
    stepper = Stepper(shipped(name)(), ["type_ok"])
    asked = {root.parameters["part"] for root in stepper.of_kind("invariant")}
    slots = [slot.path for slot in stepper.store.slots if slot.path[0] != "network"]
    assert [path for path in slots if not any(path[: len(part)] == part for part in asked)] == []


@pytest.mark.parametrize(
    ("protocol", "part", "nonsense"),
    [
        (BookKeeper413, ("meta", "status"), WriterStatus.INVALID),
        (BookKeeper413, ("meta", "fragments"), (Fragment(1, STRANGERS, id=1),)),
        (BookKeeper413, ("meta", "version"), -1),
        (BookKeeper413, ("bookie", B1, "entries"), frozenset({Entry(1, 2)})),
        (BookKeeper413, ("bookie", B1, "fenced"), None),
        (BookKeeper413, ("bookie", B1, "lac"), True),
        (BookKeeper413, ("w1", "meta_version"), -1),
        (BookKeeper413, ("w1", "status"), "open"),
        (BookKeeper413, ("w1", "pending_add_ops"), frozenset({PendingAddOp(Entry(1, 1), 1, STRANGERS)})),
        (BookKeeper413, ("w1", "confirmed", 1), STRANGERS),
        (BookKeeper413, ("w2", "curr_fragment", "ensemble"), STRANGERS),
        (BookKeeper413, ("w2", "curr_read_entry"), Entry(2, 1)),
        (BookKeeper413, ("w2", "recovery_phase"), 1),
        (BookKeeper, ("meta", "fragments"), (Fragment(1, frozenset({B1}), id=1),)),
        (BookKeeper, ("bookie", B1, "entries"), frozenset({Entry(2, 2)})),
        (BookKeeper, ("client", C1, "status"), WriterStatus.OPEN),
        (BookKeeper, ("client", C1, "fragments"), (Fragment(1, STRANGERS, id=1),)),
        (BookKeeper, ("client", C1, "pending_add_ops"), frozenset({PendingAddOp(Entry(1, 1), 1, frozenset())})),
        (BookKeeper, ("client", C1, "no_such_entry"), STRANGERS),
        (BookKeeper, ("client", C1, "last_recoverable_entry"), -2),
        (BookKeeper, ("client", C1, "written_back"), frozenset({2})),
        (LedgerChaining, ("c_state", C1, "status"), None),
        (LedgerChaining, ("c_state", C1, "ledger", "version"), -2),
        (LedgerChaining, ("md_llist",), (0,)),
        (LedgerChaining, ("md_ledgers", 1), LedgerMetadata(1, True, 0)),
        (LedgerChaining, ("md_next_lid",), 2),
        (LedgerChaining, ("md_leader",), B1),
        (LedgerChaining, ("b_ledgers", 1), LedgerOnBookies(-2, False)),
    ],
)
def test_nonsense_is_refused(protocol: type[Protocol], part: tuple[Any, ...], nonsense: object) -> None:
    class Corrupted(protocol):  # type: ignore[misc,valid-type]
        @initial
        def no_ledgers(self) -> None:
            if protocol is LedgerChaining:
                self.md_leader = self.clients[0]
            whole = self
            for key in part[:-1]:
                whole = getattr(whole, key) if isinstance(key, str) else whole[key]
            if isinstance(part[-1], str):
                setattr(whole, part[-1], nonsense)
            else:
                whole[part[-1]] = nonsense

    assert len(check(Corrupted(), engine="reference", invariants=["type_ok"]).must_violate("type_ok")) == 1
