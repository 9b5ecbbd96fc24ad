"""The options of each engine: those it has, values it refuses, and their names in errors."""

from __future__ import annotations

import ast
import pickle
import re
from dataclasses import FrozenInstanceError, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost import (
    EmbeddedOptions,
    OptionError,
    Options,
    Protocol,
    ReferenceOptions,
    SearchOptions,
    SimulationOptions,
    SparkOptions,
    SystemFailure,
    action,
    always_eventually,
    check,
    errors,
    invariant,
    require,
    state,
    view,
)
from fencepost.checker.engines.options import ENGINES, RANGES, options_of
from fencepost.semantics import Stepper

CLASSES = [Options, SearchOptions, ReferenceOptions, EmbeddedOptions, SparkOptions, SimulationOptions]


class Counter(Protocol):
    """Counts to two."""

    n: int = state(0)

    @action
    def count(self) -> None:
        require(self.n < 2)
        self.n += 1

    @invariant
    def small(self) -> bool:
        return self.n < 3


class Returning(Counter):
    """Has a temporal property."""

    @always_eventually
    def done(self) -> bool:
        return self.n == 2


class Viewed(Returning):
    """Has a view too."""

    @view
    def parity(self) -> int:
        return self.n % 2


# -- refusals ---------------------------------------------------------------------------------------------------------

BEYOND = {name: (least - 1, most + 1) for name, (least, most) in RANGES.items()}


@pytest.mark.parametrize("kind", CLASSES)
def test_the_defaults_are_valid(kind: type[Options]) -> None:
    kind().validate()
    assert kind().workers >= 1
    with pytest.raises(FrozenInstanceError):
        kind().workers = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, each.name) for kind in CLASSES for each in fields(kind) if each.name in RANGES]
)
def test_a_number_out_of_its_range_is_refused(kind: Any, name: str) -> None:
    least, most = RANGES[name]
    besides = {"seed": 1} if name == "walk" else {}
    for number in (least, most):
        kind(**besides, **{name: number}).validate()
    for number in BEYOND[name]:
        with pytest.raises(OptionError) as refused:
            kind(**{name: number}).validate()
        assert str(refused.value) == f"{name} is {number:,}: give a number from {least:,} to {most:,}"
        assert refused.value.options == (name,)


def test_every_whole_number_has_a_range() -> None:
    whole = {each.name for kind in CLASSES for each in fields(kind) if str(each.type) in ("int", "int | None")}
    assert whole - {"bits"} == set(RANGES)


@pytest.mark.parametrize(
    ("options", "message", "names"),
    [
        (Options(timeout=-0.5), "timeout is -0.5: give 0 or more seconds", ("timeout",)),
        (SimulationOptions(timeout=float("nan")), "timeout is nan: give 0 or more seconds", ("timeout",)),
        (ReferenceOptions(bits=32), "bits is 32: give 64 or 128", ("bits",)),
        (EmbeddedOptions(checkpoint_every=-1.0), "checkpoint_every is -1: give 0", ("checkpoint_every",)),
        (SearchOptions(edges=True), "edges are written next to the states: give states", ("edges", "states")),
        (SparkOptions(states="s", bits=128), "states is for .* leave out the 128 of bits", ("states", "bits")),
        (EmbeddedOptions(states="s", symmetry=True), "states is for .* out symmetry", ("states", "symmetry")),
        (EmbeddedOptions(states="s", resume="r"), "engine spark can go on with one", ("states", "engine", "resume")),
        (EmbeddedOptions(states="a", checkpoint="a/b"), "states and checkpoint are both", ("states", "checkpoint")),
        (SparkOptions(states="a://b", checkpoint="a://b/c"), "states and checkpoint", ("states", "checkpoint")),
        (EmbeddedOptions(checkpoint="hdfs://a"), "checkpoint hdfs://a: only engine spark", ("checkpoint", "engine")),
        (EmbeddedOptions(resume="hdfs://a"), "resume hdfs://a: only engine spark", ("resume", "engine")),
        (SparkOptions(states="s", symmetry=True), "states is for .* out symmetry", ("states", "symmetry")),
        (SparkOptions(checking=True), "checking is for small configurations", ("checking", "engine")),
        (SimulationOptions(walk=3), "walk is one walk of a seed", ("walk", "seed", "walks")),
        (SimulationOptions(walk=3, seed=1, walks=2), "walk is one walk of a seed", ("walk", "seed", "walks")),
        (SimulationOptions(conf={"spark.a": "b"}), "conf is for walks on Spark: give master", ("conf", "master")),
    ],
)
def test_what_does_not_go_together(options: Options, message: str, names: tuple[str, ...]) -> None:
    with pytest.raises(OptionError, match=message) as refused:
        options.validate()
    assert refused.value.options == names
    with pytest.raises(OptionError, match=message):
        check(Counter(), options=options)


