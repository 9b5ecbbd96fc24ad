"""The decisions of writers, readers and trims of a log."""

from __future__ import annotations

import ast
from bisect import bisect_left
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as some
from ledger.rules.test_imports import FORBIDDEN_NAMES, imports, path_of

from fencepost.log.chain import Batch, Chain, Link
from fencepost.log.rules import (
    BATCH_WRITERS,
    After,
    Attaching,
    Failure,
    Limits,
    Onward,
    Search,
    Status,
    Update,
    after_closing,
    after_failure,
    after_reading,
    after_update,
    appended_by,
    before_attaching,
    entry_time,
    first_of,
    follows,
    has_room,
    is_full,
    is_through,
    may_write,
    never_attached,
    never_chained,
    place_of_time,
    room,
    trimmable_before_ledger,
    trimmable_before_time,
    trimmable_but,
    with_batch,
)


def chain(*ledgers: int, trimmed: int = 0, sealed: bool = False) -> Chain:
    return Chain(tuple(Link(ledger, 0) for ledger in ledgers), trimmed, sealed)


OF_VALUES = {
    "fencepost.language.values",
    "fencepost.ledger.wire.varint",
    "fencepost.log.errors",
    "fencepost.errors",
}


def test_rules_and_roles_do_no_input_or_output() -> None:
    plain = {
        "__future__",
        "bisect",
        "dataclasses",
        "enum",
        "functools",
        "re",
        "typing",
        "collections",
        "collections.abc",
        "itertools",
        "msgspec",
    }
    of_store = {"fencepost.ledger.roles.interface"}
    of_log = {"fencepost.log.chain", "fencepost.log.rules", "fencepost.log.roles.leader"}
    for module in of_log:
        assert set(imports(module)) <= plain | OF_VALUES | of_store | of_log, module
        names = {node.id for node in ast.walk(ast.parse(path_of(module).read_text())) if isinstance(node, ast.Name)}
        assert not names & FORBIDDEN_NAMES, module


def test_a_leader_closes_the_last_ledger_first() -> None:
    assert after_reading(chain(3, 1)) is Status.CLOSE_LAST_LEDGER
    assert after_reading(chain()) is Status.PENDING_CREATE_LEDGER
    assert after_reading(chain(), seals=True) is Status.PENDING_APPEND_LEDGER
    assert after_reading(chain(3, sealed=True)) is None
    assert after_closing() is Status.PENDING_CREATE_LEDGER


@pytest.mark.parametrize(
    ("found", "update"),
    [
        (chain(1, 2), Update.TRY_AGAIN),
        (chain(2, trimmed=1), Update.TRY_AGAIN),
        (chain(1, 2, 9), Update.DONE),
        (chain(9, trimmed=2), Update.DONE),
        (chain(1, 2, 9, sealed=True), Update.SEALED),
        (chain(1, 2, sealed=True), Update.SEALED),
        (chain(1, 2, 5), Update.LOST),
        (chain(5, trimmed=2), Update.LOST),
        (chain(1, 2, 9, 5), Update.LOST),
    ],
)
def test_what_has_become_of_an_update(found: Chain, update: Update) -> None:
    assert after_update(chain(1, 2), 9, found) is update


def test_what_has_become_of_a_seal() -> None:
    assert after_update(chain(1), None, chain(1, sealed=True)) is Update.DONE
    assert after_update(chain(1), None, chain(1)) is Update.TRY_AGAIN
    assert after_update(chain(1), None, chain(1, 2)) is Update.LOST


def test_a_ledger_is_deleted_only_if_it_never_was_in_the_chain() -> None:
    seen = chain(1, 2)
    assert never_chained(seen, 9, chain(1, 2, 5))
    assert never_chained(seen, 9, chain(5, trimmed=2))
    assert not never_chained(seen, 9, chain(1, 2, 9, 5))
    assert not never_chained(seen, 9, chain(5, trimmed=3)), "what was trimmed may have been this one"


