"""Actors: variables that hold an object of an author's own class."""

from __future__ import annotations

import pickle
from array import array
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import pytest
from language.plain import Plain, look, run

from fencepost import (
    ModelValue,
    NotAProtocol,
    PerKey,
    Protocol,
    SearchOptions,
    action,
    actor,
    check,
    constant,
    invariant,
    model_values,
    one_of,
    per_key,
    require,
)
from fencepost.language.kept import Keeper
from fencepost.language.values import NotAValue, encode, show


class Put(msgspec.Struct, frozen=True):
    """A message of a role."""

    number: int


@dataclass
class Note:
    """An object that a role holds and changes."""

    text: str = ""
    marks: list[int] = field(default_factory=list)


class Box:
    """A plain object that a role holds."""

    def __init__(self) -> None:
        self.full = False

    def fill(self) -> None:
        self.full = True


def shown(put: Put) -> str:
    """A function that a role may hold."""
    return str(put.number)


class Role:
    """A role with all kinds of attributes."""

    def __init__(self, name: Any = "r") -> None:
        self.name = name
        self.queue: deque[Put] = deque()
        self.places: dict[int, str] = {}
        self.seen: set[int] = set()
        self.note = Note()
        self.box = Box()
        self.later: Any = None
        self.bits = array("q", [0, 0])

    def receive(self, put: Put) -> list[str]:
        self.queue.append(put)
        self.places[put.number] = f"at {len(self.queue)}"
        self.seen.add(put.number)
        self.note.marks.append(put.number)
        self.later = self.take
        self.bits[0] += 1
        return [f"did {put.number}"]

    def take(self) -> Put:
        return self.queue.popleft()

    @property
    def size(self) -> int:
        return len(self.queue)

    def touch(self) -> None:
        self.box.fill()


class Roles(Protocol):
    """Two roles that receive numbers."""

    nodes: tuple[ModelValue, ...] = model_values("n", 2, symmetric=True)
    most: int = constant(2)

    role: PerKey[ModelValue, Role] = per_key(nodes, actor(lambda protocol, node: Role(node)))
    alone: Role = actor(lambda protocol: Role(protocol.most))

    @action(n=nodes)
    def put(self, n: ModelValue) -> None:
        require(len(self.role[n].note.marks) < self.most)
        number = one_of((1, 2))
        assert self.role[n].receive(Put(number)) == [f"did {number}"]

    @action(n=nodes)
    def take(self, n: ModelValue) -> None:
        require(self.role[n].size > 0)
        self.role[n].later()

    @action(n=nodes)
    def restart(self, n: ModelValue) -> None:
        self.role[n] = Role(n)

    @action
    def touch(self) -> None:
        self.alone.touch()

    @invariant(n=nodes)
    def they_agree(self, n: ModelValue) -> bool:
        role = self.role[n]
        return role.seen == {*role.places} and role.name is n and len(role.note.marks) >= role.size


NODE = ModelValue("n1")


def test_a_method_changes_the_attributes_that_it_changes_and_reads_those_that_it_asks_for() -> None:
    after = run(Plain(Roles()), lambda s: s.role[NODE].receive(Put(7)))
    assert look(after, lambda s: s.role[NODE].size) == 1
    assert look(after, lambda s: s.role[NODE].queue) == deque([Put(7)])
    assert look(after, lambda s: s.role[NODE].places) == {7: "at 1"}
    assert look(after, lambda s: s.role[NODE].note) == Note("", [7])
    written = {"queue", "places", "seen", "note", "later", "bits"}
    assert set(after.names("write")) == {f"role.n1.{name}" for name in written}
    assert set(after.names("read")) == {f"role.n1.{name}" for name in written - {"later"}} | {"role.n1.later"}


def test_a_method_that_is_held_is_called_on_the_object_that_holds_it() -> None:
    after = run(Plain(Roles()), lambda s: s.role[NODE].receive(Put(7)))
    assert look(run(after, lambda s: s.role[NODE].later()), lambda s: s.role[NODE].size) == 0


def test_objects_within_are_changed_by_methods() -> None:
    after = run(Plain(Roles()), lambda s: s.alone.touch())
    assert look(after, lambda s: s.alone.box.full)
    assert after.names("write") == ["alone.box"]