@pytest.mark.parametrize(
    "options",
    [
        SparkOptions(states="a", resume="b"),
        SparkOptions(checkpoint="hdfs://a", resume="hdfs://b"),
        EmbeddedOptions(states="a/b", checkpoint="a", edges=True),
        EmbeddedOptions(checkpoint_every=0.0, checkpoint="a"),
        SimulationOptions(walk=0, seed=0),
        SimulationOptions(conf={"spark.a": "b"}, master="local"),
    ],
)
def test_what_goes_together(options: Options) -> None:
    options.validate()


@pytest.mark.parametrize(
    ("protocol", "options", "message"),
    [
        (Viewed, ReferenceOptions(), "done is judged on all steps .* with invariants instead, or take out the view"),
        (Viewed, SimulationOptions(), "take out the view"),
        (Viewed, SparkOptions(), "take out the view"),
        (Returning, EmbeddedOptions(checkpoint="a"), "leave out checkpoint and resume: .* of engine spark"),
        (Returning, EmbeddedOptions(resume="a"), "leave out checkpoint and resume"),
        (Returning, SearchOptions(symmetry=True), "symmetry and the temporal property done do not go together"),
    ],
)
def test_what_does_not_go_with_the_protocol(protocol: type[Protocol], options: Options, message: str) -> None:
    options.validate()
    with pytest.raises(OptionError, match=message):
        options.validate(Stepper(protocol()))
    options.validate(Stepper(protocol(), ["small"]))
    replaced = type(options)()
    if protocol is not Viewed:
        replaced.validate(Stepper(protocol()))
    SparkOptions(checkpoint="a", resume="b").validate(Stepper(Returning()))


def test_options_are_validated_with_the_protocol() -> None:
    """With ``auto`` and by name."""
    for engine in ("auto", "embedded", "reference", "simulate"):
        with pytest.raises(OptionError, match="take out the view"):
            check(Viewed(), engine=engine)
    for engine in ("auto", "embedded"):
        with pytest.raises(OptionError, match="leave out checkpoint"):
            check(Returning(), engine=engine, checkpoint="nowhere/at/all")


# -- the choice of engine ---------------------------------------------------------------------------------------------


def test_options_say_the_engine() -> None:
    for options, engine in (
        (ReferenceOptions(), "reference"),
        (EmbeddedOptions(), "embedded"),
        (SimulationOptions(walks=5, seed=1, workers=1), "simulate"),
    ):
        assert check(Counter(), options=options).engine == engine
        assert check(Counter(), engine=engine, options=options).engine == engine
    for left_open in (Options(), SearchOptions()):
        assert check(Counter(), options=left_open).engine == "interpreted"
        assert check(Counter(), engine="reference", options=left_open).engine == "reference"


def test_options_of_another_engine_are_refused() -> None:
    with pytest.raises(OptionError, match="options are those of engine embedded, and not of reference") as refused:
        check(Counter(), engine="reference", options=EmbeddedOptions())
    assert refused.value.options == ("options", "engine")


def test_what_is_given_by_name_is_on_top() -> None:
    engine, options = options_of("auto", ReferenceOptions(max_depth=3, deadlock=True), {"max_depth": 4})
    assert (engine, options) == ("reference", replace(ReferenceOptions(), max_depth=4, deadlock=True))
    assert options_of("spark", SearchOptions(bits=128), {}) == ("spark", SparkOptions(bits=128))
    assert options_of("auto", None, {}) == ("auto", EmbeddedOptions())
    with pytest.raises(OptionError, match="bits is 32"):
        options_of("reference", None, {"bits": 32})


def misplaced() -> list[tuple[str, str]]:
    own = {engine: {each.name for each in fields(kind)} for engine, kind in ENGINES.items()}
    return [(engine, name) for engine in own for name in sorted(set().union(*own.values()) - own[engine])]


