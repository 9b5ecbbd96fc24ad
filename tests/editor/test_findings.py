"""What a check says, and at which line: faults are planted in files, and must be found where they stand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commandline import environment
from editor.checks import (
    CONFIGURATION,
    COUNTER,
    ENDLESS,
    SPECIFICATION,
    Check,
    checked,
    diagnostics,
    line_of,
    only,
)
from patience import until

from fencepost.editor.cases import cases, is_as_expected, weight
from fencepost.language.loading import load


def written(folder: Path, text: str, name: str = "counter.py") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def specified(folder: Path, text: str = SPECIFICATION, configuration: str = CONFIGURATION) -> Path:
    (folder / "Counter.cfg").write_text(configuration)
    return written(folder, text, "Counter.tla")


# -- which configurations ----------------------------------------------------------------------------------------------


def test_configurations_are_checked_from_the_smallest(tmp_path: Path) -> None:
    events = checked(written(tmp_path, COUNTER))
    assert [event["title"] for event in only(events, "checked")] == ["small", "as declared", "large"]
    assert [event["distinct_states"] for event in only(events, "checked")] == [3, 4, 5]


def test_sizes_that_are_known_come_before_constants(tmp_path: Path) -> None:
    found = load(str(written(tmp_path, COUNTER)))
    known = {"small": 50, "large": 5, "as declared": 20}
    assert [case.title for case in cases(found, known=known)] == ["large", "as declared", "small"]


def test_constants_that_a_configuration_has_are_checked_once(tmp_path: Path) -> None:
    found = load(str(written(tmp_path, COUNTER.replace("limit=4", "limit=3"))))
    assert [case.title for case in cases(found)] == ["small", "large"]


def test_the_weight_of_constants() -> None:
    assert weight([3, True, "text", None]) == 3
    assert weight([("a", "b"), {"k": 5}, frozenset({2})]) == 2 + (1 + 5) + (1 + 2)
    assert weight([-4]) == 4


@pytest.mark.parametrize(
    ("expect", "verdict", "violated", "complete", "so"),
    [
        ("holds", "holds", [], True, True),
        ("holds", "reached", [], False, True),
        ("holds", "not complete", [], False, None),
        ("holds", "safe", ["safe"], False, False),
        ("safe", "safe", ["safe"], False, True),
        ("safe", "other", ["other", "safe"], False, True),
        ("safe", "holds", [], True, False),
        ("safe", "not complete", [], False, None),
        ("holds", "raised", [], False, False),
    ],
)
def test_what_is_as_expected(expect: str, verdict: str, violated: list[str], complete: bool, so: bool | None) -> None:
    assert is_as_expected(expect, verdict, violated, complete) is so


# -- violations --------------------------------------------------------------------------------------------------------


def test_a_violated_invariant_is_found_at_its_line_and_the_steps_at_theirs(tmp_path: Path) -> None:
    text = COUNTER.replace("self.count <= self.limit", "self.count != 2")
    events = checked(written(tmp_path, text), config="small")
    (found,) = diagnostics(events)
    assert (found["line"], found["severity"], found["code"]) == (line_of(text, "def within"), "error", "within")
    assert text.splitlines()[found["line"] - 1][found["column"] - 1 : found["end"]] == "within"
    assert found["message"] == "small: within is violated after 2 steps"
    assert [(each["line"], each["message"]) for each in found["about"]] == [
        (line_of(text, "def tick"), "step 1: tick"),
        (line_of(text, "def tick"), "step 2: tick"),
    ]
    assert only(events, "checked")[0]["exit_code"] == 12


def test_an_action_that_is_never_enabled_is_a_warning_at_its_line(tmp_path: Path) -> None:
    (found,) = diagnostics(checked(written(tmp_path, COUNTER)))
    assert (found["line"], found["severity"]) == (line_of(COUNTER, "def jump"), "warning")
    assert found["message"] == "jump is not enabled in any state of any configuration"


def test_an_action_is_not_called_never_enabled_before_all_is_explored(tmp_path: Path) -> None:
    assert "warning" not in {each["severity"] for each in diagnostics(checked(written(tmp_path, ENDLESS), seconds=0.5))}


def test_a_violation_that_is_expected_is_no_finding(tmp_path: Path) -> None:
    text = COUNTER.replace("self.count <= self.limit", "self.count != 3").replace("limit=4", 'limit=4, expect="within"')
    events = checked(written(tmp_path, text), config="large")
    assert only(events, "checked")[0]["as_expected"] is True
    assert only(events, "checked")[0]["exit_code"] == 0
    assert [each["severity"] for each in diagnostics(events)] == []


def test_an_expected_violation_that_is_not_there_is_found_at_the_configuration(tmp_path: Path) -> None:
    text = COUNTER.replace("limit=4", 'limit=4, expect="within"')
    (found,) = [each for each in diagnostics(checked(written(tmp_path, text))) if each["severity"] == "error"]
    assert found["line"] == line_of(text, '"large": ')
    assert found["message"] == "large: the check expects within to be violated, and all 5 states are right"


def test_a_deadlock_is_found_at_the_last_action(tmp_path: Path) -> None:
    text = COUNTER.replace("limit=2", 'limit=2, expect="deadlock"')
    assert not [e for e in diagnostics(checked(written(tmp_path, text), config="small")) if e["severity"] == "error"]
    (found,) = diagnostics(checked(specified(tmp_path, configuration=CONFIGURATION.replace("FALSE", "TRUE"))))
    assert (found["line"], found["message"]) == (
        line_of(SPECIFICATION, "Tick =="),
        "Counter.cfg: a deadlock after 3 steps",
    )


def test_a_limit_is_said_and_larger_configurations_are_left_out(tmp_path: Path) -> None:
    events = checked(written(tmp_path, ENDLESS), seconds=0.5)
    (found,) = diagnostics(events)
    states = only(events, "checked")[0]["distinct_states"]
    assert found["message"] == f"small: no violation in {states:,} states within 0.5 s"
    assert (found["line"], found["severity"]) == (line_of(ENDLESS, "class Counter"), "information")
    assert [event["title"] for event in only(events, "skipped")] == ["as declared", "large"]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "part", "message"),
    [
        ("def tick(self)", "def tick(self", "def tick(self", "invalid syntax"),
        ("import *", "import *\nimport nothing_of_this_name", "nothing_of", "it imports nothing_of_this_name"),
        ("state(0)", "state(0, 1, 2, 3, 4)", "state(0, ", "TypeError"),
        ("limit=2", "limits=2", "class Counter", "limits"),
        ("self.count += 1", "self.count += 1 // self.count", "1 // self.count", "action tick raised ZeroDivisionError"),
        ("return self.count <= self.limit", "return 5", "def within", "invariant within"),
    ],
)
def test_errors_stand_where_the_author_made_them(tmp_path: Path, old: str, new: str, part: str, message: str) -> None:
    text = COUNTER.replace(old, new)
    found = [e for e in diagnostics(checked(written(tmp_path, text), config="small")) if e["severity"] == "error"]
    assert message in found[0]["message"]
    assert len(found) == 1
    if part != "class Counter":  # an error of constants has no line yet
        assert found[0]["line"] == line_of(text, part)
    assert str(tmp_path) not in found[0]["message"].partition(" at ")[0]


def test_an_expression_that_raises_is_underlined_after_letters_of_several_bytes(tmp_path: Path) -> None:
    text = COUNTER.replace("self.count += 1", 'self.count += len("größer…") // self.count')
    (found, *_) = diagnostics(checked(written(tmp_path, text), config="small"))
    line = text.splitlines()[found["line"] - 1]
    assert line[found["column"] - 1 : found["end"]] == 'len("größer…") // self.count'


def test_an_error_in_a_file_beside_it_stands_at_the_import(tmp_path: Path) -> None:
    written(tmp_path, "x = 1\ny = 1 // 0\n", "neighbour_of_a_counter.py")
    text = f"import neighbour_of_a_counter\n{COUNTER}"
    events = checked(written(tmp_path, text))
    (found,) = diagnostics(events)
    assert found["line"] == 1
    about = [(os.path.basename(each["file"]), each["line"]) for each in found["about"]]
    assert about == [("neighbour_of_a_counter.py", 2)]


def test_a_broken_file_beside_it_stands_at_the_import(tmp_path: Path) -> None:
    written(tmp_path, "x = (\n", "neighbour_of_a_counter.py")
    (found,) = diagnostics(checked(written(tmp_path, f"import neighbour_of_a_counter\n{COUNTER}")))
    assert found["line"] == 1
    assert [os.path.basename(each["file"]) for each in found["about"]] == ["neighbour_of_a_counter.py"]


def test_files_beside_it_are_named(tmp_path: Path) -> None:
    beside = written(tmp_path, "x = 1\n", "neighbour_of_a_counter.py")
    file = written(tmp_path, f"import neighbour_of_a_counter\n{COUNTER}")
    (loaded,) = only(checked(file), "loaded")
    assert loaded["files"] == sorted([str(beside), str(file)])


def test_unsaved_text_is_checked_in_place_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "this is no Python")
    text = COUNTER.replace("self.count <= self.limit", "self.count != 2")
    found = diagnostics(checked(file, text=text, config="small"))
    assert found[0]["line"] == line_of(text, "def within")
    assert file.read_text() == "this is no Python"


def test_loading_that_does_not_end_is_stopped_at_its_line(tmp_path: Path) -> None:
    text = f"{COUNTER}\nwhile True:\n    pass\n"
    events = checked(written(tmp_path, text), seconds=2.0)
    (found,) = diagnostics(events)
    assert found["line"] in (line_of(text, "while True"), line_of(text, "    pass"))
    assert found["message"] == "it had not been loaded after 2 s, and was stopped here"
    assert events[-1] == {"event": "ended", "why": ""}


def test_an_action_that_does_not_return_ends_at_the_limit(tmp_path: Path) -> None:
    text = COUNTER.replace("self.count += 1", "while True: pass")
    (found, *_) = diagnostics(checked(written(tmp_path, text), config="small", seconds=0.5))
    assert "no violation in 1 state within 0.5 s" in found["message"]


def test_a_process_that_the_author_ends_is_said(tmp_path: Path) -> None:
    text = COUNTER.replace("self.count += 1", "import os; os._exit(3)")
    events = checked(written(tmp_path, text), config="small")
    assert events[-1]["why"] == "the process of the check was ended by the author's Python"


def test_a_process_that_takes_too_much_memory_is_killed(tmp_path: Path) -> None:
    text = COUNTER.replace(
        "self.count += 1",
        "hoard = bytearray(900 << 20); hoard[::4096] = b'x' * len(hoard[::4096])\n        while True: pass",
    )
    events = checked(written(tmp_path, text), config="small", seconds=600.0, memory=64 << 20)
    said = events[-1]["why"] + " ".join(each["message"] for each in diagnostics(events))
    assert "memory" in said


def test_loading_that_takes_too_much_memory_is_killed(tmp_path: Path) -> None:
    """Only the process that wants the check can notice."""
    text = f"{COUNTER}\nhoard = b'x' * (700 << 20)\nwhile True:\n    pass\n"
    events = checked(written(tmp_path, text), seconds=600.0, memory=64 << 20)
    assert events == [{"event": "ended", "why": "the check took more than 64 MiB of memory"}]


@pytest.mark.parametrize(("is_editor", "option"), [(True, "the option memory"), (False, "--max-memory")])
def test_the_limit_of_memory_is_named_as_it_is_given(tmp_path: Path, is_editor: bool, option: str) -> None:
    text = COUNTER.replace("self.count += 1", "raise MemoryError")
    check = Check(written(tmp_path, text), config="small", sample=is_editor)
    try:
        check.until("ready")
    finally:
        check.job.end()
    (found, *_) = diagnostics(check.events)
    assert found["message"] == f"small: out of memory while tick was run: stop in time with {option}"


# -- TLA+ --------------------------------------------------------------------------------------------------------------


def test_a_specification_is_checked_and_its_files_are_named(tmp_path: Path) -> None:
    events = checked(specified(tmp_path))
    (one,) = only(events, "checked")
    assert (one["title"], one["verdict"], one["distinct_states"]) == ("Counter.cfg", "holds", 4)
    names = {os.path.basename(each) for each in only(events, "loaded")[0]["files"]}
    assert {"Counter.tla", "Counter.cfg"} <= names


@pytest.mark.parametrize(
    ("old", "new", "part", "message"),
    [
        ("count <= Limit", "count < Limit", "Within ==", "Counter.cfg: Within is violated after 3 steps"),
        ("count + 1", "count + )", "count + )", ""),
        ("count + 1", "counted + 1", "counted", "counted"),
        ("count + 1", "count + TRUE", "TRUE", "+"),
    ],
)
def test_faults_of_a_specification_stand_at_their_lines(
    tmp_path: Path, old: str, new: str, part: str, message: str
) -> None:
    text = SPECIFICATION.replace(old, new)
    (found, *_) = diagnostics(checked(specified(tmp_path, text)))
    assert message in found["message"]
    assert found["line"] == line_of(text, part)


def test_a_module_without_a_configuration_is_a_module_of_others(tmp_path: Path) -> None:
    file = written(tmp_path, SPECIFICATION, "Counter.tla")
    check = Check(file, sample=True)
    check.until("ready")
    check.job.end()
    assert not diagnostics(check.events)
    assert only(check.events, "loaded")[0]["missing"] == "Counter.cfg"
    assert only(checked(file), "failed")  # a user who names it wants it checked


# -- the process -------------------------------------------------------------------------------------------------------


def test_a_check_that_is_ended_says_no_more_and_leaves_no_process(tmp_path: Path) -> None:
    check = Check(written(tmp_path, ENDLESS), seconds=600.0)
    check.until("checking")
    pid = check.job._process.pid
    check.job.end()
    while not check.heard.empty():
        assert check.heard.get()["event"] != "ended"
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


def test_a_check_ends_with_the_process_that_wanted_it(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom fencepost.editor.process import Job\nfrom fencepost.editor.worker import Request\n"
        f"job = Job(Request({str(written(tmp_path, ENDLESS))!r}, seconds=600.0), lambda event: None)\n"
        "print(job._process.pid, flush=True)\ntime.sleep(1000)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment())
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()

    def is_gone() -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state == "Z"

    until(is_gone, "the end of the check")
