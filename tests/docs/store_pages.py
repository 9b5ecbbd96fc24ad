"""Pages whose commands need a cluster. The ``shellsession`` blocks of a page run one after the other, in one folder.

The cluster gets free ports. Commands and examples run with these, and the output is shown with those of the page.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from docs.documents import ENVIRONMENT, EXAMPLES, ROOT, Command, blocks, commands, documents
from patience import PATIENCE

from fencepost.ledger.cluster.ports import free_ports, is_free

LANGUAGE = "shellsession"
SHOWN = [2181, *range(3181, 3191)]
"""The ports of the metadata service and of bookies in the pages."""

EXAMPLES_OF_STORE = (
    "hello_ledger.py", "pipelined.py", "take_over.py", "hello_log.py", "batch_log.py", "consume_log.py",
    "write_lines.py", "word_count.py",
)  # fmt: skip

VARIES = [
    # On a busy machine a part may miss its time for a moment.
    (re.compile(r"(?:serves|silent|unregistered) +\d+ +[\d.]+ \w+ +[\d.]+ (?:s|min \d+ s)$", re.MULTILINE), "serves"),
    (re.compile(r"^part +address +state.*$", re.MULTILINE), "part"),
    (re.compile(r"127\.0\.0\.1:318\d"), "127.0.0.1:3180"),
    # A writer may get to its next ledger before or after the bookie is killed.
    (re.compile(r"lines in \d+ ledgers"), "lines in ledgers"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "then"),
]
"""What differs from run to run, the order of bookies in an ensemble among it, besides what :func:`docs.documents.same`
knows.
"""


def pages() -> list[Path]:
    """The pages that have such blocks."""
    return [document for document in documents() if blocks(document, LANGUAGE)]


def without_variety(shown: str) -> str:
    """``shown`` without the parts that differ from run to run."""
    for pattern, instead in VARIES:
        shown = pattern.sub(instead, shown)
    return shown


def run_page(page: Path) -> Iterator[tuple[Command, str]]:
    """Run the commands of a page. Returns each with its output."""
    ports = _ports()
    with tempfile.TemporaryDirectory() as folder:
        for name in EXAMPLES_OF_STORE:
            (Path(folder) / name).write_text(_told_with((EXAMPLES / name).read_text(), SHOWN, ports))
        environment: dict[str, str] = {}
        try:
            for block in blocks(page, LANGUAGE):
                for command in commands(block):
                    line = _told_with(command.line, SHOWN, ports)
                    if line.startswith("fencepost cluster up"):
                        line += f" --metadata-port {ports[0]} --bookie-port {ports[1]}"
                    if line.startswith("export "):
                        name, _, value = line.removeprefix("export ").partition("=")
                        environment[name] = value
                        yield command, ""
                        continue
                    yield command, _told_with(_run(line, folder, environment), ports, SHOWN)
        finally:
            _run("fencepost cluster down store", folder, {})
            shutil.rmtree(folder, ignore_errors=True)


def _ports() -> list[int]:
    """A port for the metadata service and some after it for bookies."""
    while True:
        first, *_ = free_ports(1)
        if all(is_free(first + number) for number in range(len(SHOWN))):
            return [first + number for number in range(len(SHOWN))]


def _told_with(text: str, these: list[int], those: list[int]) -> str:
    """Replace the ports in a text."""
    instead = {str(this): str(that) for this, that in zip(these, those, strict=True)}
    return re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda found: instead.get(found[0], found[0]), text)


def _run(line: str, folder: str, exported: dict[str, str]) -> str:
    environment = {
        **os.environ,
        **exported,
        **ENVIRONMENT,
        "PYTHONPATH": str(ROOT / "src"),
        "PYSPARK_PYTHON": sys.executable,
    }
    python = shlex.quote(sys.executable)
    line = re.sub(r"((?:^|\| )(?:\w+=\S+ )*)fencepost\b", rf"\1{python} -m fencepost", line)
    line = re.sub(r"^python\b", python, line)
    done = subprocess.run(
        line,
        shell=True,
        executable="/bin/bash",
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    return done.stdout
