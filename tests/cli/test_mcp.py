"""The tools of ``fencepost mcp``, called by the official client, and the limits of the work behind them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from cli.commandline import COUNTER, environment
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from patience import PATIENCE
from traces.traces_of_runs import BAD, write_counters

from fencepost.cli.mcp.bounded import Bounds, occupies, work
from fencepost.cli.mcp.work import MOST_CHARACTERS, MOST_LINES, answer, shortened

TESTS = Path(__file__).parents[1]
EXAMPLES = TESTS.parent / "docs" / "examples"
WHOLE = Bounds(PATIENCE, 4 << 30)

CHECK: dict[str, Any] = {"tool": "check", "config": None, "constants": {}, "invariants": [], "deadlock": None}

Call = Callable[..., Awaitable[tuple[bool, str]]]


@asynccontextmanager
async def serving(root: Path) -> AsyncIterator[Call]:
    """A server in ``root``: a call gives whether it is an error, and the text."""
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "fencepost", "mcp"], cwd=root, env=environment()
    )
    async with Client(stdio_client(started)) as client:

        async def call(tool: str, **arguments: Any) -> tuple[bool, str]:
            found = await client.call_tool(tool, arguments)
            (content,) = found.content
            assert content.type == "text"
            return bool(found.is_error), content.text

        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert tools == ["check", "witness", "explain", "validate", "drive"]
        yield call


async def test_a_protocol_is_checked_explained_and_driven(tmp_path: Path) -> None:
    for name in ("locks.py", "lock_server.py", "drive_locks.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "counter.py").write_text("print('hello')\n" + COUNTER)
    shutil.copy(TESTS / "traces" / "counting.py", tmp_path)
    write_counters(tmp_path / "t.parquet", {"r": BAD})
    async with serving(tmp_path) as call:
        wrong, text = await call("check", protocol="counter.py", constants={"limit": 7, "careful": False})
        assert not wrong and text.startswith("VIOLATED  never_five\nFive is right out.\n")
        assert "\n6 distinct states, depth 6, " in text and "Statistics" not in text
        path = text.splitlines()[-1].removeprefix("path: ")

        given = {"protocol": "counter.py", "constants": {"limit": 7, "careful": False}, "path": path}
        _, text = await call("explain", **given)
        assert text.startswith("STATE  after step 5 of 5, tick\n    count = 5\n\nViolated here:\n  never_five")
        _, text = await call("explain", **given, step=0)
        assert text == "STATE  the initial state\n    count = 0\n\nCan happen next:\n  tick"
        assert await call("explain", **given, step=6) == (
            True,
            "Error executing tool explain: step is 6: the path has 5 steps",
        )
        _, text = await call("explain", protocol="counter.py")
        assert "Counts up to a limit." in text and "never_negative" in text

        _, text = await call("check", protocol="counter.py", config="broken")
        assert "The configuration broken expects: never_five." in text
        _, text = await call("check", protocol="counter.py", deadlock=True, invariants=["never_negative"])
        assert text.startswith("DEADLOCK")
        _, text = await call("witness", protocol="counter.py", where="count == 2")
        assert text.startswith("REACHED  count == 2") and "The shortest behaviour: 3 states" in text
        _, text = await call("witness", protocol="counter.py", where="count == 4")
        assert text.startswith("NEVER REACHED\ncount == 4 is true in no reachable state.\n\n4 distinct states")

        _, text = await call("drive", protocol="locks.py", system="drive_locks.py:Calls")
        assert text.startswith("DIFFERS  Calls does not do what the protocol does") and "system    'c2'" in text
        _, text = await call("validate", traces=["t.parquet"], conformance="counting.py")
        assert text.startswith("REJECTED  1 trace") and "takes 3 of 4 steps" in text

        wrong, text = await call("check", protocol="counter.py", config="nothing")
        assert wrong and "it has small, broken, wrong, surprising" in text
        assert (await call("check", protocol="none.py"))[0]


def test_why_an_action_cannot_be_taken(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "tool": "explain",
        "protocol": str(EXAMPLES / "locks.py"),
        "config": None,
        "constants": {},
        "path": "0",
    }
    text = anyio.run(work, asked | {"step": None}, tmp_path, WHOLE)["text"]
    can, cannot = text.split("\n\nCannot:\n")
    assert "acquires(c=c1)" in can and "acquires" not in cannot
    refusing = "require(c == self.holder)"
    lines = (EXAMPLES / "locks.py").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if refusing in text)
    assert f"  releases(c=c1)  locks.py:{line}: {refusing}\n" in cannot


async def test_only_files_below_the_root_are_named(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    touched = tmp_path / "touched"
    (tmp_path / "other.py").write_text(f"open({str(touched)!r}, 'w')\n{COUNTER}")
    (root / "link.py").symlink_to(tmp_path / "other.py")
    (root / "Lock.tla").write_text("")
    (root / "log").symlink_to(tmp_path)  # a protocol has this name
    (root / "fine.py:..").mkdir()
    (root / "fine.py").write_text(COUNTER)
    async with serving(root) as call:
        for name in ("../other.py", "../other.py:Counter", str(tmp_path / "other.py"), "link.py", "a/../../other.py"):
            for tool, arguments in (
                ("check", {"protocol": name}),
                ("witness", {"protocol": name, "where": "True"}),
                ("explain", {"protocol": name}),
                ("drive", {"protocol": "fine.py", "system": name}),
                ("validate", {"traces": ["."], "conformance": name}),
                ("validate", {"traces": [name], "conformance": "fine.py"}),
                ("check", {"protocol": "Lock.tla", "config": name}),
            ):
                wrong, text = await call(tool, **arguments)
                assert wrong and "is outside of" in text, (tool, name, text)
        for tool, arguments in (
            ("validate", {"traces": ["log"], "conformance": "fine.py"}),
            ("drive", {"protocol": "fine.py", "system": "log"}),
            ("check", {"protocol": "fine.py:../../../other.tla"}),
        ):
            wrong, text = await call(tool, **arguments)
            assert wrong and "is outside of" in text, (tool, text)
        assert (await call("check", protocol="fine\0.py"))[0]
        wrong, text = await call("check", protocol=str(root / "fine.py"), constants={"limit": 2})
        assert not wrong and text.startswith("HOLDS")
        assert not (await call("explain", protocol="ledger-chaining"))[0]
    assert not touched.exists()


@pytest.mark.parametrize("end", [b"\n", b""], ids=["line", "end"])
def test_a_message_that_is_too_long_is_refused_and_the_next_one_answered(tmp_path: Path, end: bytes) -> None:
    command, pipe = [sys.executable, "-m", "fencepost", "mcp"], subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdin=pipe, stdout=pipe) as server:
        assert server.stdin is not None and server.stdout is not None
        for _ in range(80):
            server.stdin.write(b"x" * (1 << 20))
        server.stdin.write(end)
        server.stdin.flush()
        if not end:
            server.stdin.close()
        refused = json.loads(server.stdout.readline())
        assert refused["id"] is None
        assert refused["error"] == {"code": -32600, "message": "a message has at most 4 MiB"}
        if end:
            server.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
            server.stdin.flush()
            assert json.loads(server.stdout.readline())["id"] == 1


# -- limits ------------------------------------------------------------------------------------------------------------

HOG = """
import subprocess, sys, time
from fencepost import *