def test_an_attribute_is_assigned_and_the_object_replaced() -> None:
    def changes(s: Any) -> None:
        s.alone.name = 9
        s.role[NODE].receive(Put(1))
        s.role[ModelValue("n2", 1)] = s.role[NODE]

    after = run(Plain(Roles()), changes)
    assert look(after, lambda s: (s.alone.name, s.role[ModelValue("n2", 1)].seen)) == (9, {1})

    def moves(s: Any) -> None:
        s.role[NODE].box = s.alone.box
        s.role[NODE].queue = s.role[NODE].queue
        s.role[NODE].touch()
        s.role[NODE].receive(Put(2))

    assert look(run(after, moves), lambda s: (s.role[NODE].box.full, s.role[NODE].size)) == (True, 2)
    again = run(after, lambda s: s.role.__setitem__(NODE, Role(NODE)))
    assert look(again, lambda s: s.role[NODE].seen) == set()


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.alone.queue.append(Put(1)),
        lambda s: s.alone.places.__setitem__(1, ""),
        lambda s: s.alone.seen.add(1),
        lambda s: s.alone.note.marks.append(1),
        lambda s: setattr(s.alone.note, "text", "x"),
        lambda s: s.alone.box.fill(),
        lambda s: s.alone.bits.frombytes(b"12345678"),
        lambda s: s.alone.bits.__setitem__(0, 1),
    ],
)
def test_what_was_read_can_not_be_changed(change: Any) -> None:
    with pytest.raises(NotAValue, match="that was read from an actor and is changed: call a method of the actor"):
        run(Plain(Roles()), change)


class Twice(Role):
    """Roles that do forbidden things."""

    def hold_twice(self) -> None:
        self.later = self.places

    def hold_itself(self) -> None:
        self.note.marks.append(self.note)  # type: ignore[arg-type]

    def hold_a_set_of_objects(self) -> None:
        self.later = {Box()}

    def hold_a_file(self) -> None:
        self.later = open

    def hold_a_function(self) -> None:
        self.later = lambda: 1

    def grow(self) -> None:
        self.more = 1

    def forget(self) -> None:
        del self.seen

    def bounded(self) -> None:
        self.queue = deque(maxlen=3)


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (
            "hold_twice",
            "a Twice whose attribute later is a dict that another attribute holds too, or itself: hold it in one",
        ),
        ("hold_itself", "a Twice whose attribute note is a Note that another attribute holds too, or itself: hold it"),
        ("hold_a_set_of_objects", "a Twice whose attribute later is a set of objects that change: use a list"),
        ("hold_a_file", "a Twice whose attribute later is a builtin_function_or_method, which Fencepost does not know"),
        ("hold_a_function", "attribute later is the function Twice.hold_a_function.<locals>.<lambda>, which no module"),
        ("grow", "a Twice whose attribute more was not there from the start: assign it in __init__"),
        ("forget", "a Twice whose attribute seen is deleted: assign None to it"),
        ("bounded", "a Twice whose attribute queue is a deque with a maxlen"),
    ],
)
def test_what_an_actor_may_not_do_is_told(method: str, problem: str) -> None:
    class Wrong(Protocol):
        role: Twice = actor(lambda protocol: Twice())

        @action
        def go(self) -> None:
            getattr(self.role, method)()

    with pytest.raises(NotAValue) as raised:
        run(Plain(Wrong()), lambda s: getattr(s.role, method)())
    assert problem in str(raised.value)
    result = check(Wrong())
    assert result.verdict == "raised" and problem in str(result.error)


def assign_role(s: Any, role: Any) -> None:
    s.role[NODE] = role


def test_another_class_and_missing_attributes_are_refused() -> None:
    bare = Role.__new__(Role)
    wrong = {"a int where": 3, "a Twice where": Twice(), "a Role without the attribute name": bare}
    for problem, given in wrong.items():
        with pytest.raises(NotAValue, match=problem):
            run(Plain(Roles()), partial(assign_role, role=given))
    with pytest.raises(AttributeError, match="Role has no attribute 'gone'"):
        look(Plain(Roles()), lambda s: s.alone.gone)
    with pytest.raises(AttributeError, match="Role has no attribute 'gone' from the start"):
        run(Plain(Roles()), lambda s: setattr(s.alone, "gone", 1))

    class Bare(Protocol):
        number: int = actor(lambda protocol: 3)

    with pytest.raises(NotAProtocol, match=r"actor\(...\) made a int, which has no attributes"):
        Bare()


