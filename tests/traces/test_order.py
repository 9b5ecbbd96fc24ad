"""The order of steps, compared with brute force: the allowed orders have every cause before its effect."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fencepost.traces.validation.order import PartialOrder, are_in_lines
from fencepost.traces.validation.steps import Step

MOST = 6
MESSAGES = st.sampled_from(("x", "y"))


@st.composite
def traces(draw: st.DrawFn) -> tuple[list[Step], list[str]]:
    """Steps and the node of each. No version is written twice."""
    count = draw(st.integers(0, MOST))
    written = iter(draw(st.permutations([(name, version) for name in "rs" for version in range(3)])))
    steps = [
        Step(
            "acts",
            sends=tuple(draw(st.lists(MESSAGES, max_size=2))),
            receives=draw(st.none() | MESSAGES),
            reads=draw(st.none() | st.tuples(st.sampled_from("rs"), st.integers(0, 2))),
            writes=next(written) if draw(st.booleans()) else None,
        )
        for _ in range(count)
    ]
    return steps, draw(st.lists(st.sampled_from(("n1", "n2", "n3")), min_size=count, max_size=count))


def is_allowed(order: Sequence[int], steps: Sequence[Step], nodes: Sequence[str]) -> bool:
    """Whether causes come first, by the definition in the module: checked for a whole order and step by step, not by a
    graph.
    """
    at = {number: place for place, number in enumerate(order)}
    for one, other in product(range(len(steps)), repeat=2):
        if one < other and nodes[one] == nodes[other] and at[one] > at[other]:
            return False
    by_node = [number for node in dict.fromkeys(nodes) for number in range(len(steps)) if nodes[number] == node]
    for message in ("x", "y"):
        sent = [number for number in by_node for each in steps[number].sends if each == message]
        received = [number for number in by_node if steps[number].receives == message]
        for cause, number in zip(sent, received, strict=False):
            if at[cause] >= at[number]:
                return False
    writer = {step.writes: number for number, step in enumerate(steps) if step.writes is not None}
    for version, number in writer.items():
        before = writer.get((version[0], version[1] - 1))
        if before is not None and at[before] > at[number]:
            return False
    for number, step in enumerate(steps):
        if step.reads is not None:
            name, seen = step.reads
            for wrote, comes_first in ((writer.get((name, seen)), True), (writer.get((name, seen + 1)), False)):
                if wrote is not None and wrote != number and (at[wrote] < at[number]) is not comes_first:
                    return False
    return True


def orders_of(order: PartialOrder) -> set[tuple[int, ...]]:
    """All orders in which every step comes after what it waits for."""
    found: set[tuple[int, ...]] = set()

    def go_on(taken: tuple[int, ...], waits: list[int], ready: list[int]) -> None:
        if not ready:
            found.add(taken)
        for number in ready:
            left, fresh = list(waits), [other for other in ready if other != number]
            for other in order.after[number]:
                left[other] -= 1
                if not left[other]:
                    fresh.append(other)
            go_on((*taken, number), left, fresh)

    go_on((), list(order.waits), order.first())
    return found


@given(traces())
def test_the_orders_are_those_in_which_causes_come_first(trace: tuple[list[Step], list[str]]) -> None:
    steps, nodes = trace
    order = PartialOrder(zip(nodes, steps, strict=True))
    allowed = {each for each in permutations(range(len(steps))) if is_allowed(each, steps, nodes)}
    assert {each for each in orders_of(order) if len(each) == len(steps)} == allowed
    assert bool(order.cycle()) is not bool(allowed)


@given(traces())
def test_steps_that_come_in_lines_are_ordered_as_others(trace: tuple[list[Step], list[str]]) -> None:
    steps, nodes = trace
    nodes.sort()
    assert are_in_lines(nodes)
    one, other = (PartialOrder(zip(nodes, steps, strict=True), each) for each in (False, True))
    assert list(map(sorted, one.after)) == list(map(sorted, other.after))
    assert (one.waits, one.unsent) == (other.waits, other.unsent)


def test_lines_are_told_from_other_orders() -> None:
    assert all(map(are_in_lines, ("", "a", "aabb", "bbac")))
    assert not any(map(are_in_lines, ("aba", "abbca")))


@given(traces())
def test_a_circle_is_one(trace: tuple[list[Step], list[str]]) -> None:
    steps, nodes = trace
    order = PartialOrder(zip(nodes, steps, strict=True))
    circle = order.cycle()
    assert len(set(circle)) == len(circle)
    for one, other in zip(circle, [*circle[1:], *circle[:1]], strict=True):
        assert other in order.after[one]


def test_a_circle_says_in_which_order_it_goes() -> None:
    steps = [Step("a", receives="x"), Step("b", sends=("y",)), Step("c", receives="y"), Step("d", sends=("x",))]
    order = PartialOrder(zip("nnmm", steps, strict=True))
    circle = order.cycle()
    assert circle[circle.index(0) :] + circle[: circle.index(0)] == [0, 1, 2, 3]


def test_what_nobody_has_sent_is_known() -> None:
    order = PartialOrder([("n", Step("a", receives="x")), ("m", Step("b"))])
    assert (order.first(), order.unsent) == ([0, 1], {0})


def test_a_message_is_received_no_more_often_than_it_is_sent() -> None:
    steps = [Step("a", sends=("x",)), Step("b", sends=("x",)), *(Step("c", receives="x") for _ in range(4))]
    order = PartialOrder(zip("nnmmmm", steps, strict=True))
    assert (order.after[0], order.after[1], order.unsent) == ([1, 2], [3], {4, 5})


def test_a_step_that_sends_to_itself_is_a_circle() -> None:
    assert PartialOrder([("n", Step("a", sends=("x",), receives="x"))]).cycle() == [0]


def test_who_reads_what_it_writes_waits_for_nobody() -> None:
    order = PartialOrder([("n", Step("a", reads=("r", 1), writes=("r", 1)))])
    assert order.first() == [0]


def test_many_steps_in_a_line_and_across() -> None:
    random = Random(1)
    nodes = [f"n{random.randrange(20)}" for _ in range(3_000)]
    steps = [
        Step("a", sends=(number,), receives=random.randrange(number) if number else None) for number in range(3_000)
    ]
    order = PartialOrder(zip(nodes, steps, strict=True))
    assert not order.cycle()