GIVEN: dict[str, Any] = {"symmetry": True, "edges": True, "debug": True, "conf": {"spark.a": "b"}, "bits": 128}


@pytest.mark.parametrize(("engine", "name"), misplaced())
def test_an_option_of_another_engine_is_refused_by_the_name_of_one_that_has_it(engine: str, name: str) -> None:
    """An option with its default value counts as not given."""
    with pytest.raises(OptionError) as refused:
        check(Counter(), engine=engine, **{name: GIVEN.get(name, 5)})
    assert refused.value.options[0] == name and str(refused.value).startswith(f"{name} is ")
    having = [each for each, kind in ENGINES.items() if name in {f.name for f in fields(kind)} and each != "auto"]
    named = re.findall(r"engine (\w+)", str(refused.value))
    assert named == having or (engine == "simulate" and "an option of a search" in str(refused.value))
    default = next(getattr(kind(), name) for kind in CLASSES if hasattr(kind(), name))
    assert options_of(engine, None, {name: default})[1] == ENGINES[engine]()


@pytest.mark.parametrize(
    ("engine", "given", "message"),
    [
        ("embeded", {}, "fencepost has no engine named embeded: did you mean embedded?"),
        ("auto", {"max_state": 4}, "check has no option named max_state: did you mean max_states?"),
        ("reference", {"checkpoint": "a"}, "checkpoint is for engine embedded and engine spark"),
        ("auto", {"walks": 4}, "walks is an option of simulation: use it with engine simulate"),
        ("auto", {"handover": 4}, "handover is for engine spark"),
        ("spark", {"checkpoint_every": 4.0}, "checkpoint_every is for engine embedded"),
        ("embedded", {"master": "local"}, "master is for engine spark and engine simulate"),
    ],
)
def test_what_there_is_not(engine: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        check(Counter(), engine=engine, **given)
    assert str(refused.value) == message


# -- options in errors ------------------------------------------------------------------------------------------------


def test_an_error_spells_its_options_as_the_user_does() -> None:
    error = OptionError("{max_memory} of {max_memory} {other}, {{}} {max_memory", "max_memory", "more")
    assert str(error) == "max_memory of max_memory {other}, {{}} {max_memory"
    with errors.options_spelled(lambda name: f"--{name}"):
        assert str(error) == "--max_memory of --max_memory {other}, {{}} {max_memory"
        with errors.options_spelled(str.upper):
            assert str(error).startswith("MAX_MEMORY of")
        assert str(error).startswith("--max_memory")
    raised = errors.ProtocolRaised("run with {checking}", "checking", where="go")
    for each in (error, raised):
        copied = pickle.loads(pickle.dumps(each))
        assert (str(copied), copied.options) == (str(each), each.options)
    assert raised.where == "go" and str(raised) == "run with checking"
    assert str(SystemFailure("{engine}")) == "{engine}"


SOURCE = Path(fencepost.__file__).parent
RAISING = {"OptionError", "SystemFailure", "ProtocolRaised", "NotAProtocol", "Misbehaved", "ReplayFailed"}
LIBRARY = ("api", "behaviours", "checker", "files", "language", "semantics", "states")


@cache
def messages() -> list[tuple[str, str, set[str]]]:
    """The place of an error, the fixed part of its message, and the options in it."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not node.args or getattr(node.func, "id", "") not in RAISING:
                continue
            parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
            fixed = "\0".join(str(p.value) for p in parts if isinstance(p, ast.Constant))
            options = {str(each.value) for each in node.args[1:] if isinstance(each, ast.Constant)}
            found.append((f"{file.relative_to(SOURCE)}:{node.lineno}", fixed, options))
    return found


def test_errors_list_the_options_that_they_name() -> None:
    assert len(messages()) > 400
    for where, message, options in messages():
        named = set(re.findall(r"\{(\w+)\}", message))
        assert named <= options, f"{where} names {named - options} and does not list it"


def test_only_the_command_line_speaks_of_dashes() -> None:
    """Whole commands for the user to type are exempt."""
    for where, message, _ in messages():
        if where.startswith((*LIBRARY, "spark/engine", "spark/table", "spark/checkpoint", "spark/simulate")):
            assert not re.search(r"(?<![\w-])--[a-z]", re.sub(r"fencepost check[^\0]*", "", message)), where
