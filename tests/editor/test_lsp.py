"""``fencepost lsp``, spoken to by the client of pygls, which is part of no editor and not of Fencepost."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.commandline import COMMAND, environment
from editor.checks import CONFIGURATION, COUNTER, ENDLESS, SPECIFICATION, line_of
from lsprotocol import types as lsp
from patience import PATIENCE
from pygls.lsp.client import LanguageClient

from fencepost.editor.server import CHECK, EXPLORE, STORY

BROKEN = COUNTER.replace("self.count <= self.limit", "self.count != 2")


class Editor:
    """An editor with some files open. It keeps the diagnostics of each, and what it was asked to show."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.diagnostics: dict[str, lsp.PublishDiagnosticsParams] = {}
        self.shown: list[lsp.ShowDocumentParams] = []
        self.versions: dict[str, int] = {}
        self.changed = asyncio.Event()

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        self.versions[name] = 1
        item = lsp.TextDocumentItem(self.uri(name), "python", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def edit(self, name: str, text: str) -> None:
        self.versions[name] += 1
        document = lsp.VersionedTextDocumentIdentifier(self.versions[name], self.uri(name))
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))

    def save(self, name: str, text: str) -> None:
        self.edit(name, text)
        (self.folder / name).write_text(text)
        self.client.text_document_did_save(lsp.DidSaveTextDocumentParams(self.document(name)))

    def document(self, name: str) -> lsp.TextDocumentIdentifier:
        return lsp.TextDocumentIdentifier(self.uri(name))

    async def found(self, name: str, condition: Callable[[list[lsp.Diagnostic]], bool]) -> list[lsp.Diagnostic]:
        """The diagnostics of the latest text of a file, once they satisfy a condition."""
        end = time.monotonic() + PATIENCE
        while True:
            self.changed.clear()
            last = self.diagnostics.get(self.uri(name))
            if last is not None and last.version == self.versions[name] and condition([*last.diagnostics]):
                return [*last.diagnostics]
            assert time.monotonic() < end, last
            await asyncio.wait_for(self.changed.wait(), PATIENCE)

    async def has(self, name: str, *parts: str) -> list[lsp.Diagnostic]:
        """The diagnostics of a file, once there is one with each of these parts, and no other one."""
        return await self.found(
            name, lambda all: len(all) == len(parts) and all_match(parts, [one.message for one in all])
        )

    async def lenses(self, name: str, part: str) -> dict[str, lsp.CodeLens]:
        """The code lenses of a file by title, once there is one with this part."""
        end = time.monotonic() + PATIENCE
        while True:
            found = await self.client.text_document_code_lens_async(lsp.CodeLensParams(self.document(name)))
            titles = {each.command.title: each for each in found or () if each.command is not None}
            if any(part in title for title in titles):
                return titles
            assert time.monotonic() < end, titles
            await asyncio.sleep(0.05)

    async def hover(self, name: str, text: str, part: str, word: str) -> str:
        """What is shown at a word of a line, once something is."""
        line = line_of(text, part) - 1
        position = lsp.Position(line, text.splitlines()[line].index(word))
        end = time.monotonic() + PATIENCE
        while True:
            found = await self.client.text_document_hover_async(lsp.HoverParams(self.document(name), position))
            if found is not None:
                assert isinstance(found.contents, lsp.MarkupContent)
                return found.contents.value
            assert time.monotonic() < end
            await asyncio.sleep(0.05)

    async def does(self, command: str, *arguments: Any) -> Any:
        return await self.client.workspace_execute_command_async(lsp.ExecuteCommandParams(command, [*arguments]))


def all_match(parts: tuple[str, ...], messages: list[str]) -> bool:
    return all(any(part in message for message in messages) for part in parts)


@asynccontextmanager
async def session(folder: Path, **options: Any) -> AsyncIterator[Editor]:
    """An editor, whose server must end as it is asked."""
    client: Any = LanguageClient("an editor", "1")
    editor = Editor(client, folder)

    def publish(given: lsp.PublishDiagnosticsParams) -> None:
        editor.diagnostics[given.uri] = given
        editor.changed.set()

    def show(given: lsp.ShowDocumentParams) -> lsp.ShowDocumentResult:
        editor.shown.append(given)
        return lsp.ShowDocumentResult(True)

    def refresh(_: None) -> None: ...

    client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(publish)
    client.feature(lsp.WINDOW_SHOW_DOCUMENT)(show)
    client.feature(lsp.WORKSPACE_CODE_LENS_REFRESH)(refresh)
    await client.start_io(*COMMAND, "lsp", "--stdio", env=environment())
    try:
        can = lsp.ClientCapabilities(
            window=lsp.WindowClientCapabilities(show_document=lsp.ShowDocumentClientCapabilities(True)),
            workspace=lsp.WorkspaceClientCapabilities(code_lens=lsp.CodeLensWorkspaceClientCapabilities(True)),
        )
        await client.initialize_async(lsp.InitializeParams(can, initialization_options=options))
        client.initialized(lsp.InitializedParams())
        yield editor
        await client.shutdown_async(None)
        client.exit(None)
        process: Any = client._server
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    finally:
        if client._server is not None and client._server.returncode is None:
            client._server.kill()
        await client.stop()