def test_entries_are_written_to_an_open_ledger_alone() -> None:
    assert [status for status in Status if may_write(status)] == [Status.HAS_OPEN_LEDGER]


def test_the_last_entry_of_a_closed_ledger_decides() -> None:
    assert appended_by(closed_at=4, written=10, acknowledged=3) == 5
    assert appended_by(closed_at=-1, written=2, acknowledged=0) == 0
    with pytest.raises(ValueError, match="closed at entry 1, and 3 entries of it were acknowledged"):
        appended_by(closed_at=1, written=3, acknowledged=3)


def test_a_leader_steps_down_for_another_and_rolls_over_in_trouble() -> None:
    assert after_failure(Failure.FENCED) is After.STEP_DOWN
    assert after_failure(Failure.TROUBLE) is After.ROLL


def test_a_ledger_is_full_by_entries_size_or_age() -> None:
    limits = Limits(entries=3, size=100, age=50)
    assert not is_full(limits, 2, 99, 49)
    assert is_full(limits, 3, 0, 0) and is_full(limits, 1, 100, 0) and is_full(limits, 1, 0, 50)
    assert not is_full(limits, 0, 0, 99), "an empty ledger is as good as a new one"
    assert not is_full(Limits(), 1 << 40, 1 << 50, 1 << 50)


@given(
    some.builds(Limits, *[some.integers(0, 6)] * 3),
    some.integers(0, 5),
    some.integers(0, 8),
    some.integers(0, 8),
    some.lists(some.integers(0, 4), max_size=8),
)
def test_a_ledger_takes_one_entry_after_another_until_it_is_full(
    limits: Limits, entries: int, size: int, age: int, waiting: list[int]
) -> None:
    if not entries:
        size = age = 0
    taken = 0
    while taken < len(waiting) and not is_full(limits, entries + taken, size + sum(waiting[:taken]), age):
        taken += 1
    before = [7, 9]
    offsets = [*accumulate([*before, *waiting], initial=5)]
    assert room(limits, entries, size, age, offsets, len(before)) == taken


def test_what_waits_is_limited_but_one_append_is_never_too_large() -> None:
    assert has_room(3, 10, 3, 10)
    assert not has_room(4, 10, 3, 10) and not has_room(2, 11, 3, 10)
    assert has_room(1, 11, 3, 10)


def test_a_reader_goes_from_ledger_to_ledger() -> None:
    assert first_of(chain(7, 3)) == 7
    assert first_of(chain()) is Onward.WAIT and first_of(chain(sealed=True)) is Onward.END
    assert follows(chain(7, 3), 7) == 3
    assert follows(chain(7, 3), 3) is Onward.WAIT and follows(chain(7, 3, sealed=True), 3) is Onward.END
    assert follows(chain(7, 3), 5) is Onward.TRIMMED
    assert is_through(5, 4) and not is_through(4, 4) and not is_through(5, None)
    assert is_through(0, -1)


TIMES = some.lists(some.integers(0, 30), max_size=20).map(sorted)


@given(TIMES, some.integers(-1, 31))
def test_the_ledger_of_a_time_is_found_without_reading(times: list[int], time: int) -> None:
    """The time may be in the last older ledger, or be the first of the next one."""
    found = place_of_time(Chain(tuple(Link(n, at) for n, at in enumerate(times))), time)
    assert found == max(0, bisect_left(times, time) - 1)


@given(TIMES, some.integers(-1, 31))
def test_an_entry_of_a_time_is_found_in_a_logarithmic_number_of_reads(times: list[int], time: int) -> None:
    search, reads = Search(0, len(times)), 0
    while (probe := search.probe) is not None:
        search = search.probed(times[probe], time)
        reads += 1
    assert search.low == bisect_left(times, time)
    assert reads <= len(times).bit_length()


