"""The story in plain text and in colour."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from report.behaviours import Parcel, Post, Script, follow, wander
from report.small_ledger import SmallLedger
from rich.console import Console

import fencepost
from fencepost import (
    ActionCount,
    ModelValue,
    Options,
    Protocol,
    ProtocolRaised,
    Record,
    Result,
    SearchOptions,
    Table,
    Violation,
    action,
    assumption,
    constant,
    initial,
    invariant,
    model_values,
    network,
    per_key,
    require,
    state,
    table,
)
from fencepost.report.advice import advice
from fencepost.report.text import render, story, trace_story
from fencepost.text import numbers


def lossy_ledger() -> Result:
    protocol = SmallLedger(lossy=True, recovery_reads_fence=True)
    trace = follow(
        protocol,
        [
            ("recoverer_starts(w=w2)", ("lost", "delivered")),
            ("writer_adds_the_entry", ("delivered", "lost")),
            ("bookie_adds_the_entry(b=b1)", ("delivered",)),
            "recoverer_times_out(w=w2, b=b1)",
            "writer_hears_of_an_add(w=w1)",
        ],
    )
    actions = [ActionCount("writer_adds_the_entry", 1_234_567, 890), ActionCount("someone_reopens", 0, 0)]
    violations = [Violation("invariant", "no_committed_entry_is_lost", trace)]
    result = Result(protocol, "embedded", False, 1_936_388, 8_198_619, 6, 523_441, 1.43, 512 << 20, actions, violations)
    return replace(result, collision_probability=6.57e-07, evaluations=1612)


def test_a_counterexample_literally() -> None:
    assert story(lossy_ledger(), width=80).splitlines() == [
        "VIOLATED  no_committed_entry_is_lost",
        "A closed ledger ends at or after the last entry that the writer told its client",
        "is safe.",
        "small-ledger  bookies=b1,b2  writer=w1  recoverer=w2  ack_quorum=1",
        "              recovery_reads_fence=True  lossy=True",
        "",
        "The shortest counterexample: 6 states",
        " 0      initial state",
        " 1  w2  recoverer_starts(w=w2)",
        "        lost      w2 → b1  Fence  timed out → step 4",
        "        sent      w2 → b2  Fence  not received",
        "        meta.status        OPEN → IN_RECOVERY",
        " 2  w1  writer_adds_the_entry",
        "        sent      w1 → b1  AddEntry(entry=1)  → step 3",
        "        lost      w1 → b2  AddEntry(entry=1)",
        "        acks.1             added {}",
        " 3  b1  bookie_adds_the_entry(b=b1)",
        "        received  w1 → b1  AddEntry(entry=1)  ← step 2",
        "        sent      b1 → w1  Added(entry=1)  → step 5",
        "        bookie.b1.entries  added 1",
        " 4  w2  recoverer_times_out(w=w2, b=b1)",
        "        timed out w2 → b1  Fence",
        " 5  w1  writer_hears_of_an_add(w=w1)",
        "        received  b1 → w1  Added(entry=1)  ← step 3",
        "        committed          0 → 1",
        "        acks.1             added b1",
        "",
        "Statistics",
        "  states generated       8,198,619",
        "  distinct states        1,936,388  1.35 million a second",
        "  left on queue            523,441",
        "  depth                          6",
        "  time                      1.43 s  embedded engine",
        "  peak memory              512 MiB",
        "  Python calls               1,612",
        "  collision probability     6.6E-7  that two states shared a fingerprint",
        "",
        "Actions                      taken  new states",
        "  writer_adds_the_entry  1,234,567         890",
        "  someone_reopens                0           0  not taken so far",
    ]


def test_the_rest_of_what_can_happen_literally() -> None:
    """A message under way from the start, one sent twice, dropped ones, a cut and a healed connection, other
    choices.
    """
    script: Script = [
        ("send(source=h2, dest=h1)", ("1",)),
        ("send(source=h2, dest=h1)", ("1",)),
        ("receive(dest=h2)", ("h1",)),
        "cut",
        ("send(source=h1, dest=h2)", ("2",)),
        "heal",
    ]
    assert trace_story(follow(Post(), script), width=80).splitlines() == [
        " 0      initial state",
        " 1  h2  send(source=h2, dest=h1)",
        "        chose                    1",
        "        sent      h2 → h1  Parcel(number=1)  dropped → step 4",
        " 2  h2  send(source=h2, dest=h1)",
        "        chose                    1",
        "        sent      h2 → h1  Parcel(number=1)  already in flight",
        " 3  h2  receive(dest=h2)",
        "        received  h1 → h2  Parcel(number=0)",
        "        box                      added 0",
        " 4      cut",
        "        dropped   h2 → h1  Parcel(number=1)",
        "        network.connected.h1.h2  cut",
        " 5  h1  send(source=h1, dest=h2)",
        "        chose                    2",
        "        lost      h1 → h2  Parcel(number=2)",
        " 6      heal",
        "        network.connected.h1.h2  healed",
    ]


def violated_result() -> Result:
    return fencepost.check(SmallLedger(), engine="reference")


def results() -> list[Result]:
    every = Options(keep_going=True, deadlock=True)
    return [violated_result(), lossy_ledger(), fencepost.check(SmallLedger(), engine="reference", options=every)]


def test_it_fits_the_width_and_tells_every_step() -> None:
    for result in results():
        for width in (60, 80, 100, 120):
            told = story(result, width=width)
            assert max(map(len, told.splitlines())) <= width
            assert not re.search(r"[ \t]$", told, re.MULTILINE)
            for violation in result.violations:
                assert violation.trace is not None
                place = 0
                for number, step in enumerate(violation.trace.steps, 1):
                    heading = re.compile(rf"^ *{number}  {step.by or ''} *{re.escape(step.title)}$", re.MULTILINE)
                    found = heading.search(told, place)
                    assert found, step.title
                    place = found.end()
        assert str(result) == story(result)


def test_colour_adds_nothing_but_colour() -> None:
    for result in results():
        for width in (80, 120):
            for colours in (None, "truecolor"):
                console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=colours)
                render(result, console, profile=True)
                printed = console.file.getvalue()  # type: ignore[attr-defined]
                assert ("\x1b[" in printed) == (colours is not None)
                plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
                assert [line.rstrip() for line in plain.splitlines()] == story(
                    result, width=width, profile=True
                ).splitlines()


class Counter(Protocol):
    limit: int = constant(3)
    fault: str = constant("")
    count: int = state(0)
    seen: frozenset[int] = state(frozenset())

    @assumption
    def some_room(self) -> bool:
        """There is room for one, which is ``1``.

        A second paragraph is for the documentation.
        """
        return self.limit > 0

    @initial
    def begin(self) -> None:
        self.seen = frozenset({7})

    @action
    def tick(self) -> None:
        require(self.count < self.limit)
        self.count += 1
        if self.fault and self.count == 2:
            raise ValueError(self.fault)

    @action
    def never(self) -> None:
        require(self.count > self.limit)


class Checked(Counter):
    @invariant
    def small(self) -> bool:
        return self.count <= self.limit


def head(result: Result) -> list[str]:
    return story(result).split("\n\n")[0].splitlines()


def test_it_holds() -> None:
    result = fencepost.check(Checked(), engine="reference")
    assert head(result) == ["HOLDS", "Nothing is violated in all 4 reachable states.", "checked  limit=3  fault=''"]
    assert "  never             0           0  never taken" in story(result).splitlines()
    assert "never taken" not in "".join(line for line in story(result).splitlines() if "tick" in line)
    assert result.must_hold() is result


def test_without_an_invariant_it_says_so() -> None:
    result = fencepost.check(Counter(limit=1), engine="reference")
    assert head(result)[1] == "No action raises in all 2 reachable states; the protocol declares no invariant to check."


def test_a_limit_was_reached() -> None:
    result = fencepost.check(Checked(), engine="reference", options=SearchOptions(max_states=2))
    assert head(result)[:3] == [
        "NOT COMPLETE",
        "The limit of 2 states was reached.",
        "Nothing is violated so far: 2 distinct states found, 1 of them not yet expanded.",
    ]
    assert "  never             0           0  not taken so far" in story(result).splitlines()


def test_a_limit_within_a_level_says_that_its_numbers_are_of_the_moment() -> None:
    limit = "the limit of 900 states"
    result = Result(Checked(), "embedded", False, 1_000, 2_000, 5, 10, 60.0, 0, [], limit=limit, within_level=True)
    assert " ".join(head(result)[2:4]).startswith(
        "Nothing is violated so far: 1,000 distinct states found, 10 of them not yet expanded. That was within a level:"
    )


def test_interrupted() -> None:
    result = Result(Checked(), "embedded", False, 1_000, 2_000, 5, 10, 60.0, 0, [], interrupted=True)
    assert head(result)[:2] == [
        "INTERRUPTED",
        "Nothing is violated so far: 1,000 distinct states found, 10 of them not yet expanded.",
    ]


def test_a_deadlock_shows_where_it_ends() -> None:
    result = fencepost.check(Checked(limit=1), engine="reference", options=Options(deadlock=True))
    told = story(result)
    assert head(result)[:2] == ["DEADLOCK", "A state is reachable in which no action is enabled."]
    assert "\n 0  initial state\n    seen   added 7\n 1  tick\n    count  0 → 1\n" in told
    assert "The state it ends in, number 2\n    limit" not in told
    assert "The state it ends in, number 2\n    count = 1\n    seen = {7}\n" in told


def test_an_assumption_is_false() -> None:
    result = fencepost.check(Checked(limit=0), engine="reference")
    assert story(result).splitlines() == [
        "ASSUMPTION VIOLATED  some_room",
        "There is room for one, which is 1.",
        "The assumption is false for these constants, so nothing was explored.",
        "checked  limit=0  fault=''",
    ]


def test_what_was_raised_and_where() -> None:
    result = fencepost.check(Checked(fault="broken pipe"), engine="reference")
    told = story(result, width=200)
    assert told.startswith("RAISED  tick\nAction tick raised ValueError: broken pipe")
    assert "\nThe shortest way to where it was raised: 2 states\n" in told
    assert "\nThe state it was raised in\n    count = 1\n    seen = {7}\n" in told
    with pytest.raises(AssertionError, match="broken pipe"):
        result.must_hold()


def test_raised_before_there_is_a_state() -> None:
    error = ProtocolRaised("initial state begin raised ValueError", where="begin", state=None)
    told = story(Result(Checked(), "reference", False, 0, 0, 0, 0, 0.0, 0, [], error=error))
    assert told.splitlines()[:2] == ["RAISED  begin", "Initial state begin raised ValueError."]
    assert "Statistics" not in told


def test_an_assertion_in_a_test_tells_the_story() -> None:
    with pytest.raises(AssertionError) as raised:
        violated_result().must_hold()
    told = str(raised.value).splitlines()
    assert told[0] == "VIOLATED  no_committed_entry_is_lost"
    assert " 12  w2  recoverer_closes_the_ledger(w=w2)" in told


def test_the_state_of_a_network_is_told_by_channel() -> None:
    protocol = Post()
    trace = follow(protocol, [("send(source=h1, dest=h1)", ("2",)), "cut"])
    told = story(
        Result(protocol, "", False, 1, 1, 3, 0, 0.1, 0, [], violations=[Violation("deadlock", "deadlock", trace)])
    )
    assert "    network.Parcel.h1.h1  in flight  Parcel(number=2)\n    network.connected.h1.h2  cut\n" in told


# -- the profile ------------------------------------------------------------------------------------------------------


class Packet(Record):
    size: int = 0


class Everything(Protocol):
    nodes: tuple[ModelValue, ...] = model_values("n", 2)
    number: int = state(0)
    members: frozenset[int] = state(frozenset())
    log: tuple[int, ...] = state(())
    where: fencepost.Map[int, int] = state(fencepost.Map())
    packet = per_key(nodes, (Packet(),))
    cells: Table[int, int] = table({1: 1})
    text: str = state("")
    network = network({Parcel: (nodes, nodes)})

    @action
    def rest(self) -> None:
        pass


@pytest.mark.parametrize(
    ("slot", "told"),
    [
        ("number", "a counter"),
        ("members", "per_key(..., False)"),
        ("log", "a table(...) by position"),
        ("where", "per_key(...) over the constant"),
        ("packet.n1", "a table(...) by position"),
        ("cells.1", "values of the table smaller"),
        ("network.Parcel.n1.n2", "many sets of Parcel"),
        ("text", "split it into parts"),
        ("no such slot", "split it into parts"),
    ],
)
def test_advice_goes_by_what_the_slot_holds(slot: str, told: str) -> None:
    assert told in advice(Everything(), slot)


def test_the_profile() -> None:
    result = Result(Everything(), "embedded", True, 9, 20, 3, 0, 2.0, 0, [], evaluations=1500)
    result = replace(
        result,
        profile={
            "seconds": {"compile": 0.5, "explore": 1.5},
            "evaluations": {"rest": 300, "deliver(n=n1)": 1200, "never": 0},
            "values": {"number": 3, "members": 1001, "log": 1000},
        },
    )
    told = story(result, width=80, profile=True)
    assert told.partition("Where the time went")[2].splitlines() == [
        "",
        "  compile  500 ms  25%",
        "  explore   1.5 s  75%",
        "",
        "Python calls: 1,500",
        "  deliver(n=n1)  1,200",
        "  rest             300",
        "",
        "Values by part of the state: 3 parts",
        "  members  1,001  too many",
        "  log      1,000",
        "  number       3",
        "  members has held 1,001 values: make it per_key(..., False), one truth value",
        "  per member, so that each is a part of the state of its own.",
    ]
    assert "Where the time went" not in story(result)
    result = replace(result, profile={})
    assert story(result, profile=True) == story(result)


def test_the_profile_tells_the_largest_levels_on_spark() -> None:
    result = Result(Everything(), "spark", True, 9, 20, 3, 0, 2.0, 0, [], evaluations=0)
    seconds = {"job": 1.5, "complete": 0.25, "expand": 0.5, "deduplicate": 0.75, "build": 1.0}
    counts = {"candidates": 4.0, "found": 2500.0, "shuffled": 50.0, "parked": 7.0}
    cut_short = {"states": 9_000.0, **counts}
    result = replace(
        result,
        profile={"levels on Spark": [{"states": 1000.0 * n, **counts, **seconds} for n in range(1, 15)] + [cut_short]},
    )
    told = story(result, profile=True).partition("Levels on Spark: ")[2].splitlines()
    assert told[:3] == [
        "14",
        "  states  found  seconds  expand  duplicates  build  parked  bytes",
        "   3,000  2,500      1.8     0.5         0.8    1.0       7   12.5",
    ]
    assert told[13:] == ["  14,000  2,500      1.8     0.5         0.8    1.0       7   12.5", "  and 2 smaller ones"]


def test_only_the_costliest_actions_are_listed() -> None:
    result = Result(Everything(), "embedded", True, 9, 20, 3, 0, 2.0, 0, [], evaluations=0)
    result = replace(result, profile={"evaluations": {f"a{n:02}": n for n in range(1, 16)}})
    told = story(result, profile=True)
    assert "Python calls: 120\n  a15  15\n" in told
    assert told.rstrip().endswith("  a04   4\n  and 3 others, 6 together")


# -- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0, "0 ms"),
        (0.0031, "3.1 ms"),
        (0.9996, "1 s"),
        (1.428, "1.43 s"),
        (59.996, "1 min 0 s"),
        (155.2, "2 min 35 s"),
        (11_100, "3 h 5 min"),
    ],
)
def test_seconds(value: float, told: str) -> None:
    assert numbers.seconds(value) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0"), (4.2e-08, "4.2E-8"), (9.96e-12, "1.0E-11"), (0.00099, "9.9E-4"), (0.0123, "0.012"), (1.0, "1")],
)
def test_probability_as_tlc_prints_it(value: float, told: str) -> None:
    assert numbers.probability(value) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (512 << 20, "512 MiB"),
        (1023 << 20, "1.0 GiB"),
        (3 << 40, "3,072 GiB"),
    ],
)
def test_sizes(value: int, told: str) -> None:
    assert numbers.size(value) == told


@pytest.mark.parametrize(("part", "told"), [(0, "0%"), (1, "<1%"), (500, "50%"), (999, ">99%"), (1000, "100%")])
def test_percentages_hide_nothing(part: int, told: str) -> None:
    assert numbers.percent(part, 1000) == told


def test_random_behaviours_can_be_told() -> None:
    for protocol in (SmallLedger(lossy=True), Post()):
        for seed in range(6):
            trace = wander(protocol, seed)
            told = trace_story(trace, width=80)
            assert max(map(len, told.splitlines())) <= 80
            for verb, kind in (("received", "receive"), ("timed out", "timeout")):
                happened = sum(e.kind == kind for step in trace.steps for e in step.events)
                assert len(re.findall(rf"^ +{verb} +\w+ → \w+", told, re.MULTILINE)) == happened
