"""Every transition is driven, every observation compared, and a difference comes with the shortest behaviour."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from testing.locks import FAULTS, AnyoneReleases, Calls, LastWaiter, Lock, Refused, ThirdTime

from fencepost import (
    Map,
    ModelValue,
    OptionError,
    PerKey,
    Protocol,
    action,
    check,
    initial,
    model_values,
    one_of,
    per_key,
    require,
    state,
)
from fencepost.api.result import Unexpected
from fencepost.testing import Driven, drive, shrink
from fencepost.testing.graph import Graph, Move, Tour
from fencepost.testing.system import Behaviour

ACTIONS = ("acquires", "releases", "hangs_up")
Seen = tuple[str | None, tuple[str, ...]]
START: Seen = (None, ())


@pytest.fixture(autouse=True)
def _fresh_log() -> Iterator[None]:
    Calls.log = []
    yield
    Calls.log = []


# -- a plain slow twin of the driver -----------------------------------------------------------------------------------


def after(seen: Seen, name: str, c: str) -> Seen | None:
    """The state after a call, as the protocol has it; None if it is refused."""
    holder, waiting = seen
    if name == "acquires" and c != holder and c not in waiting:
        return (c, ()) if holder is None else (holder, (*waiting, c))
    if name == "releases" and c == holder:
        return (waiting[0] if waiting else None, waiting[1:])
    if name == "hangs_up" and c in waiting:
        return (holder, tuple(other for other in waiting if other != c))
    return None


def calls() -> list[tuple[str, str]]:
    return [(name, c) for name in ACTIONS for c in ("c1", "c2", "c3")]


def reachable() -> set[Seen]:
    found, waiting = {START}, [START]
    while waiting:
        seen = waiting.pop()
        for call in calls():
            then = after(seen, *call)
            if then is not None and then not in found:
                found.add(then)
                waiting.append(then)
    return found


TRANSITIONS = {(*seen, *call) for seen in reachable() for call in calls() if after(seen, *call) is not None}
REFUSALS = {(*seen, *call) for seen in reachable() for call in calls() if after(seen, *call) is None}


def shows(fault: Callable[[], Calls], done: list[tuple[str, str]]) -> bool:
    """Whether a faulty system differs at the last of these calls, and not before."""
    system, seen = fault(), START
    for place, (name, c) in enumerate(done):
        then = after(seen, name, c)
        refused = False
        try:
            getattr(system, name)(c)
        except Refused:
            refused = True
        seen = then or seen
        if refused is not (then is None) or (system.holder, tuple(system.waiting)) != seen:
            return place == len(done) - 1
    return False


def shortest(fault: Callable[[], Calls]) -> int:
    """The length of the shortest behaviour that shows a fault, by trying all."""
    waiting: deque[list[tuple[str, str]]] = deque([[]])
    while True:
        done = waiting.popleft()
        if shows(fault, done):
            return len(done)
        waiting += [[*done, call] for call in calls()]


def told(driven: Driven) -> list[tuple[str, str]]:
    """The calls of the behaviour that is reported."""
    assert driven.shown is not None
    return [(step.action, str(step.parameters["c"])) for step in driven.shown.trace.steps]


# -- what is driven ----------------------------------------------------------------------------------------------------


def drives_every_transition() -> None:
    driven = drive(Lock, Calls).must_follow()
    assert {call for call in Calls.log if len(call) == 4} == TRANSITIONS | REFUSALS
    assert len(driven.covered) == len(driven.graph.transitions) == len(TRANSITIONS)
    assert driven.refusals == len(REFUSALS)
    assert driven.actions == {action.name: (action.taken, action.taken) for action in check(Lock).actions}
    assert not driven.never and not driven.limits and driven.left == 0


def drives_every_pair() -> None:
    Calls.log = []
    driven = drive(Lock, Plain, cover="pairs").must_follow()
    found = set()
    for one, two in zip(Calls.log, Calls.log[1:], strict=False):
        if len(one) == len(two) == 4:
            found.add((one, two))
    pairs = {
        (one, two)
        for one in TRANSITIONS
        for two in TRANSITIONS
        if after((one[0], one[1]), one[2], one[3]) == (two[0], two[1])
    }
    assert found == pairs
    assert driven.wanted == len(pairs) + 3, "and each that a behaviour can begin with"


class Plain(Calls):
    """Without calls that are to be refused."""

    refuses: Any = {}


def test_every_transition_and_every_refusal_is_driven() -> None:
    drives_every_transition()


def test_every_pair_is_driven() -> None:
    drives_every_pair()


def test_a_sample_prefers_rare_actions() -> None:
    class Numbers(Protocol):
        """Any number can be set, and rarely none."""

        number: int = state(0)

        @action(n=range(1, 40))
        def sets(self, n: int) -> None:
            self.number = n

        @action
        def clears(self) -> None:
            self.number = 0

    log: list[int] = []

    class Set:
        number = 0

        def sets(self, n: int) -> None:
            log.append(n)
            self.number = n

        def clears(self) -> None:
            self.sets(0)

        def observe(self) -> dict[str, Any]:
            return {"number": self.number}

    driven = drive(Numbers, Set, sample=20, seed=3).must_follow()
    assert driven.behaviours == 20 and driven.steps == len(log) == 2_000
    assert 900 < log.count(0) < 1_100, "of 2,000 steps, where a uniform choice gives 50"
    first = [*log]
    log.clear()
    drive(Numbers, Set, sample=20, seed=3)
    assert log == first
    log.clear()
    drive(Numbers, Set, sample=20, seed=4)
    assert log != first


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_the_shortest_behaviour_told(fault: Callable[[], Calls]) -> None:
    finds_the_shortest(fault)


def finds_the_shortest(fault: Callable[[], Calls]) -> None:
    driven = drive(Lock, fault)
    assert driven.repeats and not driven.follows
    assert shows(fault, told(driven)), "the behaviour that is told shows a difference, at its end"
    if driven.is_shortest:
        assert len(told(driven)) == shortest(fault)


def test_which_faults_have_a_behaviour_that_is_known_to_be_shortest() -> None:
    assert {fault.__name__: drive(Lock, fault).is_shortest for fault in FAULTS} == {
        "LastWaiter": True,
        "NewestFirst": True,
        "AnyoneReleases": True,
        "Remembers": True,
        "ThirdTime": False,
    }


def observation_is_compared() -> None:
    """A wrong value of any variable in any one state is noticed, whatever the variable."""
    for seen in sorted(reachable(), key=str):
        for variable in ("holder", "waiting"):

            class Lies(Calls):
                def observe(self) -> dict[str, Any]:
                    shown = super().observe()
                    if (self.holder, tuple(self.waiting)) == seen:
                        shown[variable] = "nobody"
                    return shown

            driven = drive(Lock, Lies)
            assert driven.shown is not None, (seen, variable)
            assert driven.shown.difference.variable == variable


def test_every_observation_is_compared() -> None:
    observation_is_compared()


# -- faults of the driver are noticed by the above ---------------------------------------------------------------------


def _skips_one(monkeypatch: pytest.MonkeyPatch) -> None:
    way = Tour.way

    def skips(self: Tour, state: int, last: Any) -> Any:
        for wanted in self.wanted.values():
            for edge in [edge for edge in wanted if (edge.action, edge.parameters) == ("hangs_up", "c=c3")][:1]:
                del wanted[edge]
        return way(self, state, last)

    monkeypatch.setattr(Tour, "way", skips)


def _misses_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "refused", lambda self, state, names: [])


def _never_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Behaviour, "_difference", lambda self, row, seen: None)


def _compares_only_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Behaviour._difference
    monkeypatch.setattr(Behaviour, "_difference", lambda self, row, seen: real(self, row, dict([*seen.items()][:1])))


def _drops_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shrink.run

    def drops(*given: Any) -> Any:
        shown = real(*given)
        if shown is None:
            return None
        trace = shown.trace
        return shown._replace(trace=type(trace)(trace.protocol, trace.initial, trace.steps[1:]))

    monkeypatch.setattr(shrink, "run", drops)


def _believes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes any shorter behaviour for one that shows the difference."""
    real = shrink.run

    def believes(adapter: Any, graph: Any, seed: int, moves: Any) -> Any:
        shown = real(adapter, graph, seed, moves)
        if shown is None and moves:
            with Behaviour(adapter, graph, seed) as behaviour:
                behaviour.begin()
                for move in moves:
                    behaviour.take(move)
                return shrink.Shown(tuple(behaviour.moves), behaviour.trace, behaviour)  # type: ignore[arg-type]
        return shown

    monkeypatch.setattr(shrink, "run", believes)


