"""Logs as JSON: every line is an object, whatever is logged and however a process ends."""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE

from fencepost.ledger.cluster.part import last_words
from fencepost.monitoring.logs import JsonFormatter, line

KEYS = ["time", "level", "logger", "message", "fields"]


def parsed(text: str) -> dict[str, Any]:
    """The object on one line. Strict: JSON has no NaN."""
    assert "\n" not in text and "\r" not in text

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    document: dict[str, Any] = json.loads(text, parse_constant=refuse)
    assert list(document) == KEYS and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", document["time"])
    assert isinstance(document["message"], str) and isinstance(document["fields"], dict)
    return document


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(object),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@given(st.text(), st.lists(anything, max_size=3), st.dictionaries(st.from_regex(r"[a-z]{1,8}_"), anything))
def test_whatever_is_logged_is_one_object(message: str, arguments: list[Any], extra: dict[str, Any]) -> None:
    record = logging.LogRecord("a.b", logging.WARNING, "file", 1, message, tuple(arguments), None)
    vars(record).update(extra)
    document = parsed(JsonFormatter("bookie").format(record))
    assert (document["level"], document["logger"], document["fields"]["part"]) == ("WARNING", "a.b", "bookie")
    assert set(extra) <= set(document["fields"])


def test_a_traceback_is_a_field() -> None:
    try:
        raise ValueError("one\ntwo")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "file", 1, "it failed: %s", ("x",), sys.exc_info())
    document = parsed(JsonFormatter("bookie").format(record))
    assert document["message"] == "it failed: x"
    assert document["fields"]["traceback"].endswith("ValueError: one\ntwo")


def test_the_time_is_of_the_record_in_utc() -> None:
    assert parsed(line(0.25, "INFO", "x", "y"))["time"] == "1970-01-01T00:00:00.250Z"
    assert parsed(line(86_399.9999, "INFO", "x", "y"))["time"] == "1970-01-01T23:59:59.999Z"


ERRORS = """
import asyncio, gc, logging, sys, threading, warnings
from fencepost.cli import output
from fencepost.cli.commands import serving
serving.log_to_standard_error(True, "json", "bookie")
logging.getLogger("a").info("%d of %s", 1, "2\\n3")
def fail(): raise RuntimeError("in a thread")
thread = threading.Thread(target=fail, name="t"); thread.start(); thread.join()
class Late:
    def __del__(self): raise RuntimeError("in a destructor")
Late(); gc.collect()
warnings.simplefilter("always"); warnings.warn("look out")
async def main():
    asyncio.get_running_loop().call_soon(fail)
    asyncio.get_running_loop().create_task(later())
    await asyncio.sleep(0.01)
async def later(): raise RuntimeError("in a task")
asyncio.run(main())
try: fail()
except RuntimeError as error: output.failed(error, True)
output.announce("it serves")
raise RuntimeError("at the end")
"""


def test_every_error_of_a_process_is_an_object() -> None:
    done = subprocess.run([sys.executable, "-c", ERRORS], capture_output=True, text=True, timeout=PATIENCE)
    documents = [parsed(each) for each in done.stderr.splitlines()]
    said = " ".join(each["message"] + each["fields"].get("traceback", "") for each in documents)
    for what in ("1 of 2\n3", "in a thread", "in a destructor", "look out", "in a task", "at the end"):
        assert what in said
    assert all(each["fields"]["part"] == "bookie" for each in documents)
    assert parsed(done.stdout.rstrip("\n"))["message"] == "it serves"


def test_parts_speak_json_from_their_start_to_their_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fencepost", "metadata", str(tmp_path), "--port", "0", "--verbose"]
    command += ["--set", "logFormat=json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert parsed(process.stdout.readline().rstrip("\n"))["message"].endswith(" serves")
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert list(map(parsed, errors.splitlines()))
    documents = [parsed(each) for each in second.stderr.splitlines()]
    assert (documents[-1]["level"], documents[-1]["logger"]) == ("ERROR", "fencepost")
    assert "in use by another metadata service" in documents[-1]["message"]


def test_the_last_words_of_a_part_are_found_in_a_log_of_json(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [line(0, "ERROR", "fencepost", "the disk failed", part="bookie"), line(1, "INFO", "a", "it ends")]
    log.write_text("\n".join(lines))
    assert last_words(log) == "the disk failed"
    log.write_text(f"{lines[1]}\n")
    assert last_words(log) == "it ends"
