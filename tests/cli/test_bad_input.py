"""Every mistake a user can make: its exit code, and one line that names what is wrong and what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.commandline import COUNTER, RAISING, RAISING_LINE, Ran

from fencepost import errors
from fencepost.cli.main import main
from fencepost.language import loading

Run = Callable[..., Ran]

CLASS = "from fencepost import *\nclass P(Protocol):\n    n: int = state(0)\n"
ACTION = "    @action\n    def tick(self) -> None:\n        self.n = 1 - self.n\n"

FILES: dict[str, str | bytes] = {
    "syntax.py": "from fencepost import *\n\nclass P(Protocol)\n    pass\n",
    "nul.py": "x = 1\0\n",
    "latin.py": b'x = "caf\xe9"\n',
    "none.py": "x = 1\n",
    "imported.py": "from counter import Counter\n",
    "two.py": "from fencepost import *\nclass A(Protocol): pass\nclass B(Protocol): pass\n",
    "notinstalled.py": "import a_module_that_nobody_has\n",
    "badname.py": "from fencepost import Protokoll\n",
    "raises.py": "from fencepost import *\n\nn = 1 // 0\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "asserts.py": "assert False\n",
    "badstate.py": "from fencepost import *\nclass P(Protocol):\n    n: list = state([])\n" + ACTION,
    "badconstant.py": "from fencepost import *\nclass P(Protocol):\n    n = constant([1])\n" + ACTION,
    "nodefault.py": (
        "from fencepost import *\nclass R(Record):\n    x: int\nclass P(Protocol):\n    n: R = state(R)\n" + ACTION
    ),
    "noactions.py": CLASS,
    "nodomain.py": CLASS + "    @action\n    def tick(self, who) -> None:\n        self.n = 1\n",
    "baddomain.py": (
        CLASS + "    @action(who=lambda p: p.people)\n    def tick(self, who) -> None:\n        self.n = 1\n"
    ),
    "wrongdomain.py": CLASS + "    @action(whom=(1, 2))\n    def tick(self, who) -> None:\n        self.n = 1\n",
    "plain": "text",
    "Counter.tla": "---- MODULE Counter ----\n====\n",
    "deep.json": "[" * 100_000,
    "sets.py": CLASS + "    sizes = constant(frozenset({1}))\n    ratio = constant(0.5)\n" + ACTION,
    "own.py": "from fencepost import *\nclass P(Protocol):\n    shapes: int = state(0)\n" + ACTION,
    "twice.py": CLASS + "    @action\n    def other(self): pass\n    @action\n    def n(self): pass\n",
}

# fmt: off
CASES: list[tuple[str, int, list[str], list[str]]] = [
    # name, exit code, arguments, what the line must say
    ("walks without walking", 151, ["check", "counter.py", "--walks", "5"],
    ["--walks is an option of simulation", "--engine simulate"]),
    ("a search's limit for walks", 151, ["check", "counter.py", "--engine", "simulate", "--max-depth", "5"],
    ["--max-depth is an option of a search", "--depth and --timeout"]),
    ("a walk of no seed", 151, ["check", "counter.py", "--engine", "simulate", "--walk", "5"],
    ["--walk is one walk of a seed", "with --seed and without --walks"]),
    ("too deep a walk", 151, ["check", "counter.py", "--engine", "simulate", "--depth", "2000000"],
    ["depth is 2,000,000", "1,000,000"]),
    ("a negative seed", 151, ["check", "counter.py", "--engine", "simulate", "--seed", "-1"], ["--seed", "too small"]),
    ("no walks", 151, ["check", "counter.py", "--engine", "simulate", "--walks", "0"], ["--walks", "too small"]),
    ("unknown protocol, near", 150, ["check", "ledger-chaning"],
    ["no protocol named ledger-chaning", "did you mean ledger-chaining"]),
    ("unknown protocol, far", 150, ["check", "zzz"], ["no protocol named zzz", "ledger-chaining"]),
    ("unknown protocol, a file without its ending", 150, ["check", "counter"], ["write counter.py"]),
    ("a file that is not Python by name", 150, ["check", "plain"], ["plain is not a protocol", ".py"]),
    ("missing file", 150, ["check", "countr.py"], ["no file countr.py", "did you mean counter.py"]),
    ("missing folder", 150, ["check", "no/counter.py"], ["no file no/counter.py", "no folder no"]),
    ("missing specification", 150, ["check", "Countr.tla"], ["no file Countr.tla", "did you mean Counter.tla"]),
    ("directory of a specification", 150, ["check", "folder.tla"], ["folder.tla is a directory"]),
    ("directory", 150, ["check", "folder.py"], ["folder.py is a directory"]),
    ("syntax error", 150, ["check", "syntax.py"], ["syntax.py is not Python", "line 3", "expected ':'"]),
    ("null byte", 150, ["check", "nul.py"], ["nul.py is not Python"]),
    ("not UTF-8", 150, ["check", "latin.py"], ["latin.py is not Python", "utf-8"]),
    ("no protocol", 150, ["check", "none.py"], ["none.py defines no protocol", "fencepost.Protocol"]),
    ("only an imported protocol", 150, ["check", "imported.py"], ["imported.py defines no protocol"]),
    ("several protocols", 150, ["check", "two.py"], ["two.py defines 2 protocols, A, B", "two.py:A"]),
    ("unknown class", 150, ["check", "two.py:C"], ["two.py has no protocol named C", "A, B"]),
    ("not a protocol class", 150, ["check", "none.py:x"], ["x in none.py is not a protocol"]),
    ("no class after the colon", 150, ["check", "two.py:"], ["names no class"]),
    ("import of what is not installed", 150, ["check", "notinstalled.py"],
    ["line 1", "a_module_that_nobody_has", "not installed"]),
    ("import of a name that is not there", 150, ["check", "badname.py"],
    ["badname.py cannot be loaded, line 1", "Protokoll"]),
    ("raises when loaded", 150, ["check", "raises.py"], ["raises.py cannot be loaded, line 3", "ZeroDivisionError"]),
    ("exits when loaded", 150, ["check", "exits.py"], ["exits.py cannot be loaded", "exits Python", "line 2"]),
    ("assertion without words", 150, ["check", "asserts.py"], ["asserts.py cannot be loaded, line 1: AssertionError"]),
    ("mutable state", 150, ["check", "badstate.py"], ["badstate.py", "a list, which is mutable; use a tuple"]),
    ("mutable constant", 150, ["check", "badconstant.py"],
    ["badconstant.py", "constant n", "a list, which is mutable"]),
    ("record without a default", 150, ["check", "nodefault.py"], ["nodefault.py", "R.x has no default"]),
    ("no actions", 150, ["check", "noactions.py"], ["noactions.py has no actions", "@action"]),
    ("parameter without a domain", 150, ["check", "nodomain.py"], ["action tick", "'who'", "@action(b=bookies)"]),
    ("domain that raises", 150, ["check", "baddomain.py"], ["parameters of action tick", "AttributeError", "people"]),
    ("domain for no parameter", 150, ["check", "wrongdomain.py"], ["action tick", "who", "@action(b=bookies)"]),
    ("show of a missing file", 150, ["show", "gone.py"], ["no file gone.py"]),
    ("no command", 151, ["chekc", "counter.py"], ["no command chekc", "did you mean check"]),
    ("a file for a command", 151, ["counter.py"], ["did you mean fencepost check counter.py"]),
    ("no protocol given", 151, ["check"], ["give a protocol", "fencepost check --help"]),
    ("two protocols given", 151, ["check", "counter.py", "two.py"], ["two.py is one argument too many"]),
    ("option before the command", 151, ["--verbose"], ["--verbose"]),
    ("unknown option", 151, ["check", "counter.py", "--max-state=4"],
    ["no option --max-state=4", "did you mean --max-states"]),
    ("unknown option of list", 151, ["list", "--all"], ["no option --all"]),
    ("abbreviated option", 151, ["check", "counter.py", "--work", "2"], ["no option --work", "--workers"]),
    ("unknown constant", 151, ["check", "counter.py", "-D", "limt=4"],
    ["no constant named limt", "did you mean limit"]),
    ("no value", 151, ["check", "counter.py", "-D", "limit"], ["-D limit is not of the form NAME=VALUE"]),
    ("constant given twice", 151, ["check", "counter.py", "-D", "limit=4", "-D", "limit=5"],
    ["limit is given twice, as 4 and as 5"]),
    ("constant of the wrong type", 151, ["check", "counter.py", "-D", "limit=many"],
    ["constant limit is a whole number, not 'many'"]),
    ("constant that is no truth value", 151, ["check", "counter.py", "-D", "careful=2"],
    ["careful is true or false", "not '2'"]),
    ("unknown configuration", 151, ["check", "counter.py", "--config", "smal"],
    ["no configuration named smal", "small"]),
    ("unknown invariant", 151, ["check", "counter.py", "--invariant", "never_six"],
    ["no invariant named never_six", "never_five"]),
    ("unknown engine", 151, ["check", "counter.py", "--engine", "embeded"], ["no engine named embeded", "embedded"]),
    ("workers that are no number", 151, ["check", "counter.py", "--workers", "x"],
    ["--workers", "'x' is not a whole number"]),
    ("no workers", 151, ["check", "counter.py", "--workers", "0"], ["--workers", "at least 1"]),
    ("negative workers", 151, ["check", "counter.py", "--workers", "-1"], ["--workers", "at least 1"]),
    ("too many workers", 151, ["check", "counter.py", "--workers", "1000000"], ["--workers", "at most 1024"]),
    ("no states", 151, ["check", "counter.py", "--max-states", "0"], ["--max-states", "at least 1"]),
    ("half a level", 151, ["check", "counter.py", "--max-depth", "1.5"],
    ["--max-depth", "'1.5' is not a whole number"]),
    ("not a size", 151, ["check", "counter.py", "--max-memory", "lots"],
    ["--max-memory", "'lots' is not a size", "16GiB"]),
    ("a size with a strange unit", 151, ["check", "counter.py", "--max-memory", "4Gi"],
    ["--max-memory", "'4Gi' is not a size"]),
    ("negative size", 151, ["check", "counter.py", "--max-memory", "-4G"], ["--max-memory"]),
    ("endless size", 151, ["check", "counter.py", "--max-memory", "inf"], ["--max-memory", "not a size"]),
    ("no size at all", 151, ["check", "counter.py", "--max-memory", ""], ["--max-memory", "not a size"]),
    ("time that is no number", 151, ["check", "counter.py", "--timeout", "soon"],
    ["--timeout", "'soon' is not a number of seconds: write 10, 10s, 500ms, 2m or 1h"]),
    ("no time", 151, ["check", "counter.py", "--timeout", "0"], ["--timeout", "more than 0 seconds"]),
    ("not a time", 151, ["check", "counter.py", "--timeout", "nan"], ["--timeout", "not a number of seconds"]),
    ("odd fingerprints", 151, ["check", "counter.py", "--fingerprint-bits", "32"],
    ["--fingerprint-bits", "neither 64 nor 128"]),
    ("option without its value", 151, ["check", "counter.py", "--json"], ["--json", "expected one argument"]),
    ("output in no directory", 151, ["check", "counter.py", "--json", "no/r.json"],
    ["--json no/r.json", "no directory no"]),
    ("no output", 151, ["check", "counter.py", "--json", ""], ["--json needs a name", "name a file"]),
    ("no folder", 151, ["check", "counter.py", "--states", ""], ["--states", "name a directory"]),
    ("a constant that is a set", 151, ["check", "sets.py", "-D", "sizes=1,x"], ["constant sizes is a set, not 'x'"]),
    ("a constant that is no number", 151, ["check", "sets.py", "-D", "ratio=nan"],
    ["constant ratio cannot be NaN, which is not a value"]),
    ("a long wrong constant", 151, ["check", "counter.py", "-D", "limit=" + "x" * 9_000],
    ["constant limit is a whole number", "limit=3"]),
    ("a constant called self", 151, ["check", "counter.py", "-D", "self=1"], ["no constant named self"]),
    ("a constant called configuration", 151, ["check", "counter.py", "-D", "configuration=1"],
    ["no constant named configuration"]),
    ("no protocol at all", 150, ["check", ""], ["give a protocol"]),
    ("a trace that is no UTF-8", 151, ["explore", "counter.py", "--trace", "latin.py"],
    ["--trace latin.py: it is not JSON", "UTF-8"]),
    ("a trace that is too deep", 151, ["explore", "counter.py", "--trace", "deep.json"],
    ["--trace deep.json: it is nested too deeply"]),
    ("a variable of Fencepost's own name", 150, ["check", "own.py"],
    ["own.py cannot be loaded, line 2: shapes cannot be a state variable of P"]),
    ("a variable and an action of one name", 150, ["check", "twice.py"],
    ["twice.py cannot be loaded, line 7: n is declared twice"]),
    ("output to a directory", 151, ["check", "counter.py", "--html", "folder.py"], ["--html folder.py is a directory"]),
    ("output over the protocol", 151, ["check", "counter.py", "--dot", "./counter.py"],
    ["would overwrite the protocol"]),
    ("two outputs to one file", 151, ["check", "counter.py", "--dot", "x", "--itf", "./x"],
    ["--dot and --itf", "both", "x"]),
    ("page to standard output", 151, ["check", "counter.py", "--html", "-"], ["only --json can go to standard output"]),
    ("not an expression", 151, ["check", "counter.py", "--eval", "count ="],
    ["--eval count =", "cannot be read at column"]),
    ("unknown name in an expression", 151, ["check", "counter.py", "--eval", "cuont + 1"],
    ["cuont", "did you mean count"]),
    ("nothing to go on from", 151, ["check", "counter.py", "--resume", "gone"], ["--resume gone", "no such directory"]),
    ("checkpoint in a file", 151, ["check", "counter.py", "--checkpoint", "none.py"], ["--checkpoint none.py"]),
    (
        "checkpoint of the reference engine",
        151,
        ["check", "counter.py", "--engine", "reference", "--checkpoint", "saved"],
        ["--checkpoint is for --engine embedded and --engine spark"],
    ),
]
# fmt: on


@pytest.fixture
def files(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "folder.tla").mkdir()


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shipped names, so that the hints do not depend on the shipped protocols."""
    monkeypatch.setattr(loading, "SHIPPED", dict.fromkeys(["bookkeeper-4.13", "ledger-chaining"], ""))


