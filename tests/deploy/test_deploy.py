"""The files in ``deploy``: the command line knows their commands, their ports match, and what they measure exists."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deploy.plain_yaml import load

from fencepost.cli.main import _parser
from fencepost.ledger.autorecovery.settings import AutoRecoverySettings
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.settings import FileOfSettings, one_setting
from fencepost.metadata.settings import MetadataSettings
from fencepost.monitoring.table import PARTS

ROOT = Path(__file__).resolve().parents[2] / "deploy"
CHART = ROOT / "helm" / "fencepost"
COMPOSE: dict[str, Any] = load((ROOT / "compose.yaml").read_text())
PROMETHEUS: dict[str, Any] = load((ROOT / "prometheus" / "prometheus.yml").read_text())
RULES: list[dict[str, Any]] = load((ROOT / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "grafana" / "fencepost.json").read_text())

OURS = [name for name, each in COMPOSE["services"].items() if each["image"] == "fencepost"]

SETTINGS: dict[str, type[FileOfSettings]] = {
    "metadata": MetadataSettings,
    "bookie": BookieSettings,
    "autorecovery": AutoRecoverySettings,
}

HTTP_PORT = {"metadata": 7000, "bookie": 8000, "autorecovery": 8000}


def understood(words: list[str]) -> tuple[Any, Any]:
    """What the command line makes of a command: its arguments, and its settings."""
    arguments, unknown = _parser(words[0]).parse_known_args(words)
    assert not unknown, f"fencepost {words[0]} does not know {unknown}"
    return arguments, SETTINGS[words[0]].of(dict(map(one_setting, arguments.set)))


def http_address(settings: Any) -> str:
    found = getattr(settings, "metrics_provider_http_host", "") or getattr(
        settings, "prometheus_stats_http_address", ""
    )
    return str(found)


# -- Compose ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
def test_the_commands_of_compose_are_those_of_the_command_line(name: str) -> None:
    service = COMPOSE["services"][name]
    arguments, settings = understood(service["command"])
    part = service["command"][0]
    assert arguments.http_port == HTTP_PORT[part] and http_address(settings) == "0.0.0.0"
    if part == "metadata":
        number = int(name.removeprefix("metadata-"))
        assert arguments.id == number and arguments.controllers[number] == f"{name}:9093"
        assert arguments.controllers.keys() == {1, 2, 3} and arguments.listen == "0.0.0.0:9093"
    else:
        assert arguments.metadata == "zk://metadata-1:2181,metadata-2:2181,metadata-3:2181/ledgers"
    if part == "bookie":
        assert settings.advertised_address == settings.bookie_id == name
        assert settings.listening_interface == "0.0.0.0"
    if "healthcheck" in service:
        assert f":{HTTP_PORT[part]}/ready" in service["healthcheck"]["test"][-1]


def test_compose_is_consistent() -> None:
    assert COMPOSE.keys() == {"name", "services", "volumes"}
    assert sorted(OURS) == sorted(
        ["autorecovery", *(f"{kind}-{number}" for kind in ("bookie", "metadata") for number in (1, 2, 3))]
    )
    used = set()
    for name, service in COMPOSE["services"].items():
        assert set(service.get("depends_on", ())) <= COMPOSE["services"].keys()
        for volume in service.get("volumes", ()):
            source, target = volume.split(":")[:2]
            assert target.startswith("/")
            if source.startswith("./"):
                assert (ROOT / source).exists(), f"{name} mounts {source}"
            else:
                used.add(source)
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} publishes {port} to everybody"
        if name in OURS and service["command"][0] != "autorecovery":
            assert [each for each in service["volumes"] if each.endswith(":/data")] == [f"{name}:/data"]
            assert service["command"][1].startswith("/data/")
    assert used == COMPOSE["volumes"].keys()


def test_prometheus_asks_every_service_of_compose_at_its_port() -> None:
    targets = {
        target: job["job_name"]
        for job in PROMETHEUS["scrape_configs"]
        for target in job["static_configs"][0]["targets"]
    }
    commands = {name: COMPOSE["services"][name]["command"][0] for name in OURS}
    assert targets == {f"{name}:{HTTP_PORT[part]}": f"fencepost-{part}" for name, part in commands.items()}
    assert [(ROOT / "prometheus" / each).exists() for each in PROMETHEUS["rule_files"]] == [True]


# -- what is measured -------------------------------------------------------------------------------------------------

WORDS = {
    "sum", "max", "min", "rate", "increase", "by", "bool", "histogram_quantile", "up", "job", "instance", "kind", "le",
    "operation", "success", "false", "ADD_ENTRY", "__rate_interval", "m", "h", "fencepost",
}  # fmt: skip
"""Words of queries that are no metrics."""


def queries() -> Iterator[tuple[str, str]]:
    """Every query, with where it is."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("where", "query"), [*queries()])
