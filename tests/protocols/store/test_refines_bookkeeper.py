"""``store`` refines `bookkeeper`: the conditions for that, and where it does not."""

import dataclasses
from typing import Any

import pytest
from campaigns import campaign_if

from fencepost import Options, Protocol, check
from fencepost.protocols.bookkeeper.current import BookKeeper
from fencepost.protocols.store.store import ONE_BOOKIE, ONE_COPY, PUBLISHED, TWO_ENTRIES, Store

DECLARED: Any = next(one for one in Store.declared("refinement"))
NAME = "refines_bookkeeper"


# A constant of `bookkeeper` at the original's value, constants with which that matters, and the number of states in the
# shortest behaviour that the original lacks.
ORIGINAL: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    ({"recovery_marks_first": False}, ONE_COPY, 4),
    ({"recovery_watches_metadata": True}, {**ONE_COPY, "clients": 3, "metadata_lags": False}, 25),
    (
        {"bookies_keep_highest_lac": False},
        {"bookies": 2, "send_limit": 2, "message_loss": False, "metadata_lags": False},
        17,
    ),
    (
        {"bookies_tell_lac_of_last": False},
        {"bookies": 2, "send_limit": 2, "message_loss": False, "metadata_lags": False},
        23,
    ),
    ({"adds_keep_lac": False}, {**ONE_COPY, **TWO_ENTRIES, "clients": 1}, 9),
    ({"recovery_freezes_lac": False}, {**ONE_BOOKIE, **TWO_ENTRIES}, 12),
    ({"recovery_waits_needlessly": True}, {"bookies": 2, "ack_quorum": 1}, 14),
]

# Constants with which it takes steps that `bookkeeper` lacks, and the states of the shortest such behaviour.
MORE: list[tuple[dict[str, Any], int]] = [
    ({**ONE_BOOKIE, **TWO_ENTRIES, "reads_in_flight": 2}, 9),
    ({**ONE_COPY, **TWO_ENTRIES, "appends_while_changing": True, "clients": 1}, 5),
    ({**ONE_COPY, "mark_answers_lost": True}, 5),
    ({**ONE_COPY, "crashes": 1}, 2),
]


def variant(**changes: Any) -> type[Protocol]:
    """``store`` with other arguments of its refinement."""

    class Variant(Store):
        refines_bookkeeper = dataclasses.replace(DECLARED, **changes)

    return Variant


@pytest.mark.parametrize(
    "constants",
    [
        *campaign_if(bool, [ONE_COPY, {**ONE_COPY, "metadata_answers_lost": True}, {**ONE_BOOKIE, **TWO_ENTRIES}]),
        {"bookies": 2, "readers": 1, "message_loss": False},
        {
            "bookies": 3,
            "ensemble_size": 3,
            "send_limit": 2,
            "message_loss": False,
            "metadata_lags": False,
            "clients": 1,
        },
        {"bookies": 3, "choose_ensembles": True, "clients": 1},
    ],
    ids=str,
)
def test_every_step_is_one_of_bookkeeper(constants: dict[str, Any]) -> None:
    assert Store(**constants).is_published
    assert check(Store(**constants), invariants=[NAME]).must_hold()


NOTED: dict[str, dict[str, Any]] = {
    "bookies_tell_lac_of_last": {"bookie.lac_of_last": lambda self, b: 0},
    "adds_keep_lac": {
        "client.pending_add_ops": lambda self, c: frozenset(
            op.replace(lac=0) for op in PUBLISHED["client.pending_add_ops"](self, c)
        )
    },
}
"""The parts that the original does not record. Without these mappings the first difference would be there."""


@pytest.mark.parametrize(
    ("original", "constants", "states"),
    campaign_if(lambda row: row not in (ORIGINAL[0], ORIGINAL[4]), ORIGINAL),
    ids=[next(iter(row[0])) for row in ORIGINAL],
)
def test_the_original_is_too_narrow(original: dict[str, Any], constants: dict[str, Any], states: int) -> None:
    (constant,) = original
    mapping = {**DECLARED.mapping, **NOTED.get(constant, {})}
    narrow = variant(constants={**DECLARED.constants, **original}, mapping=mapping)
    assert len(check(narrow(**constants), invariants=[NAME]).must_violate(NAME)) == states


def test_a_configuration_of_bookkeeper_has_none_of_the_original() -> None:
    given = BookKeeper.configurations["as-the-store"].constants
    assert {constant: given[constant] for row in ORIGINAL for constant in row[0]} == {
        constant: not original for row in ORIGINAL for constant, original in row[0].items()
    }


@pytest.mark.parametrize(("constants", "states"), MORE, ids=str)
def test_where_it_does_more_it_is_not_held_to_bookkeeper(constants: dict[str, Any], states: int) -> None:
    assert not Store(**constants).is_published
    always = variant(when=None)
    assert len(check(always(**constants), invariants=[NAME], options=Options(workers=1)).must_violate(NAME)) == states
