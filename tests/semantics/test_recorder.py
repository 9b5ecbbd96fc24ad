"""The recorder: the reads, choices and writes of an evaluation, in order, and what it refuses."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from fencepost import (
    FencepostError,
    Message,
    Protocol,
    ProtocolRaised,
    Record,
    State,
    Table,
    action,
    constant,
    constraint,
    initial,
    invariant,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
    step_constraint,
    step_invariant,
    table,
)
from fencepost.semantics import Branch, Fork, Leaf, Outcome, Read, Root, Stepper
from fencepost.semantics import stepper as stepper_module


class Abc(Protocol):
    """Three counters. Tests add an action."""

    a: Any = state(0)
    b: Any = state(0)
    c: Any = state(0)


def stepper_of(
    body: Callable[..., Any], kind: Callable[[Any], Any] = action, base: type[Protocol] = Abc
) -> tuple[Stepper, Root]:
    def go(self: Any, *rest: Any) -> Any:
        return body(self, *rest)

    stepper = Stepper(type("P", (base,), {"go": kind(go)})())
    return stepper, next(r for r in stepper.roots if r.name == "go")


def row(stepper: Stepper, **held: Any) -> tuple[int, ...]:
    """The state with these values in the named slots, and defaults elsewhere."""
    ids = [0] * len(stepper.store.slots)
    for index, slot in enumerate(stepper.store.slots):
        if slot.name in held:
            ids[index] = stepper.store.intern(index, held.pop(slot.name))
    assert not held
    return stepper.store.normal(ids)


def shape(tree: Branch, stepper: Stepper) -> Any:
    """A tree as nested tuples: ("a", 0, then), [branches], or the writes of each outcome."""
    if isinstance(tree, Read):
        return (
            stepper.store.slots[tree.slot].name,
            stepper.store.values[tree.slot][tree.value],
            shape(tree.then, stepper),
        )
    if isinstance(tree, Fork):
        return [shape(branch, stepper) for branch in tree.branches]
    assert isinstance(tree, Leaf)
    return tuple((o.choices, written(stepper, o)) for o in tree.outcomes)


def written(stepper: Stepper, outcome: Outcome) -> dict[str, tuple[Any, Any]]:
    store = stepper.store
    return {
        store.slots[s].name: (store.values[s][old], store.values[s][new]) for s, (old, new) in outcome.writes.items()
    }


def tree_of(body: Callable[..., Any], **held: Any) -> Any:
    stepper, root = stepper_of(body)
    return shape(stepper.evaluate(root, row(stepper, **held)), stepper)


# -- reads and writes -------------------------------------------------------------------------------------------------


def test_reads_are_in_order_and_noted_once() -> None:
    def body(s: Any) -> None:
        require(s.b == 0)
        s.c = s.a + s.b + s.a

    assert tree_of(body, a=5) == ("b", 0, ("a", 5, ("c", 0, (((), {"c": (0, 10)}),))))


def test_what_is_written_is_read_first() -> None:
    def body(s: Any) -> None:
        s.b = 7
        s.a = 1

    assert tree_of(body, b=3) == ("b", 3, ("a", 0, (((), {"b": (3, 7), "a": (0, 1)}),)))


def test_an_action_reads_what_it_wrote() -> None:
    def body(s: Any) -> None:
        s.a = 4
        s.b = s.a + 1
        s.a += 1

    assert tree_of(body) == ("a", 0, ("b", 0, (((), {"a": (0, 5), "b": (0, 5)}),)))


def test_a_write_that_changes_nothing_is_a_step_without_writes() -> None:
    def body(s: Any) -> None:
        s.a = 9
        s.a = 3

    assert tree_of(body, a=3) == ("a", 3, (((), {}),))


def test_one_and_true_are_two_values() -> None:
    def body(s: Any) -> None:
        s.a = True

    assert tree_of(body, a=1) == ("a", 1, (((), {"a": (1, True)}),))
    stepper, _ = stepper_of(body)
    numbers = [stepper.store.intern(0, v) for v in (1, True, 1.0, "1", False, 0.0)]
    assert len(set(numbers)) == 6 and 0 not in numbers


def test_a_disabled_action_keeps_its_reads_and_has_no_outcome() -> None:
    def body(s: Any) -> None:
        s.a = 3
        require(s.b > 0)
        s.c = 1

    assert tree_of(body) == ("a", 0, ("b", 0, ()))


def test_require_takes_true_and_false() -> None:
    assert tree_of(lambda s: require(False)) == ()
    assert tree_of(lambda s: require(True)) == (((), {}),)


def goes_on_after_a_bare_except(s: Any) -> None:
    try:
        require(s.a == 1)
    except:  # noqa: E722
        pass
    s.b = 1


def goes_on_after_finally(s: Any) -> None:
    try:
        require(s.a == 1)
    finally:
        s.b = 1
        return  # noqa: B012


def catches_everything(s: Any) -> None:
    with contextlib.suppress(BaseException):
        one_of([])


@pytest.mark.parametrize("body", [goes_on_after_a_bare_except, goes_on_after_finally, catches_everything])
@pytest.mark.parametrize("checking", [False, True])
def test_what_goes_on_after_require_failed_is_refused(body: Any, checking: bool) -> None:
    stepper, root = stepper_of(body)
    stepper.checking = checking
    with pytest.raises(
        ProtocolRaised, match=r"^action .* went on after require\(\.\.\.\) was not satisfied, which cannot be caught"
    ) as raised:
        stepper.evaluate(root, row(stepper))
    assert "\n" not in str(raised.value)
    if body is not catches_everything:
        assert shape(stepper.evaluate(root, row(stepper, a=1)), stepper)


def test_what_cleans_up_after_require_failed_is_left_alone() -> None:
    def body(s: Any) -> None:
        try:
            require(s.a == 1)
        finally:
            s.b = 1

    assert tree_of(body) == ("a", 0, ("b", 0, ()))


def test_slots_appear_as_they_are_touched_and_every_state_holds_their_default() -> None:
    class Late(Protocol):
        logs: Table[Any, Any] = table()

        @action
        def go(self) -> None:
            self.logs["x"] = len(self.logs)

    stepper = Stepper(Late())
    (start,) = stepper.initial_states()
    assert [s.name for s in stepper.store.slots] == ["logs.keys"]
    (outcome,) = stepper.outcomes(stepper.roots[0], start.ids)
    assert [s.name for s in stepper.store.slots] == ["logs.keys", "logs.x"]
    after = State(stepper.store, stepper.apply(start.ids, outcome))
    assert after.variables()["logs"] == {"x": 0} and start.variables()["logs"] == {}
    assert State(stepper.store, start.ids) == State(stepper.store, (*start.ids, 0, 0))
    assert [(slot.name, old, new) for slot, old, new in after.changes(start)] == [
        ("logs.keys", frozenset(), {"x"}), ("logs.x", (), (0,)),
    ]  # fmt: skip
    assert start.changes(after) == [(slot, new, old) for slot, old, new in after.changes(start)]


# -- choices ----------------------------------------------------------------------------------------------------------


def test_choices_of_a_set_are_in_canonical_order_and_of_a_sequence_in_its_own() -> None:
    def body(s: Any) -> None:
        s.a = one_of({"z", "a", "m"})
        s.b = one_of(["z", "a"])

    stepper, root = stepper_of(body)
    outcomes = stepper.outcomes(root, ())
    assert [o.choices for o in outcomes] == [(i, j) for i in range(3) for j in range(2)]
    assert [o.labels for o in outcomes] == [(x, y) for x in "amz" for y in "za"]
    assert [written(stepper, o)["a"][1] for o in outcomes] == list("aammzz")


def test_a_choice_of_one_is_none_and_a_choice_of_nothing_disables() -> None:
    assert tree_of(lambda s: setattr(s, "a", one_of([3]))) == ("a", 0, (((), {"a": (0, 3)}),))
    assert tree_of(lambda s: one_of(())) == ()
    assert tree_of(lambda s: one_of(x for x in (1, 2) if x > s.a), a=2) == ("a", 2, ())


def test_options_that_are_equal_are_options_of_their_own() -> None:
    assert tree_of(lambda s: one_of([5, 5])) == (((0,), {}), ((1,), {}))


def test_options_that_go_on_to_read_are_branches_and_those_that_end_share_a_leaf() -> None:
    def body(s: Any) -> None:
        which = one_of(["end", "b", "stop", "c", "off"])
        require(which != "off")
        if which == "b":
            require(s.b == 0)
        if which == "c":
            s.c = 1

    assert tree_of(body) == [
        ("b", 0, (((1,), {}),)),
        ("c", 0, (((3,), {"c": (0, 1)}),)),
        (((0,), {}), ((2,), {})),
    ]


def test_a_choice_before_and_after_a_read() -> None:
    def body(s: Any) -> None:
        n = one_of((1, 2))
        s.a += n
        m = one_of(range(s.a))
        s.b = m

    assert tree_of(body) == [
        ("a", 0, ("b", 0, (((0,), {"a": (0, 1)}),))),
        ("a", 0, [("b", 0, (((1, 0), {"a": (0, 2)}),)), ("b", 0, (((1, 1), {"a": (0, 2), "b": (0, 1)}),))]),
    ]


def test_choices_whose_number_depends_on_earlier_ones() -> None:
    def body(s: Any) -> None:
        for _ in range(one_of((0, 1, 2))):
            one_of("xy")

    stepper, root = stepper_of(body)
    assert [o.choices for o in stepper.outcomes(root, ())] == [
        (0,), (1, 0), (1, 1), (2, 0, 0), (2, 0, 1), (2, 1, 0), (2, 1, 1),
    ]  # fmt: skip


def test_an_infinite_choice_is_named() -> None:
    for body, message in (
        (lambda s: one_of(itertools.count()), r"a choice has more than 32,768 options: is it infinite\?"),
        (lambda s: [one_of("xy") for _ in range(9)], r"has more than 100 ways through its choices: is one infinite\?"),
    ):
        stepper, root = stepper_of(body)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stepper_module, "MAX_WAYS", 100)
            with pytest.raises(ProtocolRaised, match=message):
                stepper.outcomes(root, ())


def test_as_many_ways_as_allowed_are_allowed() -> None:
    stepper, root = stepper_of(lambda s: (one_of(range(10)), one_of(range(10))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepper_module, "MAX_WAYS", 100)
        assert len(stepper.outcomes(root, ())) == 100


def test_a_choice_outside_an_action_is_refused() -> None:
    with pytest.raises(FencepostError, match=r"one_of\(\) can only be asked inside an action or the initial state"):
        one_of((1, 2))


# -- disabled actions and errors ---------------------------------------------------------------------------------------


def test_an_author_s_except_can_not_swallow_that_an_action_is_disabled() -> None:
    def body(s: Any) -> None:
        try:
            require(s.a == 1)
        except Exception:
            s.b = 99
        s.c = 1

    assert tree_of(body) == ("a", 0, ())
    assert tree_of(body, a=1) == ("a", 1, ("c", 0, (((), {"c": (0, 1)}),)))

    def empty(s: Any) -> None:
        try:
            one_of(())
        except Exception:
            s.b = 99

    assert tree_of(empty) == ()


class Node(Record):
    up: bool = True


class Mistaken(Protocol):
    nodes: Any = model_values("n", 2)
    node: Any = per_key(nodes, Node)
    count: int = state(0)

    @action(n=nodes, k=(1, 2))
    def fail(self, n: Any, k: int) -> None:
        if self.count == 2:
            raise ValueError("the reason\nand more of it")
        self.count += 1


def test_any_other_exception_names_the_action_and_the_state() -> None:
    stepper = Stepper(Mistaken())
    root = next(r for r in stepper.roots if r.title == "fail(n=n2, k=1)")
    ids = row(stepper, count=2)
    for run in (stepper.outcomes, stepper.evaluate):
        with pytest.raises(ProtocolRaised) as raised:
            run(root, ids)
        assert str(raised.value).startswith("action fail(n=n2, k=1) raised ValueError: the reason at ")
        assert "test_recorder.py:" in str(raised.value) and "\n" not in str(raised.value)
        assert raised.value.where == "fail(n=n2, k=1)" and raised.value.exit_code == 75
        assert isinstance(raised.value.state, State) and raised.value.state.variables()["count"] == 2
        assert type(raised.value.__cause__) is ValueError


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda s: s.nothing, "action go raised AttributeError: 'P' object has no attribute 'nothing'"),
        (
            lambda s: setattr(s, "nothing", 1),
            "action go raised AttributeError: nothing is not a state variable of p: declare it",
        ),
        (lambda s: {}["k"], "action go raised KeyError: "),  # type: ignore[index]
        (lambda s: 1 // s.a, "action go raised ZeroDivisionError: "),
        (lambda s: next(iter(())), "action go raised StopIteration"),
        (lambda s: setattr(s, "a", [1]), "action go: a is assigned a list, which is mutable; use a tuple"),
        (lambda s: setattr(s, "a", (1, {2})), "action go: a is assigned a set, which is mutable; use a frozenset"),
        (lambda s: setattr(s, "a", s), "action go: a is assigned a P, which Fencepost does not know"),
    ],
)
def test_what_an_author_gets_wrong_is_one_line(body: Any, message: str) -> None:
    stepper, root = stepper_of(body)
    with pytest.raises(ProtocolRaised) as raised:
        stepper.outcomes(root, ())
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


def test_a_failed_assertion_and_endless_recursion_are_errors_too() -> None:
    def assertion(s: Any) -> None:
        assert s.a == 1, "a must be one"

    def recursion(s: Any) -> None:
        recursion(s)

    for body, message in ((assertion, "raised AssertionError: a must be one"), (recursion, "recursed too deeply")):
        stepper, root = stepper_of(body)
        with pytest.raises(ProtocolRaised, match=message):
            stepper.outcomes(root, ())


def test_an_interrupt_is_let_through() -> None:
    def body(s: Any) -> None:
        raise KeyboardInterrupt

    stepper, root = stepper_of(body)
    with pytest.raises(KeyboardInterrupt):
        stepper.outcomes(root, ())
    # It leaves nothing behind.
    with pytest.raises(FencepostError, match="can only be asked inside an action"):
        one_of((1, 2))


# -- determinism ------------------------------------------------------------------------------------------------------


def unsteady(*answers: Any) -> Callable[[], Any]:
    """Gives the next of ``answers`` each time, and then the last one again."""
    given = iter(answers)
    last = [answers[-1]]
    return lambda: next(given, last[0])


@pytest.mark.parametrize(
    "make",
    [
        # The number of options, before and at the choice in question.
        lambda: lambda s, n=unsteady(3, 1): one_of(range(n())),
        lambda: lambda s, n=unsteady(3, 2): one_of(range(n())),
        lambda: lambda s, n=unsteady(2, 3): one_of(range(n())),
        # Reads before a choice, and between two.
        lambda: lambda s, n=unsteady("a", "b"): (getattr(s, n()), one_of("xy")),
        lambda: lambda s, n=unsteady("a", "b"): (one_of("xy"), getattr(s, n()), one_of("xy")),
        # Whether a choice follows.
        lambda: lambda s, n=unsteady(True, False): (one_of("xy"), n() and one_of("xy")),
        lambda: lambda s, n=unsteady(False, True): (one_of("xy") if n() else s.a, one_of("xy")),
    ],
)
def test_an_action_that_is_not_deterministic_is_found_out(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.semantics.repeats.FIRST", 0)  # so not already when it is repeated
    stepper, root = stepper_of(make())
    with pytest.raises(ProtocolRaised, match="action go was not deterministic") as raised:
        stepper.evaluate(root, ())
    assert raised.value.where == "go" and isinstance(raised.value.state, State)


# -- properties -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [invariant, constraint])
def test_a_property_holds_or_does_not(kind: Any) -> None:
    stepper, root = stepper_of(lambda s: s.b == 1 or s.a < 2, kind)
    assert stepper.outcomes(root, row(stepper, a=1)) == []
    assert len(stepper.outcomes(root, row(stepper, a=2))) == 1
    assert shape(stepper.evaluate(root, row(stepper, a=2)), stepper) == ("b", 0, ("a", 2, (((), {}),)))
    assert shape(stepper.evaluate(root, row(stepper, a=2, b=1)), stepper) == ("b", 1, ())


@pytest.mark.parametrize("kind", [step_invariant, step_constraint])
def test_a_step_property_reads_before_and_after(kind: Any) -> None:
    stepper, root = stepper_of(lambda s, after: after.c < 1 or s.a <= after.a, kind)
    before, after = row(stepper, a=2), row(stepper, a=1, c=1)
    assert len(stepper.outcomes(root, before, after)) == 1
    assert stepper.outcomes(root, after, row(stepper, a=2, c=1)) == []
    tree = stepper.evaluate(root, before, after)
    trail = []
    while isinstance(tree, Read):
        slot, late = divmod(tree.slot, 2)
        trail.append((stepper.store.slots[slot].name, late, stepper.store.values[slot][tree.value]))
        tree = tree.then
    assert trail == [("c", 1, 1), ("a", 0, 2), ("a", 1, 1)]
    assert isinstance(tree, Leaf) and len(tree.outcomes) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda s, *after: setattr(s, "a", 1), "a property cannot assign to the state"),
        (lambda s, *after: one_of((True, False)), "a property cannot choose"),
        (lambda s, *after: require(s.a == 1), r"asked require\(\.\.\.\), which only an action can"),
        (lambda s, *after: one_of(()), r"asked require\(\.\.\.\), which only an action can"),
        (lambda s, *after: None, "returned nothing: a property returns true or false"),
        (lambda s, *after: 1 // s.a, "raised ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("kind", [invariant, constraint, step_invariant, step_constraint])
def test_a_property_only_looks(kind: Any, body: Any, message: str) -> None:
    stepper, root = stepper_of(body, kind)
    after = ((),) if root.kind.startswith("step") else ()
    with pytest.raises(ProtocolRaised, match=f"^{root.kind.replace('_', ' ')} go.*{message}"):
        stepper.outcomes(root, (), *after)


def test_the_state_after_a_step_can_not_be_assigned_either() -> None:
    stepper, root = stepper_of(lambda s, after: setattr(after, "a", 1), step_invariant)
    with pytest.raises(ProtocolRaised, match="a property cannot assign to the state"):
        stepper.outcomes(root, (), ())


# -- roots and parameters ---------------------------------------------------------------------------------------------


class Everything(Protocol):
    nodes: Any = model_values("n", 2)
    sizes: frozenset[int] = constant(frozenset({2, 1}))
    strict: bool = constant(False)
    on: bool = state(False)

    @action(n=nodes, other=lambda p: [m for m in p.nodes if m != p.nodes[0]])
    def first(self, n: Any, other: Any) -> None: ...

    @step_invariant
    def last_property(self, after: Any) -> bool:
        return True

    @action(size=sizes, letter={"b", "a"})
    def second(self, size: int, letter: str) -> None: ...

    @invariant
    def second_invariant(self) -> bool:
        return True

    @step_constraint
    def third_property(self, after: Any) -> bool:
        return True

    @constraint
    def first_property(self) -> bool:
        return True

    @invariant(when=lambda p: p.strict)
    def only_if_strict(self) -> bool:
        return True

    @action
    def third(self) -> None: ...


def test_roots_are_in_their_order_with_parameters_in_theirs() -> None:
    stepper = Stepper(Everything(nodes=["y", "x"]))
    assert [(r.kind, r.title) for r in stepper.roots] == [
        ("constraint", "first_property"),
        ("invariant", "second_invariant"),
        ("step_constraint", "third_property"),
        ("step_invariant", "last_property"),
        ("action", "first(n=y, other=x)"),
        ("action", "first(n=x, other=x)"),
        ("action", "second(size=1, letter='a')"),
        ("action", "second(size=1, letter='b')"),
        ("action", "second(size=2, letter='a')"),
        ("action", "second(size=2, letter='b')"),
        ("action", "third"),
    ]
    assert [r.index for r in stepper.roots] == list(range(11))


def test_invariants_are_selected_by_name_or_by_when() -> None:
    def names(protocol: Protocol, *selected: str) -> list[str]:
        return [r.name for r in Stepper(protocol, selected or None).of_kind("invariant", "step_invariant")]

    assert names(Everything()) == ["second_invariant", "last_property"]
    assert names(Everything(strict=True)) == ["second_invariant", "only_if_strict", "last_property"]
    assert names(Everything(), "last_property", "only_if_strict") == ["only_if_strict", "last_property"]


def test_an_overridden_action_stays_in_its_place() -> None:
    class Variant(Everything):
        @action
        def first(self) -> None:  # type: ignore[override]
            self.on = True

    stepper = Stepper(Variant())
    assert [r.title for r in stepper.of_kind("action")][:2] == ["first", "second(size=1, letter='a')"]
    assert len(stepper.outcomes(stepper.of_kind("action")[0], ())[0].writes) == 1


# -- initial states ---------------------------------------------------------------------------------------------------


def starts(**body: Any) -> list[Any]:
    stepper = Stepper(type("P", (Abc,), body)())
    return [(s.variables()["a"], s.variables()["b"]) for s in stepper.initial_states()]


def test_without_a_set_up_there_is_one_initial_state_as_declared() -> None:
    assert starts() == [(0, 0)]


def test_initial_states_are_in_the_order_of_their_choices_and_found_once() -> None:
    @initial
    def start(self: Any) -> None:
        self.a = one_of([2, 0, 2])
        self.b = one_of({1, 0})
        require(self.a + self.b != 1)

    assert starts(start=start) == [(2, 0), (2, 1), (0, 0)]


def test_what_an_initial_state_raises_is_told() -> None:
    @initial
    def start(self: Any) -> None:
        self.a = 1 // self.b

    with pytest.raises(ProtocolRaised, match="initial state start raised ZeroDivisionError"):
        starts(start=start)


# -- events -----------------------------------------------------------------------------------------------------------


class Ping(Message):
    n: int = 0


def test_events_belong_to_their_outcome() -> None:
    class Net(Protocol):
        nodes: Any = model_values("n", 2)
        net: Any = network({Ping: (nodes, nodes)}, lossy=True)

        @action
        def send(self) -> None:
            self.net.send(Ping(1), *self.nodes)

    stepper = Stepper(Net())
    outcomes = stepper.outcomes(stepper.roots[0], ())
    assert [(o.labels, [e.lost for e in o.events]) for o in outcomes] == [
        (("delivered",), [False]),
        (("lost",), [True]),
    ]


# -- fingerprints -----------------------------------------------------------------------------------------------------


def test_a_fingerprint_is_of_content_and_not_of_numbering() -> None:
    one, other = Stepper(Abc()), Stepper(Abc())
    for number in (5, 6, 7):
        one.store.intern(0, number)
    for value in (7, "x", 6, 5):
        other.store.intern(0, value)
    for a in (0, 5, 6, 7):
        left, right = row(one, a=a, b=a), row(other, a=a, b=a)
        assert one.store.fingerprint(left) == other.store.fingerprint(right)
        assert (left == right) == (a == 0)


def test_slots_that_read_the_same_are_two() -> None:
    class Alike(Protocol):
        at: Any = per_key([1, "1"], 0)
        logs: Table[Any, Any] = table()

        @action
        def go(self) -> None:
            self.at[one_of([1, "1"])] = one_of([1, 2])

        @action
        def log(self) -> None:
            self.logs[one_of(["keys", 2, "2"])] = 1

    stepper = Stepper(Alike())
    seen = {}
    todo = [s.ids for s in stepper.initial_states()]
    for ids in todo:
        content = tuple(sorted((repr(slot.path), repr(value)) for slot, value in State(stepper.store, ids).slots()))
        if stepper.store.fingerprint(ids) not in seen:
            seen[stepper.store.fingerprint(ids)] = content
            todo += [stepper.apply(ids, o) for r in stepper.roots for o in stepper.outcomes(r, ids)]
    assert len(seen) == 9 * 8


def test_the_low_half_of_a_fingerprint_depends_on_every_slot() -> None:
    stepper = Stepper(Abc())
    prints = {stepper.store.fingerprint(row(stepper, **{n: v})) for n in "abc" for v in range(1, 50)}
    assert len({p & (2**64 - 1) for p in prints}) == len({p >> 64 for p in prints}) == 147
