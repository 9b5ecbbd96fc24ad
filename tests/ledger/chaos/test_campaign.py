"""Half a minute of the chaos campaign: real processes are killed and paused, and the judge finds nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

from fencepost.ledger.cluster.ports import free_ports, is_free

ROOT = Path(__file__).parents[3]


@pytest.mark.campaign
def test_nothing_acknowledged_is_lost_and_everything_comes_back(tmp_path: Path) -> None:
    first, *_ = free_ports(1)
    while not all(is_free(first + number) for number in range(7)):
        first, *_ = free_ports(1)
    command = [
        sys.executable,
        "-m",
        "bench.chaos",
        "--minutes",
        "0",
        "--harms",
        "8",
        "--entries",
        "500",
        "--seed",
        "1902",
        "--members",
        "3",
        "--loggers",
        "1",
        "--json",
    ]
    command += [
        "--rate",
        "200",
        "--keep",
        str(tmp_path / "chaos"),
        "--metadata-port",
        str(first),
        "--bookie-port",
        str(first + 3),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    summary = json.loads(done.stdout)
    assert summary["faults"] == [] and done.returncode == 0
    assert summary["acknowledged"] >= 500 and summary["acknowledged in the log"] > 0
    assert sum(summary["harms"].values()) >= 8