@pytest.mark.campaign
def test_engines_agree_and_roles_are_exchanged_by_symmetry() -> None:
    results = {engine: check(Roles(), engine=engine).must_hold() for engine in ("reference", "embedded")}
    assert len({(r.distinct_states, r.depth) for r in results.values()}) == 1
    whole = results["reference"].distinct_states
    assert check(Roles(), options=SearchOptions(symmetry=True)).must_hold().distinct_states < whole / 1.8
    watched = check(Roles(), engine="embedded", options=SearchOptions(checking=True)).must_hold()
    assert watched.distinct_states == whole


def test_python_runs_once_for_what_it_reads_and_not_for_each_state() -> None:
    result = check(Roles(most=3), engine="embedded").must_hold()
    assert result.evaluations < result.distinct_states / 5


def test_values_that_are_kept_have_their_content_in_order() -> None:
    def kept(thing: Any) -> Any:
        return Keeper(None, {}).keep(thing)

    assert encode(kept({1: "a", 2: "b"})) != encode(kept({2: "b", 1: "a"})), "a dict has an order"
    assert encode(kept({1, 2})) == encode(kept({2, 1}))
    assert encode(kept([1])) != encode(kept(deque([1]))) != encode(kept((1,)))
    assert encode(kept(array("q", [1]))) != encode(kept(array("i", [1]))) != encode(kept(["i", 1]))
    shown = [show(kept(thing)) for thing in ([1, 2], deque([1]), {1: "a"}, {2, 1}, Put(3), Note("x"))]
    assert shown == ["[1, 2]", "deque(1)", "{1: 'a'}", "{1, 2}", "Put(number=3)", "Note(text='x', marks=[])"]
    assert show(kept(array("q", [1, 2]))) == "array('q', 1, 2)"
    assert show(kept(range(3))) == "range(0, 3, 1)" and Keeper(None, {}).restore(kept(range(3, 0, -1))) == range(
        3, 0, -1
    )


def test_a_function_of_a_module_is_held_by_its_name() -> None:
    kept = Keeper(None, {}).keep({"how": shown})
    assert show(kept) == f"{{'how': '{__name__}:shown'}}"
    assert Keeper(Role(), {}).restore(kept) == {"how": shown}


def test_an_object_that_an_attribute_holds_twice_is_one_object() -> None:
    note, marks = Note("x"), [1]
    kept = Keeper(None, {}).keep({"a": note, "b": [marks, note], "c": (marks,)})
    assert (
        show(kept)
        == "{'a': Note(text='x', marks=[]), 'b': [[1], object 1 of these again], 'c': ⟨object 2 of these again⟩}"
    )
    restored = Keeper(Role(), {}).restore(kept)
    assert restored["a"] is restored["b"][1] and restored["c"][0] is restored["b"][0] == [1]
    assert encode(kept) != encode(Keeper(None, {}).keep({"a": note, "b": [marks, Note("x")], "c": (marks,)}))
    assert Keeper(None, {}).keep(restored) == kept


def test_what_can_not_change_is_kept_once() -> None:
    keeper = Keeper(Role(), {})
    fixed = [
        keeper.is_fixed(keeper.keep(thing)) for thing in (shown, Put(1), (1, Put(1)), range(2), array("q", [1]), Note())
    ]
    assert fixed == [True, True, True, True, False, False]


def test_a_kept_object_is_restored_in_a_process_that_has_not_met_its_class() -> None:
    value = pickle.loads(pickle.dumps(Keeper(None, {}).keep({"n": Note("x", [1]), "p": (Put(1), frozenset({2}))})))
    assert Keeper(Role(), {}).restore(value) == {"n": Note("x", [1]), "p": (Put(1), frozenset({2}))}
    with pytest.raises(NotAValue, match="an object of the class nowhere:Nothing, which is not there"):
        Keeper(Role(), {}).restore(value.replace(kind="nowhere:Nothing", names=(), parts=()))


def test_what_a_role_raises_is_found() -> None:
    class Raising(Roles):
        @action(n=Roles.nodes)
        def take(self, n: ModelValue) -> None:
            self.role[n].take()

    result = check(Raising())
    assert result.verdict == "raised" and "IndexError: pop from an empty deque" in str(result.error)
