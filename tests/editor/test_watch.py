"""``fencepost watch``: what it says after each save. Events and saves are injected, but for one test of the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.commandline import COMMAND, environment
from editor.checks import COUNTER, line_of

from fencepost.cli.main import main
from fencepost.editor.process import Event
from fencepost.editor.watch import Watch, Words
from fencepost.editor.worker import Request

FILE = os.path.abspath("lock.py")


def result(title: str = "small", states: int = 5, violated: str = "", told: str = "", expected: bool = False) -> Event:
    """The event of a check that is over."""
    return {
        "event": "checked",
        "title": title,
        "verdict": violated or "holds",
        "violated": [violated] if violated else [],
        "as_expected": expected or not violated,
        "distinct_states": states,
        "steps": None,
        "told": told,
        "diagnostics": [],
    }


LOADED: Event = {
    "event": "loaded",
    "cases": [{"title": "small", "expect": "holds"}, {"title": "three", "expect": "safe"}],
    "notices": [],
    "files": [FILE],
}
OVER: Event = {"event": "ended", "why": ""}
Round = list[Event]


class Rounds:
    """Checks that say what a test gives them. Each round but the last ends by a save of ``saves`` of that round, once
    its events are said.
    """

    def __init__(self, rounds: list[Round], saves: list[list[str]] | None = None) -> None:
        self.rounds = rounds
        self.saves = saves or [[FILE]] * (len(rounds) - 1)
        self.requests: list[Request] = []
        self.ended = 0
        self.told: list[Event] = []
        self.lines: list[str] = []
        self.stamps: dict[str, int] = {}
        self._left = 0
        self._words = Words(self.lines.append)

    def start(self, request: Request, heard: Callable[[Event], None]) -> Any:
        self.requests.append(request)
        self._left = len(self.rounds[len(self.requests) - 1])
        for event in self.rounds[len(self.requests) - 1]:
            heard(event)
        return self

    def end(self) -> None:
        self.ended += 1

    def tell(self, event: Event) -> None:
        self.told.append(event)
        self._words.tell(event)
        if event["event"] == "saved":
            return
        self._left -= 1
        if not self._left and len(self.requests) < len(self.rounds):
            for file in self.saves[len(self.requests) - 1]:
                self.stamps[file] = self.stamps.get(file, 0) + 1

    def stamp(self, file: str) -> tuple[int, ...]:
        return (self.stamps.get(file, 0),)

    def run(self) -> str:
        """What is said in all rounds."""
        Watch(Request("lock.py"), self.tell, self.start, self.stamp).run(len(self.rounds))
        return "\n".join(self.lines)


def said(*rounds: Round) -> list[str]:
    """What is said of the last of some rounds."""
    text = Rounds([[LOADED, *each, OVER] for each in rounds]).run()
    return text.split("lock.py was saved\n")[-1].splitlines()


def test_the_first_check_is_compared_with_nothing() -> None:
    assert said([result(), result("three", 1200)]) == [
        "  small  holds                       5 states",
        "  three  holds                       1,200 states",
    ]


def test_the_same_again_is_as_before() -> None:
    assert said([result()], [result()]) == ["  small  holds                       5 states   as before"]


def test_another_number_of_states_is_said() -> None:
    assert said([result()], [result(states=1)]) == ["  small  holds                       1 state   before: 5"]


def test_a_new_violation_comes_with_its_story_once() -> None:
    broken = result(states=3, violated="safe", told="VIOLATED  safe\n 0  initial state\n")
    story = ["", "    VIOLATED  safe", "     0  initial state"]
    assert said([result()], [broken]) == ["  small  violates safe               3 states   before: holds, 5", *story]
    assert said([broken], [broken]) == ["  small  violates safe               3 states   as before"]
    other = {**broken, "told": "VIOLATED  safe\n 0  another\n"}
    assert said([broken], [other])[:3] == [
        "  small  violates safe               3 states   by another behaviour",
        "",
        "    VIOLATED  safe",
    ]
    assert said([broken], [result(states=3, violated="live", told="x")])[0] == (
        "  small  violates live               3 states   before: violates safe"
    )
    assert said([broken], [result()]) == ["  small  holds                       5 states   before: violates safe, 3"]


def test_a_violation_is_as_before_although_a_file_did_not_load_between() -> None:
    broken = result(states=3, violated="safe", told="a story")
    failed: Event = {"event": "failed", "diagnostics": [{"file": FILE, "line": 4, "message": "no Python"}], "files": []}
    assert said([broken], [failed]) == ["  lock.py:4: no Python"]
    assert said([broken], [failed], [failed]) == ["  lock.py:4: no Python   as before"]
    assert said([failed], [broken], [failed]) == ["  lock.py:4: no Python"]
    assert said([broken], [failed], [broken]) == ["  small  violates safe               3 states   as before"]


def test_a_violation_that_is_expected_has_no_story() -> None:
    expected = result(violated="safe", told="a story", expected=True)
    assert said([expected]) == ["  small  violates safe, as expected  5 states"]


def test_sizes_of_the_last_check_order_the_next_one() -> None:
    rounds = Rounds([[LOADED, result(states=7), result("three", 3), OVER], [OVER]])
    rounds.run()
    assert [request.known for request in rounds.requests] == [{}, {"small": 7, "three": 3}]


def test_a_save_during_a_check_ends_it() -> None:
    rounds = Rounds([[LOADED, {"event": "checking", "title": "small"}], [LOADED, result(), OVER]])
    text = rounds.run()
    assert rounds.ended == 2 and len(rounds.requests) == 2
    assert text.splitlines() == ["", "lock.py was saved", "  small  holds                       5 states"]


def test_files_that_a_check_has_read_are_watched() -> None:
    beside, other = os.path.abspath("roles.py"), os.path.abspath("not_read.py")
    rounds = Rounds([[{**LOADED, "files": [FILE, beside]}, OVER], [LOADED, OVER]], [[beside, other]])
    assert "roles.py was saved" in rounds.run()
    assert rounds.told[2] == {"event": "saved", "files": [beside]}


def test_a_file_is_checked_only_once_it_is_no_longer_written() -> None:
    looks: list[int] = []

    class Writing(Rounds):
        def stamp(self, file: str) -> tuple[int, ...]:
            if self.stamps and len(self.requests) == 1 and len(looks) < 5:
                looks.append(0)
                self.stamps[file] += 1
            return super().stamp(file)

    rounds = Writing([[LOADED, OVER], [LOADED, OVER]])
    assert rounds.run().count("was saved") == 1
    assert len(looks) == 5


def test_a_check_is_ended_also_when_its_events_are_a_fault() -> None:
    rounds = Rounds([[LOADED, OVER]])

    def broken(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Watch(Request("lock.py"), broken, rounds.start, rounds.stamp).run()
    assert rounds.ended == 1


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_checks_again_at_each_save_until_ctrl_c(tmp_path: Path) -> None:
    file, beside = tmp_path / "counter.py", tmp_path / "limit_of_a_counter.py"
    beside.write_text("most = 2\n")
    text = f"from limit_of_a_counter import most\n{COUNTER}".replace("self.count <= self.limit", "self.count <= most")
    file.write_text(text)
    words = [*COMMAND, "watch", str(file), "--config", "small", "--json"]
    settings = environment(PYTHONDONTWRITEBYTECODE="")  # as users have it: bytecode is kept
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=settings, text=True)
    assert process.stdout is not None and process.stderr is not None

    def until(kind: str) -> Event:
        assert process.stdout is not None
        while True:
            event: Event = json.loads(process.stdout.readline())
            if event["event"] == kind:
                return event

    try:
        assert until("checked")["verdict"] == "holds"
        until("ended")
        beside.write_text("most = 1\n")
        assert until("saved")["files"] == [str(beside)]
        checked = until("checked")
        assert (checked["verdict"], checked["before"]["verdict"], checked["is_new"]) == ("within", "holds", True)
        assert checked["diagnostics"][0]["line"] == line_of(text, "def within")
        file.write_text("def (\n")
        assert until("failed")["diagnostics"][0]["line"] == 1
        file.write_text(text)
        assert until("checked")["is_new"] is False
        process.send_signal(signal.SIGINT)
        assert process.wait(600) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()


def test_once_ends_with_the_code_of_what_is_not_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "counter.py"
    file.write_text(COUNTER)
    assert main(["watch", "--once", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "  small        holds  3 states",
        "  as declared  holds  4 states",
        "  large        holds  5 states",
    ]
    file.write_text(COUNTER.replace("self.count <= self.limit", "self.count <= 3"))
    assert main(["watch", "--once", str(file)]) == 12
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    file.write_text("def (\n")
    assert main(["watch", "--once", str(file)]) == 150


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ledger-chaining"], "ledger-chaining is no file that can be saved: give FILE.py or FILE.tla"),
        (["nowhere.py"], "there is no file nowhere.py"),
    ],
)
def test_what_cannot_be_watched(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *words]) == 150
    assert capsys.readouterr().err == f"fencepost: {said}\n"


def test_the_command_is_quiet_without_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "counter.py"
    file.write_text("print('noise')\n" + COUNTER)
    ran = subprocess.run(
        [*COMMAND, "watch", "--once", file.name], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "noise" not in ran.stdout and "\r" not in ran.stdout
    assert sys.executable not in ran.stdout