def test_every_metric_of_a_query_is_in_the_table(where: str, query: str) -> None:
    kinds = {metric.name: metric.kind for part in PARTS.values() for metric in part}
    samples = set(kinds) - {name for name, kind in kinds.items() if kind == "histogram"}
    for name, kind in kinds.items():
        samples |= {f"{name}_{end}" for end in ("sum", "count") if kind in ("summary", "histogram")}
        samples |= {f"{name}_bucket"} if kind == "histogram" else set()
    found = set(re.findall(r"[A-Za-z_]\w*", query)) - WORDS
    assert found <= samples, f"{where}: {found - samples}"
    for name in re.findall(r"(?:rate|increase)\((\w+)", query):
        assert kinds.get(name) != "gauge", f"{where}: a rate of the gauge {name}"


def test_alerts_say_what_to_do_and_panels_do_not_overlap() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names))
    for rule in RULES:
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("warning", "critical")
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


# -- systemd ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", SETTINGS)
def test_the_commands_of_units_are_those_of_the_command_line(part: str) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "systemd" / f"fencepost-{part}.service")
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/fencepost") and words[0] == part
    arguments, _ = understood(words)
    assert arguments.http_port and str(arguments.settings) == f"/etc/fencepost/{part}.toml"
    assert unit["Service"]["Restart"] == "always"


# -- the chart --------------------------------------------------------------------------------------------------------

VALUES: dict[str, Any] = load((CHART / "values.yaml").read_text())


def containers(text: str) -> list[tuple[list[str], dict[str, int]]]:
    """The arguments and the ports of the containers in a manifest."""
    found = []
    for block in re.split(r"^        - name: ", text, flags=re.MULTILINE)[1:]:
        given = re.search(r"^          args:\n((?:            .*\n)+)", block, re.MULTILINE)
        if given is not None:
            words = [line.strip()[2:].strip('"') for line in given[1].splitlines()]
            ports = {name: int(port) for name, port in re.findall(r"name: (\w+), containerPort: (\d+)", block)}
            found.append((words, ports))
    return found


def templated(name: str) -> str:
    """A template with what its expressions would be, as far as commands need it."""
    text = (CHART / "templates" / f"{name}.yaml").read_text()
    text = re.sub(r"^ *- --set\n *- \{\{ \. \| quote \}\}\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ *\{\{-? (range|end|with).*\}\}\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r'\{\{ include "fencepost.controllers" \. \| quote \}\}', "0@a-0.a:9093,1@a-1.a:9093,2@a-2.a:9093", text
    )
    text = re.sub(r'\{\{ include "fencepost.uri" \. \}\}', "zk://rel-metadata-client:2181/ledgers", text)
    text = re.sub(r"\{\{ \.Values\.logFormat \}\}", VALUES["logFormat"], text)
    return re.sub(r"\{\{.*?\}\}", "name", text).replace("$(POD_INDEX)", "1").replace("$(POD_NAME)", "rel-bookie-1")


def check_container(part: str, words: list[str], ports: dict[str, int]) -> None:
    arguments, settings = understood(words)
    assert words[0] == part and arguments.http_port == ports["http"] and http_address(settings) == "0.0.0.0"
    if part == "metadata":
        assert arguments.id in arguments.controllers and arguments.port == ports["client"]
        assert arguments.listen == f"0.0.0.0:{ports['quorum']}"
        assert {each.rpartition(":")[2] for each in arguments.controllers.values()} == {str(ports["quorum"])}
    if part == "bookie":
        assert arguments.port == ports["bookie"] and settings.listening_interface == "0.0.0.0"
        assert settings.advertised_address.startswith(f"{settings.bookie_id}.")


@pytest.mark.parametrize("part", SETTINGS)
def test_the_commands_of_the_chart_are_those_of_the_command_line(part: str) -> None:
    text = templated(part)
    ((words, ports),) = containers(text)
    check_container(part, words, ports)
    assert f'prometheus.io/port: "{ports["http"]}"' in text
    for name, port in re.findall(r"- \{name: (\w+), port: (\d+)\}", text):
        assert ports[name] == int(port)
    for setting in VALUES[part]["settings"]:
        SETTINGS[part].of(dict([one_setting(setting)]))


def test_the_chart_uses_every_value_and_no_other() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values\.([\w.]+)", templates))
    declared = {
        f"{name}.{inner}" if isinstance(value, dict) else name
        for name, value in VALUES.items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert used == declared


@pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm")
def test_the_chart_is_rendered(tmp_path: Path) -> None:
    subprocess.run(["helm", "lint", "--strict", CHART], check=True, capture_output=True)
    command = ["helm", "template", "rel", str(CHART), "--kube-version", "1.31.0"]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = containers(rendered.replace("$(POD_INDEX)", "1").replace("$(POD_NAME)", "rel-bookie-1"))
    assert sorted(words[0] for words, _ in found) == sorted(SETTINGS)
    for words, ports in found:
        check_container(words[0], words, ports)
    ((metadata, _),) = [each for each in found if each[0][0] == "metadata"]
    assert "0@rel-metadata-0.rel-metadata:9093,1@rel-metadata-1.rel-metadata:9093" in " ".join(metadata)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@pytest.mark.parametrize(("kind", "file"), [("rules", "alerts.yml"), ("config", "prometheus.yml")])
def test_prometheus_takes_its_files(kind: str, file: str) -> None:
    done = subprocess.run(["promtool", "check", kind, ROOT / "prometheus" / file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
