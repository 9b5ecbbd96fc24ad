"""Output files, JSON on standard output and expressions, and what is still printed when an output fails."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from cli.commandline import COUNTER, RAISING, Ran, environment

from fencepost import SystemFailure, check
from fencepost.cli import output

Run = Callable[..., Ran]

LEDGER = """
from fencepost import *

class Add(Message):
    entry: int

class Ledger(Protocol):
    writer: tuple[ModelValue, ...] = model_values("w", 1)
    bookies: tuple[ModelValue, ...] = model_values("b", 2)
    stored: PerKey[ModelValue, frozenset] = per_key(bookies, frozenset())
    network: Network = network({Add: (writer, bookies)}, once=True, remember=True)

    @action(w=writer)
    def send(self, w):
        self.network.send_all([(Add(1), b) for b in self.bookies], w)

    @action(b=bookies)
    def store(self, b):
        add = self.network.receive(Add, to=b)
        self.stored[b] |= {add.message.entry}

    @invariant
    def not_everywhere(self):
        return not all(self.stored[b] for b in self.bookies)
"""


@pytest.fixture
def ledger(here: Run, tmp_path: Path) -> str:
    (tmp_path / "ledger.py").write_text(LEDGER)
    return "ledger.py"


def test_json_alone_on_standard_output(here: Run) -> None:
    ran = here("check", "counter.py", "-D", "limit=9", "--json", "-")
    assert (ran.code, ran.err) == (12, "")
    document = json.loads(ran.out)
    assert document["verdict"] == "never_five"
    assert document["exit_code"] == 12
    assert document["constants"] == {"limit": 9, "careful": True}
    assert [state["state"]["count"] for state in document["violation"]["trace"]] == [0, 1, 2, 3, 4, 5]
    assert "configuration" not in document
    assert "evaluated" not in document


def test_an_expression_can_not_change_the_verdict(here: Run) -> None:
    assert here("check", "counter.py", "-D", "limit=9").code == 12
    ran = here(
        "check", "counter.py", "-D", "limit=9", "--eval", "self.constants.update(limit=1)", "--eval", "self.limit"
    )
    assert ran.code == 12
    assert "a mapping has no update" in ran.out


def test_json_has_what_only_the_command_line_knows(here: Run, tmp_path: Path) -> None:
    ran = here(
        "check",
        "counter.py",
        "--config",
        "broken",
        "--eval",
        "count * 2",
        "--eval",
        "1 // count",
        "--profile",
        "--json",
        "r.json",
    )
    assert ran.code == 12
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["configuration"] == {"name": "broken", "expect": "never_five", "as_expected": True}
    assert [v["value"] for v in document["evaluated"]["count * 2"]] == [0, 2, 4, 6, 8, 10]
    assert "ZeroDivisionError" in document["evaluated"]["1 // count"][0]["error"]
    assert document["evaluated"]["1 // count"][1] == {"value": 1, "error": None}
    assert "profile" in document


def test_json_stays_alone_whatever_else_is_asked_for(here: Run, tmp_path: Path) -> None:
    asked = "--json - --itf r.itf.json --eval count --config small --profile"
    ran = here("check", "counter.py", *asked.split())
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["configuration"]["as_expected"] is True
    assert not (tmp_path / "r.itf.json").exists()


def test_json_is_ascii(here: Run, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "from fencepost import *\nclass P(Protocol):\n    n = state('ü')\n    @action\n    def go(self):\n       "
        " self.n = 'é'\n    @invariant\n    def never(self):\n        return self.n == 'ü'\n",
        encoding="utf-8",
    )
    out = here("check", "p.py", "--json", "-").out
    assert out.isascii()
    assert json.loads(out)["violation"]["trace"][1]["state"]["n"] == "é"


def test_every_file_is_written(here: Run, ledger: str, tmp_path: Path) -> None:
    (tmp_path / "r.html").write_text("something older, and longer than nothing")
    asked = "--json r.json --html r.html --sequence r.txt --itf r.itf.json --dot r.dot"
    ran = here("check", ledger, *asked.split())
    assert (ran.code, ran.err) == (12, "")
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] == "not_everywhere"
    page = (tmp_path / "r.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "not_everywhere" in page
    sequence = (tmp_path / "r.txt").read_text()
    assert "w1->b1" in sequence
    assert "not_everywhere is violated" in sequence
    itf = json.loads((tmp_path / "r.itf.json").read_text())
    assert len(itf["states"]) == 4
    dot = (tmp_path / "r.dot").read_text()
    assert dot.startswith('digraph "ledger"')
    assert "color=red" in dot


def test_without_a_counterexample_its_files_are_not_written(here: Run, tmp_path: Path) -> None:
    ran = here("check", "counter.py", "--sequence", "r.txt", "--itf", "r.json", "--eval", "count", "--dot", "r.dot")
    assert (ran.code, ran.err) == (0, "")
    assert "There is no counterexample, so --sequence r.txt was not written." in ran.out
    assert "There is no counterexample, so --itf r.json was not written." in ran.out
    assert "There is no counterexample along which to evaluate count." in ran.out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["counter.py", "r.dot"]


def test_an_expression_is_shown_at_every_step(here: Run, ledger: str) -> None:
    ran = here("check", ledger, "--eval", "len(stored[b1])", "--eval", "{b for b in bookies if stored[b]}")
    table = ran.out[ran.out.index("\nlen(stored[b1])\n") :].strip().split("\n")
    values = [line.split()[-1] for line in table[1:5]]
    assert values in (["0", "0", "1", "1"], ["0", "0", "0", "1"])
    assert table[1].split()[:3] == ["0", "initial", "state"]
    assert table[2].split()[:2] == ["1", "send(w=w1)"]
    assert table[6] == "{b for b in bookies if stored[b]}"
    assert table[-1].endswith("{b1, b2}")


def test_an_engine_without_a_profile_says_so(here: Run) -> None:
    ran = here("check", "counter.py", "--profile", "--engine", "reference")
    assert "The reference engine keeps no profile" in ran.out


def test_where_a_protocol_raises_is_written_too(here: Run, tmp_path: Path) -> None:
    (tmp_path / "divider.py").write_text(RAISING)
    ran = here("check", "divider.py", "--eval", "n", "--itf", "r.json", "--json", "all.json")
    assert ran.code == 75
    assert len(json.loads((tmp_path / "r.json").read_text())["states"]) == 4
    assert json.loads((tmp_path / "all.json").read_text())["error"]["where"] == "share"
    values = [line.split()[-1] for line in ran.out[ran.out.index("\nn\n") :].strip().split("\n")[1:]]
    assert values == ["3", "2", "1", "0"]


def test_a_state_space_too_large_for_a_picture_is_refused_before_the_search(here: Run, tmp_path: Path) -> None:
    ran = here(
        "check",
        "counter.py",
        "-D",
        "limit=1200",
        "--invariant",
        "never_negative",
        "--dot",
        "r.dot",
        "--engine",
        "reference",
    )
    assert ran.code == 151
    assert (
        "--dot r.dot: counter has more than 1,000 states with these constants, too many for a graph: choose smaller"
        in ran.complaint
    )
    assert ran.out == ""
    assert not (tmp_path / "r.dot").exists()


def test_what_raises_is_drawn_nowhere_and_told(here: Run, tmp_path: Path) -> None:
    (tmp_path / "divider.py").write_text(RAISING)
    ran = here("check", "divider.py", "--dot", "r.dot")
    assert ran.code == 75
    assert ran.out.startswith("RAISED  share")
    assert "ZeroDivisionError" in ran.err.splitlines()[0]
    assert "--dot r.dot was not written: action share raised" in ran.err.splitlines()[1]
    assert not (tmp_path / "r.dot").exists()


# -- when something gives way -----------------------------------------------------------------------------------------


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make the checker fail with a given error."""

    def with_error(error: BaseException) -> None:
        def check(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(sys.modules["fencepost.api.check"], "check", check)

    return with_error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError(), 153, "out of memory: set a limit with --max-memory"),
        (OSError(errno.ENOSPC, "No space left on device", "/somewhere"), 153, "No space left on device: /somewhere"),
        (SystemFailure("a checkpoint of another protocol"), 153, "a checkpoint of another protocol"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            ZeroDivisionError("division by zero"),
            153,
            "a fault in Fencepost: ZeroDivisionError: division by zero (--debug shows where)",
        ),
        (ValueError("two\nlines"), 153, "ValueError: two lines"),
        (ValueError("\x1b[31mred"), 153, "\\x1b[31mred"),
    ],
    ids=["memory", "disk", "checkpoint", "interrupt", "our fault", "newline", "escape"],
)
def test_failures_are_one_line(
    here: Run, failing: Callable[[BaseException], None], error: BaseException, code: int, said: str
) -> None:
    failing(error)
    ran = here("check", "counter.py")
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.complaint