@pytest.fixture
def editor(tmp_path: Path) -> AbstractAsyncContextManager[Editor]:
    return session(tmp_path)


async def test_a_bug_that_is_planted_is_found_at_its_line_and_goes_with_it(editor: Editor) -> None:
    editor.open("counter.py", COUNTER)
    await editor.has("counter.py", "jump is not enabled")
    editor.save("counter.py", BROKEN)
    violated = "within is violated after 2 steps"
    found = await editor.has("counter.py", f"small: {violated}", f"as declared: {violated}", f"large: {violated}")
    for one in found:
        line = BROKEN.splitlines()[one.range.start.line]
        assert line[one.range.start.character : one.range.end.character] == "within"
        assert one.severity is lsp.DiagnosticSeverity.Error and one.source == "fencepost"
        steps = [(each.message, each.location.range.start.line + 1) for each in one.related_information or ()]
        tick = line_of(BROKEN, "def tick")
        assert steps == [("step 1: tick", tick), ("step 2: tick", tick)]
    editor.save("counter.py", COUNTER)
    await editor.has("counter.py", "jump is not enabled")


async def test_errors_are_diagnostics_and_never_end_the_server(editor: Editor) -> None:
    editor.open("counter.py", COUNTER.replace("def tick(self)", "def tick(self"))
    (found,) = await editor.has("counter.py", "invalid syntax")
    assert found.range.start.line + 1 == line_of(COUNTER, "def tick")
    for text, message in (
        (f"import nothing_of_this_name\n{COUNTER}", "it imports nothing_of_this_name"),
        (COUNTER.replace("self.count += 1", "import os; os._exit(3)"), "was ended by the author's Python"),
        (COUNTER.replace("self.count += 1", "import os; os.kill(os.getpid(), 9)"), "was killed by SIGKILL"),
        (f"import sys\nsys.exit(5)\n{COUNTER}", "it exits Python"),
        (COUNTER.replace("self.count += 1", "1 // 0"), "ZeroDivisionError"),
    ):
        editor.save("counter.py", text)
        await editor.found("counter.py", lambda all, part=message: part in "".join(o.message for o in all))  # type: ignore[misc]
    editor.save("counter.py", COUNTER)
    await editor.has("counter.py", "jump is not enabled")


async def test_a_limit_is_said_in_the_message(tmp_path: Path) -> None:
    async with session(tmp_path, seconds=0.5) as editor:
        editor.open("counter.py", ENDLESS)
        (found,) = await editor.has("counter.py", "within 0.5 s")
        assert re.fullmatch(r"small: no violation in [\d,]+ states within 0\.5 s", found.message)
        assert found.severity is lsp.DiagnosticSeverity.Information


async def test_an_edit_ends_the_check_of_the_text_before_it(tmp_path: Path) -> None:
    async with session(tmp_path, seconds=3600) as editor:
        editor.open("counter.py", ENDLESS)  # whose check would take an hour
        await editor.lenses("counter.py", "Checking small")
        await asyncio.sleep(1.2)  # longer than until the first report of progress
        assert "Checking small ..." in await editor.lenses("counter.py", "Check")
        editor.save("counter.py", COUNTER)
        await editor.has("counter.py", "jump is not enabled")


async def test_text_that_is_not_saved_is_checked_if_the_author_asks_for_it(tmp_path: Path) -> None:
    async with session(tmp_path, checkOn="change") as editor:
        editor.open("counter.py", COUNTER)
        await editor.has("counter.py", "jump is not enabled")
        editor.edit("counter.py", BROKEN)
        await editor.found("counter.py", lambda all: "within is violated" in "".join(one.message for one in all))


