"""Constants from Python and from the command line, and the errors for wrong ones."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from fencepost import ModelValue, OptionError, Protocol, configuration, constant, model_values
from fencepost.language.values import Set


class Fence(enum.Enum):
    NEVER = 0
    ON_READ = 1


class Mode(str, enum.Enum):
    FAST = "fast"
    SAFE = "safe"


class Ledgers(Protocol):
    quorum: int = constant(2)
    ratio: float = constant(0.5)
    label: str = constant("x")
    fence: Fence = constant(Fence.ON_READ)
    mode: Mode = constant(Mode.FAST)
    journal: bool = constant(True)
    sizes: frozenset[int] = constant(frozenset({1, 2}))
    order: tuple[str, ...] = constant(("a", "b"))
    flags: tuple[bool, ...] = constant((True,))
    fences: frozenset[Fence] = constant(frozenset({Fence.NEVER}))
    anything: Any = constant(())
    bookies: tuple[ModelValue, ...] = model_values("b", 3)
    clients: tuple[ModelValue, ...] = model_values("c", ["ada", "bob"])
    configurations = {
        "big": configuration(bookies=5, quorum=3),
        "lossy": configuration(expect="deadlock", journal=False),
    }


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("quorum", "3", 3), ("quorum", 4, 4), ("quorum", "-1", -1),
        ("ratio", "0.25", 0.25), ("ratio", 2.0, 2.0),
        ("label", "3", "3"), ("label", "", ""), ("label", "true", "true"),
        ("fence", "never", Fence.NEVER), ("fence", "ON_READ", Fence.ON_READ), ("fence", Fence.NEVER, Fence.NEVER),
        ("mode", "SAFE", Mode.SAFE), ("mode", Mode.SAFE, Mode.SAFE),
        ("journal", "true", True), ("journal", "No", False), ("journal", "off", False), ("journal", "ON", True),
        ("journal", False, False),
        ("sizes", "3,4", Set({3, 4})), ("sizes", "{3, 4}", Set({3, 4})), ("sizes", "", Set()),
        ("sizes", [5, 5], Set({5})),
        ("sizes", {1}, Set({1})),
        ("order", "b, a", ("b", "a")), ("order", "(b,a)", ("b", "a")), ("order", ["z"], ("z",)),
        ("flags", "false,yes", (False, True)),
        ("fences", "never,on_read", Set({Fence.NEVER, Fence.ON_READ})), ("fences", "{}", Set()),
        ("anything", "a,b", ("a", "b")),
    ],
)  # fmt: skip
def test_a_constant_takes_its_own_type_and_its_text(name: str, given: Any, value: Any) -> None:
    held = Ledgers(**{name: given}).constants[name]
    assert held == value
    assert type(held) is type(value)
    assert [type(v) for v in held] == [type(v) for v in value] if isinstance(value, tuple) else True
    assert getattr(Ledgers(**{name: given}), name) == value


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("quorum", "two", "constant quorum is a whole number, not 'two', for example quorum=2"),
        ("quorum", 2.0, "constant quorum is a whole number, not 2.0, for example quorum=2"),
        ("quorum", True, "constant quorum is a whole number, not True, for example quorum=2"),
        ("quorum", None, "constant quorum is a whole number, not None, for example quorum=2"),
        ("ratio", "x", "constant ratio is a number, not 'x', for example ratio=0.5"),
        ("ratio", "nan", "constant ratio cannot be NaN, which is not a value: it does not equal itself"),
        ("label", 3, "constant label is text, not 3, for example label=x"),
        ("fence", "sometimes", "constant fence is one of NEVER, ON_READ, not 'sometimes', for example fence=on_read"),
        ("fence", 1, "constant fence is one of NEVER, ON_READ, not 1, for example fence=on_read"),
        ("mode", "slow", "constant mode is one of FAST, SAFE, not 'slow', for example mode=fast"),
        ("journal", "maybe", "constant journal is true or false, not 'maybe', for example journal=true"),
        ("journal", 1, "constant journal is true or false, not 1, for example journal=true"),
        ("sizes", "1,x", "constant sizes is a set, not 'x', for example sizes=1,2"),
        ("sizes", 1, "constant sizes is a set, not 1, for example sizes=1,2"),
        ("sizes", [[1]], "constant sizes cannot be a list, which is mutable; use a tuple"),
        ("order", 1, "constant order is a sequence, not 1, for example order=a,b"),
        ("order", [[1]], "constant order cannot be a list, which is mutable; use a tuple"),
        ("bookies", "0", "constant bookies needs between 1 and 1000 model values, not 0"),
        ("bookies", 1001, "constant bookies needs between 1 and 1000 model values, not 1001"),
        ("bookies", "b1,b1", "constant bookies names a model value twice: b1, b1"),
        ("bookies", "b1,b 2",
        "constant bookies is a set of model values, not 'b 2', for example bookies=3 or bookies=b1,b2"),
        ("bookies", True,
        "constant bookies is a set of model values, not True, for example bookies=3 or bookies=b1,b2"),
        ("bookies", 2.5, "constant bookies is a set of model values, not 2.5, for example bookies=3 or bookies=b1,b2"),
        ("bookies", [], None),
        ("qorum", 3, "ledgers has no constant named qorum: did you mean quorum?"),
        ("zzz", 3,
        "ledgers has no constant named zzz: it has quorum, ratio, label, fence, mode, journal, sizes, order, flags, "
         "fences, anything, bookies, clients"),
    ],
)  # fmt: skip
def test_a_wrong_constant_is_named_with_what_it_should_be(name: str, given: Any, message: str | None) -> None:
    with pytest.raises(OptionError) as raised:
        Ledgers(**{name: given})
    assert raised.value.exit_code == 151
    assert name in str(raised.value)
    if message is not None:
        assert str(raised.value) == message


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (2, ["b1", "b2"]), ("2", ["b1", "b2"]), ("x,y", ["x", "y"]), ("{x, y}", ["x", "y"]), (["y", "x"], ["y", "x"]),
        ("lone", ["lone"]), ({"y", "x"}, ["x", "y"]), ((ModelValue("q", 7), "p"), ["q", "p"]),
        (12, [f"b{i}" for i in range(1, 13)]),
    ],
)  # fmt: skip
def test_model_values_by_count_and_by_names(given: Any, names: list[str]) -> None:
    bookies = Ledgers(bookies=given).bookies
    assert [b.name for b in bookies] == names
    assert [b.index for b in bookies] == list(range(len(names)))
    assert sorted(bookies) == list(bookies)


@pytest.mark.parametrize("none", [0, []])
def test_a_set_of_model_values_can_be_empty_only_where_it_is_by_default(none: Any) -> None:
    class Read(Protocol):
        readers: tuple[ModelValue, ...] = model_values("r", none)

    assert Read().readers == Read(readers="0").readers == Read(readers=[]).readers == ()
    assert [r.name for r in Read(readers=2).readers] == ["r1", "r2"]
    with pytest.raises(OptionError, match="constant readers needs between 0 and 1000 model values, not -1"):
        Read(readers=-1)
    with pytest.raises(OptionError):
        Read(readers="")


def test_defaults_and_configurations() -> None:
    assert [b.name for b in Ledgers().bookies] == ["b1", "b2", "b3"]
    assert [c.name for c in Ledgers().clients] == ["ada", "bob"]
    assert Ledgers().sizes == frozenset({1, 2})
    big = Ledgers.configured("big", quorum="4")
    assert (len(big.bookies), big.constants["quorum"]) == (5, 4)
    assert Ledgers.configured().constants == Ledgers().constants
    with pytest.raises(OptionError, match=r"ledgers has no configuration named bigg: did you mean big\?"):
        Ledgers.configured("bigg")


def test_a_constant_can_not_be_assigned() -> None:
    with pytest.raises(AttributeError, match="quorum is a constant: actions can only assign state variables"):
        Ledgers().quorum = 3


@pytest.mark.parametrize("default", [[1], {1: 2}, {1}, (1, [2]), object()])
def test_the_default_of_a_constant_must_be_a_value(default: Any) -> None:
    with pytest.raises(OptionError, match="constant broken cannot be a"):
        type("Broken", (Protocol,), {"broken": constant(default)})


def test_a_variant_overrides_constants_and_keeps_the_others() -> None:
    class Variant(Ledgers):
        quorum: int = constant(7)
        extra: bool = constant(False)

    assert (Variant().quorum, Variant().label, Variant(extra="yes").extra, Ledgers().quorum) == (7, "x", True, 2)
    assert "extra" not in Ledgers().constants
