"""A Prometheus that reads a running cluster: every panel of the dashboard and every alert has data, and the alert for a
lost bookie fires.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deploy.test_deploy import DASHBOARD, PROMETHEUS, ROOT, RULES

from fencepost.ledger.cluster.ports import HOST, free_ports, is_free

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus"),
]

MEMBERS, BOOKIES = 3, 4
PATIENCE = 180
COMPARISON = re.compile(r" (?:==|<|>) [\d.-]+$")
"""At the end of the expression of an alert: without it, there is data whether or not anything is wrong."""


class Prometheus:
    """The HTTP API of one."""

    def __init__(self, port: int) -> None:
        self._base = f"http://{HOST}:{port}/api/v1/"

    def get(self, what: str, **given: object) -> Any:
        with urllib.request.urlopen(f"{self._base}{what}?{urllib.parse.urlencode(given)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def has_data(self, query: str, since: float) -> bool:
        """Whether an expression has had a number at any time."""
        now = time.time()
        found = self.get("query_range", query=query, start=since, end=now, step=1)["result"]
        return any(value != "NaN" for series in found for _, value in series["values"])

    def firing(self) -> set[tuple[str, str]]:
        """The names of alerts that fire, with the instance."""
        alerts = self.get("alerts")["alerts"]
        return {
            (each["labels"]["alertname"], each["labels"].get("instance", ""))
            for each in alerts
            if each["state"] == "firing"
        }


def until(what: str, holds: Callable[[], bool], found: Callable[[], object] = str) -> None:
    """Wait for something; PATIENCE, in seconds, ends a test that waits for what never comes. ``found``: what is there
    then.
    """
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"never: {what}. {found()}"
        time.sleep(0.2)


def fencepost(*words: object) -> list[str]:
    return [sys.executable, "-m", "fencepost", *map(str, words)]


def targets(http_port: int, recovery_port: int) -> dict[str, list[str]]:
    """What each job of prometheus.yml asks here."""
    ports = {
        "fencepost-metadata": range(http_port, http_port + MEMBERS),
        "fencepost-bookie": range(http_port + MEMBERS, http_port + MEMBERS + BOOKIES),
        "fencepost-autorecovery": [recovery_port],
    }
    assert ports.keys() == {job["job_name"] for job in PROMETHEUS["scrape_configs"]}
    return {job: [f"{HOST}:{port}" for port in found] for job, found in ports.items()}


def settings(folder: Path, asked: dict[str, list[str]]) -> Path:
    """prometheus.yml and alerts.yml for the cluster, with seconds instead of minutes and hours to wait."""
    rules = (ROOT / "prometheus" / "alerts.yml").read_text()
    (folder / "alerts.yml").write_text(re.sub(r"for: (\d+)[mh]", r"for: \1s", rules))
    jobs = [{"job_name": job, "static_configs": [{"targets": found}]} for job, found in asked.items()]
    file = folder / "prometheus.yml"
    file.write_text(  # JSON is YAML
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": ["alerts.yml"],
                "scrape_configs": jobs,
            }
        )
    )
    return file


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts processes, which the end of the test ends."""
    with contextlib.ExitStack() as ends:

        def start(command: list[str], **given: Any) -> subprocess.Popen[str]:
            process = subprocess.Popen(command, text=True, **given)
            ends.callback(process.wait)
            ends.callback(process.terminate)
            return process

        yield start


def run_of_free_ports(count: int) -> int:
    """The first of some free ports that follow on one another."""
    return free_ports(1, lambda port: all(is_free(port + n) for n in range(count)))[0]


def test_panels_and_alerts_have_data_and_a_lost_bookie_is_told(
    tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    http = run_of_free_ports(MEMBERS + BOOKIES)
    of_recovery, of_prometheus = free_ports(2)
    asked = targets(http, of_recovery)
    cluster, began = tmp_path / "cluster", time.time()
    ports = ["--metadata-port", run_of_free_ports(MEMBERS), "--bookie-port", run_of_free_ports(BOOKIES)]
    words = ["--members", MEMBERS, "--bookies", BOOKIES, *ports, "--http-port", http]
    up = started(fencepost("cluster", "up", cluster, *words), stdout=subprocess.DEVNULL)

    def state() -> Any:
        done = subprocess.run(
            fencepost("cluster", "status", cluster, "--json"), capture_output=True, text=True, check=False
        )
        return json.loads(done.stdout) if done.stdout else {"state": "down"}

    until("the cluster is up", lambda: state()["state"] == "up" or up.poll() is not None)
    assert up.poll() is None
    uri = state()["metadata"]
    started(fencepost("autorecovery", "--metadata", uri, "--http-port", of_recovery), stdout=subprocess.DEVNULL)
    for address in (each for job in asked.values() for each in job):
        until(f"{address} is ready", partial(answers, address, "ready"))
        assert answers(address, "live") and answers(address, "metrics")

    store = ["--storage.tsdb.path", str(tmp_path / "data"), "--web.listen-address", f"{HOST}:{of_prometheus}"]
    with open(tmp_path / "prometheus.log", "w") as log:
        started(["prometheus", "--config.file", str(settings(tmp_path, asked)), *store], stdout=log, stderr=log)
    prometheus = Prometheus(of_prometheus)
    until("Prometheus serves", lambda: answers(f"{HOST}:{of_prometheus}", "-/ready"))
    answering = 'count(up{job=~"fencepost-.*"} == 1)'
    until(
        "all are asked",
        lambda: bool(prometheus.has_data(f"{answering} == {MEMBERS + BOOKIES + 1}", began)),
    )
    for _ in range(3):
        append_and_read(uri)
    until("no alert fires", lambda: not prometheus.firing(), prometheus.firing)

    lost = MEMBERS + BOOKIES - 1
    subprocess.run(fencepost("cluster", "kill", cluster, BOOKIES), check=True, capture_output=True)
    alert = ("FencepostPartDown", f"{HOST}:{http + lost}")
    until("the alert for the lost bookie fires", lambda: alert in prometheus.firing(), prometheus.firing)
    until("its entries are copied", lambda: prometheus.has_data("replication_worker_NUM_ENTRIES_WRITTEN > 0", began))

    def without_data() -> list[str]:
        interval = "10s"
        queries = {
            panel["title"]: target["expr"].replace("$__rate_interval", interval)
            for panel in DASHBOARD["panels"]
            for target in panel.get("targets", [])
        } | {rule["alert"]: COMPARISON.sub("", rule["expr"].strip()) for rule in RULES}
        assert not [name for name, query in queries.items() if "$" in query]
        return [name for name, query in queries.items() if not prometheus.has_data(query, began)]

    until("all panels and alerts have data", lambda: not without_data(), without_data)
    assert {alert for alert, _ in prometheus.firing()} == {"FencepostPartDown"}


def answers(address: str, what: str) -> bool:
    """Whether the answer to GET is 200."""
    try:
        with urllib.request.urlopen(f"http://{address}/{what}", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def append_and_read(uri: str) -> None:
    """Write a ledger, and read it."""
    entries = "".join(f"entry {n}\n" for n in range(2000))
    given = {"input": entries, "check": True, "capture_output": True, "text": True}
    printed = subprocess.run(fencepost("ledger", "append", "--metadata", uri, "--json"), **given).stdout  # type: ignore[call-overload]
    ledger = json.loads(printed.splitlines()[-1])["ledger"]
    subprocess.run(fencepost("ledger", "read", ledger, "--metadata", uri), check=True, capture_output=True)