async def test_python_that_is_not_saved_is_not_run(editor: Editor, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    editor.open("counter.py", COUNTER)
    await editor.has("counter.py", "jump is not enabled")
    editor.edit("counter.py", f"open({str(mark)!r}, 'w')\n{COUNTER}")
    editor.open("other.py", BROKEN)
    await editor.found("other.py", lambda all: bool(all))
    assert not mark.exists()
    await editor.does(CHECK, editor.uri("counter.py"))
    await editor.has("counter.py", "jump is not enabled")
    assert mark.exists()


@pytest.mark.parametrize("text", ["# import fencepost\n\n@action\ndef f(): ...\n", "import fencepost\n# @action\n"])
async def test_a_file_that_declares_no_protocol_is_never_run(editor: Editor, tmp_path: Path, text: str) -> None:
    mark = tmp_path / "mark"
    editor.open("plain.py", f"{text}open({str(mark)!r}, 'w')\n")
    await editor.does(CHECK, editor.uri("plain.py"))
    editor.open("counter.py", COUNTER)
    await editor.has("counter.py", "jump is not enabled")
    assert not mark.exists()
    assert editor.uri("plain.py") not in editor.diagnostics


async def test_hover_shows_values_and_where_actions_are_enabled(editor: Editor) -> None:
    editor.open("counter.py", COUNTER)
    shown = await editor.hover("counter.py", COUNTER, "def tick", "tick")
    assert "**tick** is enabled in 2 of 3 states" in shown and "*small, in all 3 states*" in shown
    shown = await editor.hover("counter.py", COUNTER, "return self.count", "count <=")
    assert "- `0`: 1 state\n- `1`: 1 state\n- `2`: 1 state" in shown


async def test_hover_after_lines_were_added(editor: Editor) -> None:
    editor.open("counter.py", COUNTER)
    await editor.hover("counter.py", COUNTER, "def tick", "tick")
    longer = f"# one more line\n\n{COUNTER}"
    editor.edit("counter.py", longer)  # and not saved
    assert "**tick** is enabled in 2 of 3" in await editor.hover("counter.py", longer, "def tick", "tick")
    titles = await editor.lenses("counter.py", "enabled in 2")
    assert titles["enabled in 2 of 3 states"].range.start.line + 1 == line_of(longer, "def tick")


async def test_an_expression_that_takes_too_long_does_not_block(editor: Editor) -> None:
    slow = COUNTER.replace("return self.count <= self.limit", "return self.count < 10 or self.slow()")
    slow += "\n    def slow(self) -> bool:\n        while True:\n            pass\n"
    editor.open("counter.py", slow)
    await editor.has("counter.py", "jump is not enabled")
    said = await editor.hover("counter.py", slow, "self.count < 10", "slow()")
    assert said == "it was not evaluated within 3 s, and is not until the next check"
    await editor.does(CHECK, editor.uri("counter.py"))
    assert "**tick**" in await editor.hover("counter.py", slow, "def tick", "tick")


async def test_columns_are_in_the_units_of_the_editor(editor: Editor) -> None:
    text = COUNTER.replace("self.count += 1", 'self.count += len("🚧🚧") // self.count')
    editor.open("counter.py", text)
    (found, *_) = await editor.found("counter.py", lambda all: len(all) == 3)
    line = text.splitlines()[found.range.start.line].encode("utf-16-le")
    marked = line[2 * found.range.start.character : 2 * found.range.end.character].decode("utf-16-le")
    assert marked == 'len("🚧🚧") // self.count'


async def test_code_lenses_check_explore_and_show_behaviours(editor: Editor) -> None:
    editor.open("counter.py", BROKEN)
    titles = await editor.lenses("counter.py", "enabled in 2")
    own = line_of(BROKEN, "class Counter")
    assert {"Check", "Explore", "as declared: violates within, 3 states"} <= {
        title for title, each in titles.items() if each.range.start.line + 1 in (own, line_of(BROKEN, '"large"'))
    }
    lens = titles["violated in small: show the behaviour"]
    assert lens.range.start.line + 1 == line_of(BROKEN, "def within")
    assert lens.command is not None and lens.command.command == STORY
    told = await editor.does(lens.command.command, *(lens.command.arguments or ()))
    assert told.startswith("VIOLATED  within") and "tick" in told
    (shown,) = editor.shown
    assert Path(re.sub("^file://", "", shown.uri)).read_text() == told and not shown.external


async def test_the_explorer_opens_and_ends_with_the_server(tmp_path: Path) -> None:
    async with session(tmp_path) as editor:
        editor.open("counter.py", COUNTER)
        await editor.lenses("counter.py", "large: holds")
        address = await editor.does(EXPLORE, editor.uri("counter.py"), "large")
        assert address.startswith("http://127.0.0.1:")
        assert [(each.uri, each.external) for each in editor.shown] == [(address, True)]
        assert await editor.does(EXPLORE, editor.uri("counter.py"), "large") == address
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(address).read())
        assert b"ounter" in page
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address)