@pytest.mark.usefixtures("files", "shelf")
@pytest.mark.parametrize(("code", "arguments", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_bad_input_is_told_in_one_line(here: Run, code: int, arguments: list[str], said: list[str]) -> None:
    ran = here(*arguments)
    assert ran.code == code, ran
    assert ran.out == ""
    for part in said:
        assert part in ran.complaint
    assert "Traceback" not in ran.err


def test_nothing_is_left_behind_by_looking_whether_a_file_can_be_written(here: Run, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("old")
    before = sorted(os.listdir(tmp_path))
    ran = here("check", "counter.py", "--json", "old.json", "--html", "new.html", "--dot", "no/new.dot")
    assert ran.code == 151
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "old.json").read_text() == "old"


def test_a_false_assumption_is_told_on_standard_output(here: Run, tmp_path: Path) -> None:
    (tmp_path / "assumes.py").write_text(COUNTER + "    @assumption\n    def odd(self): return self.limit % 2 == 1\n")
    ran = here("check", "assumes.py", "-D", "limit=4")
    assert (ran.code, ran.err) == (10, "")
    assert "ASSUMPTION VIOLATED  odd" in ran.out


def test_an_assumption_that_raises_is_the_protocols_fault(here: Run, tmp_path: Path) -> None:
    (tmp_path / "assumes.py").write_text(COUNTER + "    @assumption\n    def odd(self): return 1 // 0\n")
    ran = here("check", "assumes.py")
    assert ran.code == 75
    assert "assumption odd raised ZeroDivisionError" in ran.complaint


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_an_action_that_raises_is_named_with_its_line_and_the_way_there(here: Run, tmp_path: Path, engine: str) -> None:
    (tmp_path / "divider.py").write_text(RAISING)
    ran = here("check", "divider.py", "--engine", engine)
    assert ran.code == 75
    assert "action share raised ZeroDivisionError" in ran.complaint
    assert f"divider.py:{RAISING_LINE}" in ran.complaint
    steps = [line.split()[-1] for line in ran.out.splitlines() if line.split()[:1] in (["1"], ["2"], ["3"])]
    assert steps == ["take", "take", "take"], ran.out


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("self.total = 1", "total is not a state variable of p: declare it with state(...)"),
        ("self.n = [1]", "n is assigned a list, which is mutable; use a tuple"),
        ("self.n = {1: 2}", "n is assigned a dict, which is mutable; use a fencepost.Map"),
        ("self.n = float('nan')", "n is assigned NaN, which is not a value"),
        ("self.size = 4", "size is a constant: actions can only assign state variables"),
        ("assert self.n, 'it is\\n  empty'", "AssertionError: it is"),
        ("one_of(iter(int, 1))", "a choice has more than 32,768 options: is it infinite?"),
        ("self.tick()", "recursed too deeply"),
        ("yield", "an action is an ordinary method, without yield"),
        ("raise SystemExit(3)", "SystemExit"),
    ],
)
def test_what_an_action_may_not_do_is_told_in_one_line(here: Run, tmp_path: Path, body: str, said: str) -> None:
    text = (
        "from fencepost import *\nclass P(Protocol):\n    size = constant(1)\n    n = state(0)\n    @action\n    def"
        " tick(self):\n"
    )
    (tmp_path / "p.py").write_text(f"{text}        {body}\n")
    ran = here("check", "p.py")
    assert ran.code == 75, ran
    assert "action tick" in ran.complaint
    assert said in ran.complaint


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("self.count > 0", "invariant seen returned nothing: a property returns true or false"),
        ("self.count = 3; return True", "a property cannot assign to the state"),
        ("require(False); return True", "asked require(...), which only an action can"),
        ("return one_of((True, False))", "a property cannot choose"),
    ],
)
def test_what_an_invariant_may_not_do_is_told_in_one_line(here: Run, tmp_path: Path, body: str, said: str) -> None:
    (tmp_path / "p.py").write_text(f"{COUNTER}    @invariant\n    def seen(self):\n        {body}\n")
    ran = here("check", "p.py")
    assert ran.code == 75, ran
    assert said in ran.complaint


