"""The extension for VS Code says what the server understands. ``npm test`` in ``editors/vscode`` runs them together."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fencepost.editor.server import CHECK, EXPLORE, STORY, Server
from fencepost.version import VERSION

FOLDER = Path(__file__).parents[2] / "editors" / "vscode"
PACKAGE = json.loads((FOLDER / "package.json").read_text())
SOURCE = (FOLDER / "src" / "extension.ts").read_text()
SETTINGS = {
    name.removeprefix("fencepost."): each
    for name, each in PACKAGE["contributes"]["configuration"]["properties"].items()
}


@pytest.fixture
def server() -> Server:
    made = Server()
    made.end()  # which leaves no folder behind
    return made


def test_the_versions_are_the_same() -> None:
    assert PACKAGE["version"] == VERSION


def test_its_commands_are_registered_and_are_not_the_servers() -> None:
    own = {each["command"] for each in PACKAGE["contributes"]["commands"]}
    assert own == set(re.findall(r'registerCommand\("([^"]+)"', SOURCE))
    assert own.isdisjoint({CHECK, STORY, EXPLORE})
    assert set(re.findall(r'executeCommand\("([^"]+)"', SOURCE)) <= {CHECK, STORY, EXPLORE}
    palette = {each["command"] for each in PACKAGE["contributes"]["menus"]["commandPalette"]}
    assert palette <= own


def test_its_settings_are_the_options_of_the_server(server: Server) -> None:
    sent = SOURCE.partition("initializationOptions: {")[2].partition("\n    },")[0]
    options = set(re.findall(r"^\s+(\w+):", sent, re.MULTILINE))
    assert options == {*SETTINGS} - {"command"}
    server.configure({name: each["default"] for name, each in SETTINGS.items()})
    assert (server.seconds, server.memory, server.checks_changes, server.libraries) == (10.0, 2 << 30, False, [])
    server.configure({"seconds": 3.5, "memory": 64, "checkOn": "change", "libraries": ["/a"]})
    assert (server.seconds, server.memory, server.checks_changes, server.libraries) == (3.5, 64 << 20, True, ["/a"])


def test_defaults_of_the_server_are_those_of_the_settings(server: Server) -> None:
    assert server.seconds == SETTINGS["seconds"]["default"]
    assert server.memory == SETTINGS["memory"]["default"] << 20


@pytest.mark.parametrize(
    "options",
    [
        None,
        [],
        {"seconds": "long"},
        {"seconds": -1},
        {"memory": 1},
        {"memory": 5.5},
        {"libraries": 3},
        {"libraries": [1]},
    ],
)
def test_options_of_another_kind_are_left_out(server: Server, options: object) -> None:
    server.configure(options)
    assert (server.seconds, server.memory, server.checks_changes, server.libraries) == (10.0, 2 << 30, False, [])


def test_a_workspace_that_is_not_trusted_runs_nothing() -> None:
    assert PACKAGE["capabilities"]["untrustedWorkspaces"]["supported"] is False


def test_its_page_lists_its_settings() -> None:
    page = (FOLDER / "README.md").read_text()
    assert re.findall(r"^\| `fencepost\.(\w+)`", page, re.MULTILINE) == [*SETTINGS]


def test_what_it_needs_is_pinned() -> None:
    lock = json.loads((FOLDER / "package-lock.json").read_text())
    assert lock["packages"][""]["dependencies"] == PACKAGE["dependencies"]
    assert lock["packages"][""]["devDependencies"] == PACKAGE["devDependencies"]
    assert all("resolved" not in each for each in lock["packages"].values())
