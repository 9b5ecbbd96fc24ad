"""Reports of a lasso: text, page, drawing, sequence diagram, JSON, ITF, graph, and the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from checker.liveness.locks import Lock, StrongLock, WeakLock
from cli.commandline import Ran

from fencepost import Result, check
from fencepost.behaviours import ReplayFailed, Trace, replay, to_dot
from fencepost.behaviours.evidence import looked_at
from fencepost.behaviours.itf import itf
from fencepost.checker.engines.interface import Progress
from fencepost.cli.main import main
from fencepost.report.describe import description
from fencepost.report.diagram import diagram
from fencepost.report.html import html
from fencepost.report.json import data
from fencepost.report.sequence import sequence
from fencepost.report.svg import svg
from fencepost.report.text import story

LOCKS = str(Path(__file__).with_name("locks.py"))


def starving() -> Result:
    return check(WeakLock(), invariants=["whoever_waits_enters"])


def staying() -> Result:
    return check(Lock(), invariants=["free_again"])


def lasso(result: Result) -> Trace:
    assert result.violation is not None and result.violation.trace is not None
    return result.violation.trace


def test_the_story_marks_the_loop() -> None:
    lines = story(starving()).splitlines()
    assert lines[0] == "VIOLATED  whoever_waits_enters"
    assert lines[1] == "A waiting process gets the lock."
    begin = lines.index("The shortest way into a loop: 1 step, and then 3 steps in the loop") + 1
    assert lines[begin : begin + 12] == [
        "  0      initial state",
        "  1  p1  ask(p=p1)",
        "         at.p1  AWAY → WAITING",
        "╭ 2  p2  ask(p=p2)",
        "│        at.p2  AWAY → WAITING",
        "│ 3  p2  enter(p=p2)",
        "│        held   False → True",
        "│        at.p2  WAITING → IN",
        "│ 4  p2  leave(p=p2)",
        "│        held   True → False",
        "│        at.p2  IN → AWAY",
        "╰─ and again as after step 1, for ever",
    ]
    text = "\n".join(lines)
    assert (
        "whoever_waits_enters(p=p1) waits in vain after step 1 and from there on; it looked at:\n    at.p1  WAITING"
        in text
    )
    assert re.search(
        r"The loop is fair\n    weak enter\(p=p1\)  not enabled after step 3\n    weak enter\(p=p2\)  taken in"
        r" step 3\n",
        text,
    )


def test_the_story_of_staying_for_ever() -> None:
    text = story(staying())
    assert "The shortest way to a state that can be stayed in for ever: 2 steps" in text
    assert "╰─ and nothing more happens, for ever" in text
    assert "free_again is false all along the loop; it looked at:\n    held  True\n" in text
    assert "The loop is fair" not in text


@pytest.mark.parametrize("width", [40, 60, 100])
def test_the_loop_fits_its_width(width: int) -> None:
    assert max(map(len, story(starving(), width=width).split("Statistics")[0].splitlines())) <= width


def test_what_holds_says_of_which_properties() -> None:
    result = check(StrongLock(), invariants=["whoever_waits_enters", "free_again"])
    assert "Every fair behaviour satisfies free_again and whoever_waits_enters." in story(result)


def test_json() -> None:
    found = data(starving())
    assert (found["verdict"], found["exit_code"], found["judged"], found["unjudged"]) == (
        "whoever_waits_enters", 13, ["whoever_waits_enters"], None,
    )  # fmt: skip
    violation = found["violation"]
    assert (violation["kind"], violation["loop"], len(violation["trace"])) == ("leads_to", 1, 5)
    assert violation["trace"][1]["state"] == violation["trace"][-1]["state"]
    assert violation["fairness"][0] == {"demand": "enter(p=p1)", "strong": False, "met": "not enabled", "at": 3}
    assert violation["fairness"][2] == {"demand": "leave(p=p1)", "strong": False, "met": "never enabled", "at": None}


def test_itf() -> None:
    found = itf(lasso(starving()))
    assert found["loop"] == 1 and len(found["states"]) == 4
    assert found["#meta"]["closing"] == {"action": "leave", "parameters": {"p": "p2"}, "by": "p2"}
    found = itf(lasso(staying()))
    assert found["loop"] == 2 and len(found["states"]) == 3 and "closing" not in found["#meta"]
    assert "loop" not in itf(replace(lasso(staying()), loop=None))


def test_sequence() -> None:
    lines = sequence(lasso(starving()), "starves").splitlines()
    assert lines[3] == "loop for ever" and lines[-2:] == ["end", "note over p1,p2: starves"]
    assert sequence(lasso(staying())).splitlines()[-1] == "note over p2: nothing more happens, for ever"


def test_drawing_and_page() -> None:
    drawn = svg(diagram(lasso(starving())))
    assert '<g class="loop"><path d="M9 ' in drawn and "back to after step 1, for ever" in drawn
    assert "nothing more happens, for ever" in svg(diagram(lasso(staying())))
    page = html(starving())
    assert re.findall(r'<li value="(\d)" data-step="\d" class="loops">', page) == ["2", "3", "4"]
    assert '<p class="again">and again as after step 1, for ever</p></li>' in page
    assert "<p>The loop is fair:</p>" in page
    assert 'class="again">and nothing more happens' in html(staying())


def test_graph() -> None:
    path = to_dot(WeakLock(), lasso(starving()))
    assert len(re.findall(r"-> s\d+ \[label=.*color=red", path)) == 4
    assert re.search(r'(s\d+) -> \1 \[label="nothing more happens", color=red', to_dot(Lock(), lasso(staying())))


def test_evidence_for_each_kind() -> None:
    result = check(WeakLock())
    seen = {v.name: looked_at(v.trace, v.kind, v.name) for v in result.violations if v.trace is not None}
    told = {name: (e.when, [values for _, values in e.slots]) for name, e in seen.items() if e is not None}
    assert told["quiet_at_last"] == ("is false after step 2, in the loop", [[True, False, True]])
    assert set(told) == {"quiet_at_last", "whoever_waits_enters"}


def test_a_loop_that_does_not_close_is_not_told() -> None:
    from fencepost.semantics import Stepper

    stepper = Stepper(Lock())
    ask = next(root.index for root in stepper.of_kind("action"))
    with pytest.raises(ReplayFailed, match="does not come back to state 0"):
        replay(stepper, stepper.initial_states()[0], [(ask, ())], 0)


def test_progress_says_what_takes_time() -> None:
    doing: list[str] = []

    def report(progress: Progress) -> None:
        doing.append(progress.doing)

    check(StrongLock(), engine="reference", report=report)
    assert "judging liveness" in doing


def test_being_interrupted_while_judging() -> None:
    def report(progress: Progress) -> None:
        if progress.doing:
            raise KeyboardInterrupt

    result = check(StrongLock(), engine="reference", report=report)
    assert (result.verdict, result.exit_code, result.holds) == ("interrupted", 130, False)


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """Runs the command line in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def running(*arguments: str) -> Ran:
        code = main(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return running


def test_the_command_line(run: Callable[..., Ran], tmp_path: Path) -> None:
    files = {name: tmp_path / f"lasso.{name}" for name in ("json", "html", "itf", "sequence", "dot")}
    given = [f"--{name}={path}" for name, path in files.items()]
    done = run("check", f"{LOCKS}:WeakLock", "--invariant", "whoever_waits_enters", "--eval", "held", *given)
    assert done.code == 13 and "VIOLATED  whoever_waits_enters" in done.out
    assert all(path.read_text() for path in files.values())
    assert json.loads(files["json"].read_text())["violation"]["loop"] == 1
    assert run("check", f"{LOCKS}:StrongLock", "--invariant", "free_again").code == 0


def test_what_is_refused(run: Callable[..., Ran]) -> None:
    done = run("check", f"{LOCKS}:Lock", "--checkpoint", "saved")
    assert done.code == 151 and "leave out --checkpoint and --resume" in done.err


def test_show_lists_properties_and_fairness() -> None:
    text = description(StrongLock)
    assert "Leads to\n  whoever_waits_enters(p of processes)\n      A waiting process gets the lock." in text
    assert "Always eventually\n  free_again" in text and "Eventually always\n  quiet_at_last" in text
    assert re.search(r"Fairness \(.*\)\n  strong\(enter\)\n  weak\(leave\)", text)
