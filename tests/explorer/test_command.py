"""``fencepost explore`` as a command: where it starts, what it prints, and how it ends."""

from __future__ import annotations

import builtins
import http.client
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli.commandline import COMMAND, COUNTER, environment
from patience import PATIENCE

import fencepost
from fencepost.behaviours import Trace, to_itf
from fencepost.cli.main import main
from fencepost.language.loading import load
from fencepost.report.explore_command import explore_command
from fencepost.report.html import html
from fencepost.report.json import to_json


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "counter.py").write_text(COUNTER)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "counter.py"


def violated(counter: Path, **constants: Any) -> fencepost.Result:
    return fencepost.check(load(str(counter))(**constants), engine="reference", invariants=["never_five"])


def trace_of(result: fencepost.Result) -> Trace:
    assert result.violation is not None
    assert result.violation.trace is not None
    return result.violation.trace


@pytest.fixture
def explorers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The explorers that would be served. Nothing is served."""
    found: list[Any] = []

    class Server:
        def run(self, sockets: list[Any]) -> None:
            sockets[0].close()

    def server(explorer: Any, bound: Any) -> Server:
        found.append(explorer)
        return Server()

    monkeypatch.setattr("fencepost.explorer.app.server", server)
    monkeypatch.setattr("webbrowser.open", lambda address: found.append(address))
    return found


@pytest.mark.parametrize("form", ["json", "itf"])
def test_a_counterexample_brings_its_protocol_and_its_constants(
    counter: Path, explorers: list[Any], form: str, tmp_path: Path
) -> None:
    result = violated(counter, limit=9)
    file = tmp_path / "found.json"
    file.write_text(to_json(result) if form == "json" else to_itf(trace_of(result)))
    assert main(["explore", "counter.py", "--trace", str(file), "--no-open"]) == 0
    (explorer,) = explorers
    assert explorer.session.protocol.constants["limit"] == 9
    tip, at = explorer.start
    assert (tip.depth, at.depth) == (5, 0)


def test_a_shipped_protocol_is_found_by_its_trace(explorers: list[Any], tmp_path: Path) -> None:
    small = {"bookies": 2, "write_quorum": 2, "ack_quorum": 2, "recovery_reads_fence": False}
    result = fencepost.check(load("bookkeeper-4.13")(**small), workers=1)
    file = tmp_path / "found.json"
    file.write_text(to_json(result))
    assert main(["explore", "--trace", str(file), "--no-open"]) == 0
    (explorer,) = explorers
    assert explorer.session.protocol.constants == result.constants
    assert explorer.start[0].depth == len(trace_of(result).steps)


@pytest.mark.campaign
def test_the_command_in_a_report_leads_there(counter: Path, explorers: list[Any]) -> None:
    trace = trace_of(violated(counter, limit=9))
    command = explore_command(trace)
    assert command is not None
    assert command in html(violated(counter, limit=9)).replace("&#x27;", "'")
    program, *arguments = shlex.split(command)
    assert program == "fencepost"
    assert main([*arguments, "--no-open"]) == 0
    tip, at = explorers[0].start
    assert (tip.depth, at.depth) == (5, 0)
    assert tip.state.variables() == trace.states[-1].variables()
    shipped = fencepost.check(load("bookkeeper-4.13")(recovery_reads_fence=False), workers=1)
    said = explore_command(trace_of(shipped))
    assert said is not None
    assert said.startswith("fencepost explore bookkeeper-4.13 --path 0/")


def test_the_browser_is_opened_unless_it_is_not_to_be(
    counter: Path, explorers: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explore", "counter.py", "-D", "limit=2"]) == 0
    assert explorers[0] in capsys.readouterr().out
    assert explorers[0].startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 151, "give a protocol"),
        (["nowhere"], 150, "no protocol named nowhere"),
        (["counter.py", "--port", "99999"], 151, "99999 is not a port"),
        (["counter.py", "-D", "limit=x"], 151, "limit"),
        (["counter.py", "--path", "0/9"], 151, "--path: counter has no action number 9"),
        (["counter.py", "--path", "0:aaaaaa"], 151, "--path: the steps of the link lead to another state"),
        (["counter.py", "--path", "x"], 151, "--path: 'x' is no path"),
        (["counter.py", "--trace", "nothing.json"], 151, "--trace nothing.json cannot be read: No such file"),
        (["counter.py", "--trace", "counter.py"], 151, "--trace counter.py: it is not JSON"),
        (["counter.py", "--trace", "found.json", "-D", "limit=2"], 151, "leave out -D"),
        (["counter.py", "--trace", "found.json", "--path", "0"], 151, "leave one out"),
        (["--trace", "found.json"], 151, "its protocol, counter, is not shipped"),
        (
            ["ledger-chaining", "--trace", "found.json"],
            151,
            "--trace found.json: ledger-chaining has no constant named",
        ),
        (["counter.py", "--no-opn"], 151, "did you mean --no-open?"),
    ],
)
def test_mistakes_are_one_clear_line(
    counter: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    Path("found.json").write_text(to_json(violated(counter, limit=9)))
    assert main(["explore", *arguments]) == code
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_what_is_not_installed_is_named(
    counter: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "uvicorn" or name == "fencepost.explorer":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["explore", "counter.py"]) == 151
    assert (
        "explore needs uvicorn, which is not installed: in a checkout of Fencepost, pip install '.[explore]'"
        in capsys.readouterr().err
    )


def test_as_a_process(counter: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "explore", "counter.py", "--no-open"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=counter.parent, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    said = process.stdout.readline()
    found = re.match(r"counter: http://(127\.0\.0\.1:\d+)(/\?token=[\w-]{43}) ", said)
    assert found is not None, process.communicate()
    connection = http.client.HTTPConnection(found[1], timeout=PATIENCE)
    connection.request("GET", found[2])
    assert connection.getresponse().status == 200
    connection.close()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "", "")
