"""However much strangers do, they fill no log: a few lines of each kind are written, and the others are counted."""

from __future__ import annotations

import json
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger.processes import Process
from patience import until

from fencepost.monitoring.logs import JsonFormatter
from fencepost.monitoring.sparing import FEW, OF_STRANGERS, Sparing

STRANGERS = logging.getLogger(f"{OF_STRANGERS[1]}.tests")
OTHERS = logging.getLogger("fencepost.tests")


class Written(logging.Handler):
    """Keeps the lines that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter("bookie"))
        self.lines: list[str] = []
        self.fields: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        document = json.loads(self.format(record))
        self.lines.append(document["message"])
        self.fields.append(document["fields"])


@pytest.fixture
def written() -> Iterator[Written]:
    handler = Written()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def closes(number: int) -> None:
    STRANGERS.warning("the connection from %s is closed: it sent %s", f"10.0.0.1:{number}", "nonsense")


def test_the_first_few_of_a_kind_are_written_and_the_others_are_counted(written: Written) -> None:
    written.addFilter(Sparing(minute=0.2))
    for number in range(3 * FEW):
        closes(number)
        OTHERS.warning("line %d", number)
    STRANGERS.error("another kind")
    until(lambda: any(" more such lines " in line for line in written.lines), "the count")
    of_strangers = [line for line in written.lines if line.startswith("the connection ")]
    assert of_strangers == [f"the connection from 10.0.0.1:{n} is closed: it sent nonsense" for n in range(FEW)]
    assert sum(line.startswith("line ") for line in written.lines) == 3 * FEW and "another kind" in written.lines
    assert written.lines[-1] == (
        f"{2 * FEW} more such lines were left out; the last of them: the connection from"
        f" 10.0.0.1:{3 * FEW - 1} is closed: it sent nonsense"
    )
    assert written.fields[-1] == {"part": "bookie", "left_out": 2 * FEW}
    closes(-1)
    assert written.lines[-1] == "the connection from 10.0.0.1:-1 is closed: it sent nonsense"


def test_a_few_lines_a_minute_are_all_written(written: Written) -> None:
    now = 0.0
    written.addFilter(Sparing(now=lambda: now))
    before = threading.active_count()
    for number in range(10 * FEW):
        now += 60 / FEW
        closes(number)
    assert len(written.lines) == 10 * FEW and threading.active_count() == before


def test_strangers_cannot_fill_the_log_of_a_service(tmp_path: Path) -> None:
    service = Process(tmp_path, "metadata", str(tmp_path / "metadata"), "--port", "0")
    port = int(service.told.split()[2].rpartition(":")[2])
    for _ in range(5 * FEW):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(struct.pack(">i", -1) + b"x")
            assert stranger.recv(1) == b""
    service.end()
    lines = (tmp_path / "metadata.log").read_text().splitlines()
    assert sum("announced a message of -1 bytes" in line for line in lines) == FEW