def test_debug_shows_where_fencepost_failed(here: Run, failing: Callable[[BaseException], None]) -> None:
    failing(ZeroDivisionError("division by zero"))
    ran = here("check", "counter.py", "--debug")
    assert ran.code == 153
    assert "Traceback" in ran.err
    assert "in check" in ran.err


def test_a_file_that_fails_half_way_is_not_left_behind(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = open

    def full(path: Any, mode: str = "r", **given: Any) -> Any:
        file: Any = real(path, mode, **given)
        if mode == "w" and str(path).endswith("r.json"):
            file.write("half")

            def write(_: str) -> int:
                raise OSError(errno.ENOSPC, "No space left on device")

            file.write = write
        return file

    monkeypatch.setattr("builtins.open", full)
    ran = here("check", "counter.py", "-D", "limit=9", "--json", "r.json", "--itf", "r.itf")
    assert ran.code == 153
    assert "--json r.json could not be written: No space left on device" in ran.complaint
    assert ran.out.startswith("VIOLATED")
    assert not (tmp_path / "r.json").exists()
    assert (tmp_path / "r.itf").exists()


def test_half_of_a_file_is_not_left(tmp_path: Path) -> None:
    def rows() -> Iterator[str]:
        yield "half"
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "rows.csv"
    with pytest.raises(SystemFailure, match=r"--csv .*rows\.csv could not be written: No space left on device"):
        output.write_lines("csv", str(path), rows())
    assert not path.exists()


def test_a_report_that_fails_loses_nothing_else(here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def html(_: object) -> str:
        raise ZeroDivisionError("in the page")

    monkeypatch.setattr("fencepost.report.html.html", html)
    ran = here("check", "counter.py", "-D", "limit=9", "--html", "r.html", "--itf", "r.itf")
    assert ran.code == 153
    assert "a fault in Fencepost: ZeroDivisionError: in the page" in ran.complaint
    assert ran.out.startswith("VIOLATED")
    assert (tmp_path / "r.itf").exists()


def test_a_missing_library_names_it(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fencepost.checker.engines.embedded", None)
    ran = here("check", "counter.py", "--engine", "embedded")
    assert ran.code == 153
    assert "the embedded engine cannot start" in ran.complaint
    assert "--engine reference" in ran.complaint


# -- what the author's Python prints ----------------------------------------------------------------------------------

LOUD = """
import sys
from fencepost import *
print("imported")

def people(protocol):
    print("asked for people")
    return (1, 2)

class Loud(Protocol):
    n: int = state(0)

    @action(p=people)
    def step(self, p):
        require(self.n < 3)
        print("stepping")
        sys.stdout.write("written")
        self.n += 1

    @invariant
    def small(self):
        print("judged")
        return self.n < 3
"""


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_what_a_protocol_prints_is_none_of_the_results(here: Run, tmp_path: Path, engine: str) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    files = "--dot /dev/stdout --itf r.json --eval n".split() if engine == "reference" else []
    ran = here("check", "loud.py", "--engine", engine, "--json", "-", *files)
    assert ran.code == 12
    assert json.loads(ran.out)["verdict"] == "small"
    for said in ("imported", "asked for people", "stepping", "written", "judged"):
        assert said in ran.err
    for command in (["check", "loud.py"], ["show", "loud.py"], ["check", "loud.py", "--help"]):
        ran = here(*command)
        assert ran.out
        assert not any(said in ran.out for said in ("imported", "asked for", "stepping", "written", "judged"))


def test_names_and_docstrings_do_nothing_to_a_terminal(here: Run, tmp_path: Path) -> None:
    odd = (
        'from fencepost import *\nclass Odd(Protocol):\n    """A \x1b[31mred\x1b[0m \u202e one."""\n    name ='
        ' "odd\x1b[1m"\n    n = state("\x1b[2J")\n'
    )
    odd += '    configurations = {"a\x1b[3m": configuration(doc="b\x1b[4m")}\n'
    odd += '    @action\n    def go(self):\n        """Go \x1b]0;title\x07."""\n        self.n = "\x1b[5m"\n'
    odd += '    @invariant\n    def never(self):\n        raise ValueError("\x1b[6m\\nand more")\n'
    (tmp_path / "odd.py").write_text(odd)
    for command in (
        ["show", "odd.py"],
        ["check", "odd.py"],
        ["check", "odd.py", "--config", "x\x1b[7m"],
        ["check", "odd\x1b[8m.py"],
    ):
        ran = here(*command)
        assert ran.out + ran.err
        assert all(line.isprintable() for line in (ran.out + ran.err).split("\n"))


# -- what is not installed --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A state space in files."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("spaces")
    (folder / "counter.py").write_text(COUNTER)
    check(str(folder / "counter.py"), states=folder / "space")
    return str(folder / "space")


@pytest.mark.parametrize(
    ("hidden", "arguments", "extra"),
    [
        ("pyarrow", ["witness", "space", "--where", "true"], "query"),
        ("pyspark", ["check", "counter.py", "--engine", "spark"], "spark"),
        ("starlette", ["explore", "counter.py"], "explore"),
        *campaign_if(
            bool,
            [
                ("pyarrow", ["query", "space", "select 1", "--engine", "spark"], "spark"),
                ("pyarrow", ["diff", "space", "space", "--engine", "spark"], "spark"),
                ("pyarrow", ["check", "counter.py", "--states", "new"], "query"),
                ("pyarrow", ["check", "counter.py", "--engine", "spark"], "spark"),
                ("uvicorn", ["explore", "counter.py"], "explore"),
            ],
        ),
    ],
)
def test_the_extra_that_is_missing_is_named(
    process: Run, tmp_path: Path, space: str, hidden: str, arguments: list[str], extra: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{hidden!r}] = None\n")
    arguments = [space if argument == "space" else argument for argument in arguments]
    ran = process(*arguments, env=environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"))
    assert f"needs {hidden}" in ran.complaint
    assert f"in a checkout of Fencepost, pip install '.[{extra}]'" in ran.complaint
    assert (ran.code, ran.out) == (151, "")