def test_debug_shows_where_the_author_went_wrong(here: Run, tmp_path: Path) -> None:
    (tmp_path / "divider.py").write_text(RAISING)
    ran = here("check", "divider.py", "--debug")
    assert ran.code == 75
    assert "Traceback" in ran.err
    assert "self.shares = 12 // self.n" in ran.err
    assert ran.err.splitlines()[-1].startswith("fencepost: action share raised")


@pytest.mark.parametrize(
    "given",
    [
        ("check", "{}.py"),
        ("show", "{}.py:Pipe"),
        ("explore", "--trace", "{}"),
        ("explore", "{}.py"),
        ("validate", "{}", "--protocol", "bookkeeper"),
        ("validate", ".", "--conformance", "{}.py"),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file(given: tuple[str, ...], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe that nobody writes to has no end either."""
    for name in ("it", "it.py"):
        if kind == "pipe":
            os.mkfifo(tmp_path / name)
        else:
            (tmp_path / name).symlink_to("/dev/zero")
    code = main([word.format(tmp_path / "it") for word in given])
    said = capsys.readouterr()
    assert code in (errors.WRONG_OPTIONS, errors.NOT_A_PROTOCOL, errors.SYSTEM_FAILED) and said.out == ""
    assert said.err.count("\n") == 1 and "it is a device or a pipe, and no file" in said.err