class Hog(Protocol):
    n: int = state(0)

    @action
    def takes(self) -> None:
        {does}
        self.n = 1
"""


ASKED: dict[str, Any] = {
    "tool": "check",
    "protocol": "hog.py",
    "config": None,
    "constants": {},
    "invariants": [],
    "deadlock": None,
}


def checked(tmp_path: Path, does: str, bounds: Bounds) -> str:
    (tmp_path / "hog.py").write_text(HOG.format(does=does))
    return anyio.run(work, ASKED, tmp_path, bounds)["text"]


def test_what_takes_too_long_says_how_far_it_came(tmp_path: Path) -> None:
    (tmp_path / "hog.py").write_text(HOG.format(does="while True: pass"))
    asked: dict[str, Any] = {
        "tool": "check",
        "protocol": str(tmp_path / "hog.py"),
        "config": None,
        "constants": {},
        "invariants": [],
    }
    text = answer(asked | {"deadlock": None, "until": time.monotonic() + 2, "memory": 64 << 30})["text"]
    assert re.match(r"NOT COMPLETE\nThe time limit of 1.\d seconds was reached.\nAction takes had not returned", text)
    assert "1 distinct state, depth 1" in text


def test_a_search_ends_by_a_limit_of_memory_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "hog.py").write_text(HOG.format(does="pass"))
    asked = CHECK | {"protocol": str(tmp_path / "hog.py"), "until": time.monotonic() + PATIENCE}
    text = answer(asked | {"memory": 20 << 20})["text"]  # this process occupies more
    assert text.startswith("NOT COMPLETE\nThe memory limit of 17 MiB was reached")


def test_what_cannot_be_interrupted_is_ended(tmp_path: Path) -> None:
    before = children()
    text = checked(tmp_path, "sum(range(10**13))", Bounds(4, 4 << 30))
    assert text.startswith("NOT COMPLETE\nThe time limit of 4 s was reached, and the work was ended.")
    assert children() <= before


async def test_a_call_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "hog.py").write_text(HOG.format(does="sum(range(10**13))"))
    before = children()
    with anyio.move_on_after(1) as given:
        await work(CHECK | {"protocol": "hog.py"}, tmp_path, WHOLE)
    assert given.cancelled_caught and children() <= before


def children() -> set[str]:
    """The processes that this one has started and that have not been waited for, where the system tells."""
    tasks = Path(f"/proc/{os.getpid()}/task")
    return {child for task in tasks.glob("*/children") for child in task.read_text().split()}


@pytest.mark.skipif(not occupies(os.getpid(), 0), reason="the system does not tell what a process occupies")
@pytest.mark.parametrize(
    ("does", "told"),
    [
        # Which of the two notices first depends on the moment: the search, or who ends it.
        ("held = []; [held.append(b'x' * (1 << 20)) for _ in range(2_000)]; time.sleep(600)", "255|300"),
        # None of these takes too much alone, so the search sees nothing.
        ("[each.wait() for each in [subprocess.Popen([sys.executable, '-c', PROGRAM]) for _ in range(2)]]", "300"),
    ],
)
def test_what_takes_too_much_memory_is_ended(tmp_path: Path, does: str, told: str) -> None:
    program = "import time; held = [b'x' * (200 << 20)]; time.sleep(600)"
    text = checked(tmp_path, does.replace("PROGRAM", repr(program)), Bounds(PATIENCE, 300 << 20))
    assert re.match(rf"NOT COMPLETE\nThe memory limit of ({told}) MiB was reached", text)


def test_what_engines_reserve_is_not_what_they_occupy(tmp_path: Path) -> None:
    assert anyio.run(work, CHECK | {"protocol": "ledger-chaining"}, tmp_path, WHOLE)["text"].startswith("HOLDS")


SERVER = """
import json, os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "fencepost.cli.mcp.work"], stdin=subprocess.PIPE)
asked = json.loads(sys.argv[1]) | {"until": time.monotonic() + 600, "parent": os.getpid()}
child.stdin.write(json.dumps(asked).encode() + b"\\n")
child.stdin.flush()
child.wait()
"""


def test_work_ends_with_the_server(tmp_path: Path) -> None:
    (tmp_path / "hog.py").write_text(HOG.format(does="print('busy', file=sys.stderr, flush=True); sum(range(10**13))"))
    command = [sys.executable, "-c", SERVER, json.dumps(ASKED | {"memory": 4 << 30})]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        assert b"busy" in server.stderr.readline()
        server.kill()
        assert server.stderr.read() == b""  # the end, as nobody has it open any more


@given(st.lists(st.text("ab", max_size=300), max_size=200))
def test_an_answer_is_short_and_counts_what_is_left_out(lines: list[str]) -> None:
    text = "\n".join(lines)
    short = shortened(text).split("\n")
    assert len(short) <= MOST_LINES + 1 and len("\n".join(short)) <= MOST_CHARACTERS + 50
    left = [line for line in short if line.startswith("... ")]
    if not left:
        assert [line.rstrip("…") for line in short] == [line[:200] for line in text.split("\n")]
        return
    (said,) = left
    assert int(said.split()[1]) == len(text.split("\n")) - len(short) + 1
    assert short[0].rstrip("…") == text.split("\n")[0][:200]
