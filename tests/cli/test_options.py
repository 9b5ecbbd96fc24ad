"""The options of the command line, as the checker receives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.commandline import Ran

import fencepost
from fencepost import Protocol, Result
from fencepost.language import loading

Run = Callable[..., Ran]
DIGITS = (
    "from fencepost import *\nclass P(Protocol):\n    n = state(0)\n    @action\n    def go(self):\n        self.n"
    " = 1\n"
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, here: Run) -> Callable[..., dict[str, Any]]:
    """Run ``check counter.py`` and return the options that the checker received."""
    seen: dict[str, Any] = {}
    real = fencepost.check

    def check(protocol: Protocol, **given: Any) -> Result:
        del given["report"]
        seen.clear()
        seen.update(given, protocol=protocol)
        return real(protocol, engine="reference")

    import sys

    monkeypatch.setattr(sys.modules["fencepost.api.check"], "check", check)

    def run(*arguments: str) -> dict[str, Any]:
        assert here("check", "counter.py", *arguments).code in (0, 12)
        return seen

    return run


def test_the_defaults(asked: Callable[..., dict[str, Any]]) -> None:
    given = asked()
    assert given.pop("protocol").constants == {"limit": 3, "careful": True}
    assert given == {"engine": "auto", "invariants": None}, "what is not typed is left to the engine"


def test_every_option_arrives(asked: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    text = (
        "--workers 3 --max-states 1_000 --max-depth 1,000 --max-memory 2GiB --timeout 1.5 --deadlock --continue"
        " --checking --symmetry=bookies,clients --fingerprint-bits 128 --checkpoint new/saved --resume saved --engine"
        " embedded --invariant never_five --invariant never_negative -D limit=4 -Dcareful=no"
    )
    given = asked(*text.split())
    assert given.pop("protocol").constants == {"limit": 4, "careful": False}
    assert given == {
        "engine": "embedded",
        "invariants": ["never_five", "never_negative"],
        "workers": 3,
        "max_states": 1000,
        "max_depth": 1000,
        "max_memory": 2 << 30,
        "timeout": 1.5,
        "deadlock": True,
        "keep_going": True,
        "checking": True,
        "bits": 128,
        "symmetry": ("bookies", "clients"),
        "checkpoint": Path("new/saved"),
        "resume": Path("saved"),
    }
    # whether it can be made was tried, and it is made when there is something to save
    assert not (tmp_path / "new").exists()


def test_symmetry_takes_no_protocol_for_a_constant(here: Run, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        DIGITS.replace("n = state(0)", 'who = model_values("w", 2, symmetric=True)\n    n = state(0)')
        .replace("@action", "@action(w=who)")
        .replace("(self)", "(self, w)")
        .replace("self.n = 1", "self.n = w")
    )
    for arguments in (
        ("--symmetry", "p.py"),
        ("p.py", "--symmetry"),
        ("p.py", "--symmetry=who", "--engine", "embedded"),
    ):
        ran = here("check", *arguments, "--json", "-")
        found = json.loads(ran.out)
        assert (ran.code, found["distinct_states"], found["symmetry"]) == (0, 2, ["who"])
    plain = json.loads(here("check", "p.py", "--json", "-").out)
    assert (plain["distinct_states"], plain["symmetry"]) == (3, [])
    refused = here("check", "p.py", "--symmetry=whom")
    assert (refused.code, refused.err) == (
        151,
        "fencepost: p has no symmetric constant named whom: did you mean who?\n",
    )


def test_the_options_of_a_simulation_arrive(asked: Callable[..., dict[str, Any]]) -> None:
    text = (
        "--engine simulate --walks 1,000 --depth 50 --seed 0 --walk 0 --workers 1 --master local"
        " --conf spark.a=b=c --debug"
    )
    given = asked(*text.split())
    assert given.pop("protocol") is not None
    assert given == {
        "engine": "simulate",
        "invariants": None,
        "workers": 1,
        "walks": 1000,
        "depth": 50,
        "seed": 0,
        "walk": 0,
        "master": "local",
        "conf": {"spark.a": "b=c"},
        "debug": True,
    }


def test_the_options_of_spark_arrive(asked: Callable[..., dict[str, Any]]) -> None:
    given = asked(
        *"--engine spark --states hdfs://a/b --edges --checkpoint hdfs://a/c --checkpoint-every 3 --handover 5".split()
    )
    assert given.pop("protocol") is not None
    assert given == {
        "engine": "spark",
        "invariants": None,
        "states": "hdfs://a/b",
        "edges": True,
        "checkpoint": "hdfs://a/c",
        "checkpoint_levels": 3,
        "handover": 5,
    }


def test_debug_is_for_the_command_line_and_for_spark(asked: Callable[..., dict[str, Any]]) -> None:
    assert "debug" not in asked("--debug", "--engine", "embedded")
    assert asked("--debug", "--engine", "spark")["debug"] is True


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("4096", 4096),
        ("2k", 2048),
        ("500M", 500 << 20),
        ("500MB", 500_000_000),
        ("500MiB", 500 << 20),
        ("16GiB", 16 << 30),
        ("16 gib", 16 << 30),
        ("1.5G", 3 << 29),
        ("1T", 1 << 40),
    ],
)
def test_sizes(asked: Callable[..., dict[str, Any]], text: str, size: int) -> None:
    assert asked("--max-memory", text)["max_memory"] == size


@pytest.mark.parametrize(
    ("definition", "names"),
    [("bookies=3", "b1 b2 b3"), ("bookies=b1,b2", "b1 b2"), ("bookies=x, y ,z", "x y z"), ("bookies={p,q}", "p q")],
)
def test_model_values_by_number_or_by_name(here: Run, tmp_path: Path, definition: str, names: str) -> None:
    (tmp_path / "p.py").write_text(DIGITS.replace("    n = ", '    bookies = model_values("b", 2)\n    n = '))
    protocol = loading.configured(loading.load("p.py"), None, [definition])
    assert [v.name for v in protocol.constants["bookies"]] == names.split()


def test_a_constant_on_top_of_a_configuration(here: Run) -> None:
    protocol = loading.configured(loading.load("counter.py"), "broken", ["careful=false"])
    assert protocol.constants == {"limit": 7, "careful": False}


def test_a_value_may_hold_an_equals_sign(here: Run, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(DIGITS.replace("    n = ", '    name_of_it = constant("x")\n    n = '))
    assert loading.configured(loading.load("p.py"), None, ["name_of_it= a=b "]).constants == {"name_of_it": "a=b"}


def test_a_file_can_import_its_neighbours(here: Run, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "neighbour_of_p.py").write_text("LIMIT = 1\n")
    (tmp_path / "inner" / "p.py").write_text("from neighbour_of_p import LIMIT\n" + DIGITS.replace("= 1", "= LIMIT"))
    assert here("check", "inner/p.py").code == 0


def test_a_neighbour_does_not_replace_the_standard_library(here: Run, tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("raise RuntimeError\n")
    (tmp_path / "p.py").write_text("import colorsys\n" + DIGITS)
    assert here("check", "p.py").code == 0


def test_loading_leaves_nothing_next_to_the_file(here: Run, tmp_path: Path) -> None:
    before = sorted(p.name for p in tmp_path.iterdir())
    assert here("check", "counter.py").code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_one_of_several_classes(here: Run, tmp_path: Path) -> None:
    both = DIGITS + "class Q(P):\n    @invariant\n    def zero(self):\n        return self.n == 0\n"
    (tmp_path / "both.py").write_text(both)
    assert here("check", "both.py:P").code == 0
    assert here("check", "both.py:Q").code == 12


def test_a_private_base_class_is_not_in_the_way(here: Run, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(DIGITS.replace("class P", "class _Base") + "class P(_Base):\n    pass\n")
    assert loading.load("p.py").__name__ == "P"
    assert loading.load("p.py:_Base").__name__ == "_Base"


def test_an_absolute_path(here: Run, tmp_path: Path) -> None:
    assert here("check", str(tmp_path / "counter.py")).code == 0


def test_the_version(here: Run) -> None:
    assert here("--version").out.startswith(f"fencepost {fencepost.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_the_commands(here: Run, arguments: list[str]) -> None:
    ran = here(*arguments)
    assert (ran.code, ran.err) == (0, "")
    for command in ("check", "list", "show"):
        assert f"\n    {command}" in ran.out


def test_help_of_check_names_every_option(here: Run) -> None:
    text = here("check", "--help").out
    for option in (
        "-D --config --invariant --workers --max-states --max-depth --max-memory --timeout --deadlock --continue"
        " --profile --checking --json --html --sequence --itf --dot --eval --checkpoint --resume --debug --engine"
        " --fingerprint-bits"
    ).split():
        assert f"\n  {option}" in text or f", {option}" in text, option