def _does_not_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shrink.run
    monkeypatch.setattr(shrink, "_shorter", lambda *given: ())
    monkeypatch.setattr(shrink, "_all_of", lambda *given: ())
    monkeypatch.setattr(shrink, "run", real)


@pytest.mark.parametrize(
    ("plant", "is_noticed_by"),
    [
        (_skips_one, drives_every_transition),
        (_skips_one, drives_every_pair),
        (_misses_refusals, drives_every_transition),
        (_never_differs, observation_is_compared),
        (_compares_only_the_first, observation_is_compared),
        (_drops_a_step, lambda: finds_the_shortest(LastWaiter)),
        (_believes_all, lambda: finds_the_shortest(LastWaiter)),
        (_does_not_shrink, lambda: finds_the_shortest(LastWaiter)),
    ],
)
def test_a_fault_of_the_driver_is_noticed(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], is_noticed_by: Callable[[], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        is_noticed_by()


# -- outcomes that the system chooses, or the test ---------------------------------------------------------------------


class Coin(Protocol):
    """A coin is thrown again and again."""

    side: str = state("none")
    hidden: int = state(0)

    @action
    def throws(self) -> None:
        self.side = one_of(["heads", "tails", "edge"])

    @action
    def hides(self) -> None:
        self.hidden = one_of([1, 2])


class Thrown:
    """The coin shows the sides in turn, and never its edge."""

    leaves_out: Any = ("hides",)

    def __init__(self) -> None:
        self.side, self.turns = "none", 0

    def throws(self) -> None:
        self.turns += 1
        self.side = ("heads", "tails")[self.turns % 2]

    def observe(self) -> dict[str, Any]:
        return {"side": self.side}


def test_a_system_may_choose_an_outcome() -> None:
    driven = drive(Coin, Thrown).must_follow()
    assert {edge.action for edge in driven.given_up} == {"throws"}
    assert driven.never == ["hides"]
    text = str(driven)
    assert "hides" in text and "left out" in text and "of other actions" in text

    class Lost(Thrown):
        def throws(self) -> None:
            super().throws()
            self.side = "gone" if self.turns == 3 else self.side

    shown = drive(Coin, Lost).shown
    assert shown is not None and len(shown.trace.steps) == 3
    assert str(shown.difference.expected).endswith(", or what another of 3 states has")


def test_a_system_that_is_given_the_choice_takes_it() -> None:
    class Told(Thrown):
        def throws(self, choices: Any, after: Any) -> None:  # type: ignore[override]
            (self.side,) = choices
            assert after.side == self.side

    driven = drive(Coin, Told).must_follow()
    assert len(driven.covered) == driven.wanted and not driven.given_up


def test_an_assertion_of_the_adapter_is_a_difference() -> None:
    class Wrong(Thrown):
        def throws(self, after: Any) -> None:  # type: ignore[override]
            self.side = after.side
            assert self.side != "edge", "it fell"

    shown = drive(Coin, Wrong).shown
    assert shown is not None and len(shown.trace.steps) == 1
    assert "raises AssertionError: it fell, at test_drive.py:" in shown.difference.actual


def test_behaviours_end_where_several_states_fit() -> None:
    class Hiding(Thrown):
        leaves_out: Any = ()

        def hides(self) -> None:
            pass

    driven = drive(Coin, Hiding)
    assert driven.ambiguous and driven.shown is None
    assert "several states fitted" in str(driven)


def test_a_call_that_is_refused_has_no_outcome() -> None:
    class Given(Calls):
        def releases(self, c: Any, after: Any) -> None:  # type: ignore[override]
            assert (after is None) is (str(c) != self.holder)
            super().releases(c)

    assert drive(Lock, Given).follows

    class Without(Given):
        leaves_out = ("releases",)
        releases: Any = None

    driven = drive(Lock, Without)
    assert driven.follows and driven.never == ["releases"] and 0 < driven.refusals < len(REFUSALS)


def test_what_is_expected_may_have_names_of_its_own() -> None:
    class Free(Calls):
        def observe(self) -> dict[str, Any]:
            return {"free": self.holder is None}

        def expected(self, now: Any) -> dict[str, Any]:
            return {"free": now.holder is None}

    assert drive(Lock, Free).follows

    class Never(Free):
        def observe(self) -> dict[str, Any]:
            return {"free": True}

    shown = drive(Lock, Never).shown
    assert shown is not None and (shown.difference.expected, shown.difference.actual) == ("False", "True")


class Steps(Protocol):
    """Goes up step by step, or all the way at once, and down."""

    at: PerKey[str, int] = per_key(("left", "right"), 0)

    @action
    def jumps(self) -> None:
        require(self.at["left"] == 0)
        self.at["left"] = 3

    @action
    def climbs(self) -> None:
        require(self.at["left"] < 3)
        self.at["left"] += 1

    @action
    def falls(self) -> None:
        require(self.at["left"] == 3)
        self.at["left"] = 0


class Climbing:
    """Does not fall. It cannot jump."""

    leaves_out = ("jumps",)

    def __init__(self) -> None:
        self.at = {"left": 0, "right": 0}

    def climbs(self) -> None:
        self.at["left"] += 1

    def falls(self) -> None:
        pass

    def observe(self) -> dict[str, Any]:
        return {"at": self.at, "seen": [self.at, {"left"}]}

    def expected(self, now: Any) -> dict[str, Any]:
        return {"at": now.at, "seen": [now.at, {"left"}]}


def test_a_behaviour_is_not_shortened_by_actions_that_are_left_out() -> None:
    driven = drive(Steps, Climbing)
    assert driven.shown is not None and driven.repeats and driven.is_shortest
    assert [step.action for step in driven.shown.trace.steps] == ["climbs", "climbs", "climbs", "falls"]


def test_what_is_expected_may_be_taken_from_the_state_as_it_is() -> None:
    class Falling(Climbing):
        def falls(self) -> None:
            self.at["left"] = 0

    assert drive(Steps, Falling).follows


@pytest.mark.parametrize(("method", "what"), [("observe", "observe()"), ("climbs", "the call")])
def test_a_difference_says_what_raised(method: str, what: str) -> None:
    Faulty = type("Faulty", (Climbing,), {method: lambda self: 1 / 0})
    driven = drive(Steps, Faulty)
    assert f"  {what}\n    protocol  returns\n    system    raises ZeroDivisionError" in str(driven)
    assert "do not come to it" not in str(driven), "the difference ended the drive, and no action is to blame"
    assert "never driven  jumps" in str(driven)


def test_a_difference_says_that_the_system_cannot_be_made_again() -> None:
    made: list[None] = []

    def once() -> Climbing:
        made.append(None)
        assert len(made) == 1
        return Climbing()

    assert "  once()\n    protocol  returns\n    system    raises AssertionError" in str(drive(Steps, once))


# -- limits and mistakes -----------------------------------------------------------------------------------------------


def test_limits_are_reported() -> None:
    driven = drive(Lock, Calls, transitions=10)
    assert driven.limits == ["10 transitions explored"] and driven.graph.is_cut
    assert len(driven.graph.transitions) == 10 >= len(driven.covered)
    assert "FOLLOWS  Calls does what the protocol does so far" in str(driven)
    assert drive(Lock, Calls, seconds=0.0).limits == ["0 seconds"]

    class Ends(Protocol):
        """Each behaviour has one step."""

        done: int = state(0)

        @action(n=range(1, 4))
        def ends(self, n: int) -> None:
            require(self.done == 0)
            self.done = n

    class Ended:
        done = 0

        def ends(self, n: int) -> None:
            self.done = n

        def observe(self) -> dict[str, Any]:
            return {"done": self.done}

    driven = drive(Ends, Ended, behaviours=2)
    assert driven.limits == ["2 behaviours"] and driven.behaviours == 2 and driven.left == 1
    assert drive(Ends, Ended).behaviours == 3


def test_nothing_driven_is_no_success() -> None:
    class Nothing(Thrown):
        leaves_out: Any = ("throws", "hides")

    driven = drive(Coin, Nothing)
    assert not driven.follows
    with pytest.raises(Unexpected, match="NOTHING"):
        driven.must_follow()


def _without(name: str) -> type:
    return type("Other", (), {key: value for key, value in vars(Calls).items() if key != name})


def _with(**more: Any) -> type:
    return type("Other", (Calls,), more)


@pytest.mark.parametrize(
    ("system", "options", "said"),
    [
        (_without("releases"), {}, "Other has no method for releases: write one for each action of lock"),
        (_without("observe"), {}, "Other has no observe()"),
        (_with(refuses={"relases": Refused}), {}, "Other.refuses has relases, which is no action: is releases meant?"),
        (_with(leaves_out="hang_up"), {}, "Other.leaves_out has hang_up, which is no action: is hangs_up meant?"),
        (_with(observe=lambda self: {"holdr": None}), {}, "no variable of lock: is holder meant?"),
        (_with(observe=lambda self: 5), {}, "observe() gives 5: give a dictionary"),
        (_with(close=lambda self: 1 / 0), {}, "Other.close() raises ZeroDivisionError: division by zero"),
        (_with(__init__=lambda self: 1 / 0), {}, "Other() raises ZeroDivisionError: division by zero"),
        (Calls, {"cover": "all"}, "cover is 'all'"),
        (Calls, {"sample": 0}, "sample is 0"),
        (Calls, {"behaviours": 0}, "behaviours is 0"),
    ],
)
def test_mistakes_are_explained(system: type, options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as error:
        drive(Lock, system, **options)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_system_that_begins_elsewhere_differs() -> None:
    shown = drive(Lock, _with(observe=lambda self: {"holder": "c1"})).shown
    assert shown is not None and not shown.trace.steps


def test_the_initial_state_is_the_one_that_fits() -> None:
    class Two(Protocol):
        clients = model_values("c", 2)
        first: ModelValue = state(ModelValue("none"))
        other: Map[int, ModelValue] = state(Map({}))

        @initial
        def start(self) -> None:
            self.first = one_of(self.clients)

        @action
        def stays(self) -> None:
            self.other = Map({1: self.first})

    class System:
        def __init__(self) -> None:
            self.other: dict[int, str] = {}

        def stays(self) -> None:
            self.other[1] = "c2"

        def observe(self) -> dict[str, Any]:
            return {"first": "c2", "other": self.other}

    assert drive(Two, System).follows
    with pytest.raises(OptionError, match="2 initial states of two fit"):
        drive(Two, type("Blind", (System,), {"observe": lambda self: {}}))


def test_a_system_that_depends_on_something_else_is_said_to() -> None:
    class Once(Calls):
        made = 0

        def __init__(self) -> None:
            super().__init__()
            type(self).made += 1

        def acquires(self, c: Any) -> None:
            super().acquires(c)
            if type(self).made == 2:  # the first is made to look at it
                self.holder = "nobody"

    driven = drive(Lock, Once)
    assert not driven.repeats
    assert "Run again, it showed no difference" in str(driven)


def test_a_refusal_is_told_in_the_story() -> None:
    driven = drive(Lock, AnyoneReleases)
    assert "releases(c=c1) is refused" in str(driven)
    assert "raises Refused, for the action is not enabled" in str(driven)
    assert "DIFFERS" in driven.to_html() and "is refused" in driven.to_html()


def test_a_long_behaviour_is_shortened_without_trying_all() -> None:
    driven = drive(Lock, ThirdTime, cover="pairs")
    assert len(told(driven)) == 5, "acquire, release, acquire, release, acquire"


def test_a_move_that_the_protocol_does_not_allow_is_not_made() -> None:
    graph = Graph(Lock(), 1_000)
    from fencepost.testing.system import Adapter

    adapter = Adapter(Calls, graph)
    releases = next(root for root in graph.roots if root.name == "releases")
    acquires = next(root for root in graph.roots if root.name == "acquires")
    Calls.log = []
    assert shrink.run(adapter, graph, 0, [Move(releases)]) is None
    assert shrink.run(adapter, graph, 0, [Move(acquires, is_refused=True)]) is None
    assert Calls.log == [("begin",), ("begin",)]


def test_driving_needs_no_pytest() -> None:
    code = "import sys, fencepost, fencepost.testing; fencepost.checked; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