@given(TIMES, some.integers(-1, 31))
def test_what_is_trimmed_by_time_is_older(times: list[int], time: int) -> None:
    count = trimmable_before_time(Chain(tuple(Link(n, at) for n, at in enumerate(times))), time)
    assert count == sum(following <= time for following in times[1:])


def test_what_is_trimmed_by_ledger_and_by_number() -> None:
    assert trimmable_before_ledger(chain(7, 3, 5), 5) == 2
    assert trimmable_before_ledger(chain(7, 3, 5), 7) == trimmable_before_ledger(chain(7, 3, 5), 9) == 0
    assert [trimmable_but(chain(7, 3, 5), keep) for keep in (0, 1, 2, 3, 4)] == [2, 2, 1, 0, 0]


# -- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_is_attached_unless_it_is_there_or_withdrawn_or_the_log_is_sealed() -> None:
    chain = with_batch(Chain().appended(1, 5), Batch("q", 4), (7, 3), 9)
    assert chain.links == (Link(1, 5), Link(7, 9), Link(3, 9)) and chain.batches == (Batch("q", 4),)
    there = [before_attaching(chain, Batch("q", number), (8,), True) for number in (3, 4, 5)]
    assert there == [Attaching.THERE, Attaching.THERE, Attaching.ATTACH]
    assert before_attaching(chain, Batch("r", 0), (8,), True) is Attaching.ATTACH, "another writer is another"
    assert before_attaching(chain, None, (8, 9), True) is Attaching.ATTACH
    assert before_attaching(chain, None, (8, 3), False) is Attaching.THERE, "it is known by its ledgers, too"
    assert before_attaching(chain, Batch("q", 5), (8,), False) is Attaching.WITHDRAWN
    sealed = chain.as_sealed()
    assert before_attaching(sealed, Batch("q", 5), (8,), True) is Attaching.SEALED
    assert before_attaching(sealed, Batch("q", 4), (8,), True) is Attaching.THERE, (
        "what is there was there before the seal"
    )


def test_ledgers_of_batches_that_are_there_are_not_attached_any_more() -> None:
    chain = with_batch(Chain(), Batch("q", 4), (7,), 9)
    assert [never_attached(chain, Batch("q", number), 8) for number in (3, 4, 5)] == [True, True, False]
    assert not never_attached(chain, Batch("q", 4), 7) and not never_attached(chain, Batch("r", 0), 8)


def test_so_many_writers_of_batches_are_remembered_as_attached_last() -> None:
    chain = Chain()
    for number in range(BATCH_WRITERS):
        chain = with_batch(chain, Batch(f"q{number}", 0), (), 0)
    chain = with_batch(chain, Batch("q0", 1), (), 0)
    assert chain.batches[-1] == Batch("q0", 1) and len(chain.batches) == BATCH_WRITERS
    chain = with_batch(with_batch(chain, Batch("new", 0), (), 0), None, (5,), 0)
    assert len(chain.batches) == BATCH_WRITERS
    assert [chain.last_batch(writer) for writer in ("q0", "q1", "q2", "new")] == [1, -1, 0, 0]


@given(
    some.lists(
        some.tuples(some.integers(0, 50), some.booleans(), some.lists(some.integers(0, 50), max_size=3)), max_size=8
    )
)
def test_times_never_go_back_whatever_the_clocks_say(ledgers: list[tuple[int, bool, list[int]]]) -> None:
    """A client that creates or attaches a ledger knows the last header of the ledger before it. In batches, every
    header has 0.
    """
    chain = Chain()
    headers: list[list[int]] = [[0]]
    for number, (clock, is_batch, steps) in enumerate(ledgers):
        created = max(clock, headers[-1][-1])
        chain = with_batch(chain, None, (number,), created) if is_batch else chain.appended(number, created)
        headers.append([0 if is_batch else created + sum(steps[:at]) for at in range(len(steps) + 1)])
    times = [
        entry_time(header, link.created) for link, some in zip(chain.links, headers[1:], strict=True) for header in some
    ]
    assert times == sorted(times)