async def test_a_specification_is_checked_as_it_is_typed(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "Counter.cfg").write_text(CONFIGURATION)
    editor.open("Counter.tla", SPECIFICATION)
    assert "Counter.cfg: holds, 4 states" in await editor.lenses("Counter.tla", "Counter.cfg: holds")
    broken = SPECIFICATION.replace("count <= Limit", "count < Limit")
    editor.edit("Counter.tla", broken)
    (found,) = await editor.has("Counter.tla", "Counter.cfg: Within is violated after 3 steps")
    assert found.range.start == lsp.Position(line_of(broken, "Within ==") - 1, 0)
    assert "**Tick** is enabled in 3 of 4" in await editor.hover("Counter.tla", broken, "Tick ==", "Tick")
    editor.edit("Counter.tla", SPECIFICATION.replace("count + 1", "count + )"))
    (found,) = await editor.found("Counter.tla", lambda all: len(all) == 1 and "violated" not in all[0].message)
    assert found.range.start.line + 1 == line_of(SPECIFICATION, "count + 1")


async def test_a_configuration_that_is_saved_is_taken(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "Counter.cfg").write_text(CONFIGURATION)
    editor.open("Counter.tla", SPECIFICATION)
    await editor.lenses("Counter.tla", "Counter.cfg: holds, 4 states")
    (tmp_path / "Counter.cfg").write_text(CONFIGURATION.replace("Limit = 3", "Limit = 7"))
    change = lsp.FileEvent(editor.uri("Counter.cfg"), lsp.FileChangeType.Changed)
    editor.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([change]))
    await editor.lenses("Counter.tla", "Counter.cfg: holds, 8 states")


async def test_a_file_of_several_protocols_has_lenses_at_each(editor: Editor) -> None:
    text = COUNTER + COUNTER.partition("\n\n")[2].replace("class Counter", "class Other")
    editor.open("counter.py", text)
    titles = await editor.lenses("counter.py", "Other, large: holds")
    assert "Counter, small: holds, 3 states" in titles


async def test_a_closed_file_has_no_diagnostics(editor: Editor) -> None:
    editor.open("counter.py", BROKEN)
    await editor.found("counter.py", lambda all: len(all) > 0)
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(editor.document("counter.py")))
    while editor.diagnostics[editor.uri("counter.py")].diagnostics:
        editor.changed.clear()
        await asyncio.wait_for(editor.changed.wait(), PATIENCE)
    lenses = lsp.CodeLensParams(editor.document("counter.py"))
    assert not await editor.client.text_document_code_lens_async(lenses)


async def test_many_open_files_are_checked_in_turn(editor: Editor) -> None:
    names = [f"counter_{n}.py" for n in range(7)]
    for name in names:
        editor.open(name, COUNTER)
    for name in names:
        await editor.has(name, "jump is not enabled")
    shown = await editor.hover(names[-1], COUNTER, "def tick", "tick")
    assert "**tick**" in shown


def test_messages_that_are_none_are_told_in_a_line_each() -> None:
    bodies = [b"[]", b'{"a": 1}', b"nonsense", b'{"jsonrpc": "2.0", "method": "exit", "id": {}}']
    process = subprocess.run(
        [*COMMAND, "lsp"],
        input=b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies),
        capture_output=True,
        env=environment(),
    )
    told = process.stderr.decode().splitlines()
    none = "fencepost lsp: Unable to handle message: JsonRpcInvalidRequest: it is no object with a member jsonrpc"
    assert told[:2] == [none, none]
    assert told[2].startswith("fencepost lsp: Unable to handle message: JSONDecodeError: Expecting value")
    assert all(line.startswith("fencepost lsp: ") for line in told)


def test_a_terminal_is_no_editor() -> None:
    main, other = os.openpty()
    try:
        process = subprocess.run(
            [sys.executable, "-m", "fencepost", "lsp"], stdin=other, capture_output=True, text=True, env=environment()
        )
    finally:
        os.close(main)
        os.close(other)
    assert process.returncode == 151
    assert "an editor starts this command" in process.stderr
