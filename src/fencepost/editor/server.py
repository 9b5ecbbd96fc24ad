"""``fencepost lsp``: a server of the Language Server Protocol (LSP 3.17) over standard input and output.

It runs none of the author's code: each check is a :class:`fencepost.editor.process.Job`. An edit ends the check of the
text before it. At most :data:`RUNNING` checks run at a time, and :data:`KEPT` are kept to answer questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, BinaryIO

from lsprotocol import types as lsp
from pygls import uris
from pygls.exceptions import JsonRpcInvalidRequest
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.workspace import TextDocument

from fencepost.editor.process import Event, Job
from fencepost.editor.watch import verdict
from fencepost.editor.worker import Request
from fencepost.text.numbers import plural
from fencepost.version import VERSION

CHECK, STORY, EXPLORE = "fencepost.check", "fencepost.story", "fencepost.explore"
"""The commands. Their arguments: the URI of a document; for the last two the title of a configuration too."""

RUNNING = 2
"""The most checks at a time."""

KEPT = 4
"""The most finished checks that are kept to answer questions."""

PAUSE = 0.4
"""Seconds after an edit in which there is no other, before the text is checked."""

PATIENCE = 3.0
"""Seconds for an answer. A check that has none is ended."""

_SAID = 500
"""The most characters of a part of a line on standard error."""

_IMPORTS = re.compile(r"^\s*(from|import)\s+fencepost\b", re.MULTILINE)
_DECLARES = re.compile(r"^\s*@(\w+\.)?(action|invariant|step_invariant|sometimes)\b", re.MULTILINE)
_SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "information": lsp.DiagnosticSeverity.Information,
}


_WHILE_OPEN = """
import os, runpy, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
sys.argv[0] = "fencepost"
runpy.run_module("fencepost", run_name="__main__", alter_sys=True)
"""
"""Runs the command line until standard input ends."""


class Document:
    """What is known of an open file: the last check of it, and what that has found so far."""

    def __init__(self, server: Server, uri: str) -> None:
        self.server = server
        self.uri = uri
        self.path = uris.to_fs_path(uri) or ""
        self.job: Job | None = None
        self.is_running = False
        self.is_ready = False
        self.timer: asyncio.TimerHandle | None = None
        self.sizes: dict[str, int] = {}
        self.files: set[str] = {self.path}
        self.questions: dict[int, asyncio.Future[Event]] = {}
        self.round = 0
        self._begin("")

    def _begin(self, text: str) -> None:
        """Forget what was found of another text."""
        self.text = text.splitlines()
        self.loaded: Event = {"declarations": [], "cases": [], "protocols": [], "missing": ""}
        self.checked: dict[str, Event] = {}
        self.sampled: dict[str, Event] = {}
        self.found: list[Event] = []
        self.doing = ""
        self.version: int | None = None

    # -- checking ------------------------------------------------------------------------------------------------------

    @property
    def is_specification(self) -> bool:
        """Whether it is TLA+."""
        return self.path.endswith(".tla")

    def is_protocol(self, text: str) -> bool:
        """Whether a text may be checked. A Python file is run then, so it must be one that declares a protocol."""
        python = self.path.endswith(".py") and _IMPORTS.search(text) and _DECLARES.search(text)
        return self.is_specification or bool(python)

    def stop(self) -> None:
        """End the check, if there is one, and answer open questions with nothing."""
        if self.timer is not None:
            self.timer.cancel()
        self.round += 1
        if self.job is not None:
            self.job.end()
        for question in self.questions.values():
            if not question.done():
                question.set_result({"text": None})
        self.questions.clear()
        self.job, self.is_running, self.is_ready, self.timer = None, False, False, None

    def start(self) -> None:
        """Check the text as it is now."""
        document = self.server.workspace.get_text_document(self.uri)
        self._begin(document.source)
        self.version = document.version
        loop, number = asyncio.get_running_loop(), self.round
        request = Request(
            self.path,
            libraries=self.server.libraries,
            text=document.source,
            seconds=self.server.seconds,
            memory=self.server.memory,
            known=self.sizes,
            sample=True,
        )

        def heard(event: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self._hear, number, event)

        self.is_running = True
        self.job = Job(request, heard)

    def _hear(self, number: int, event: Event) -> None:
        if number != self.round:  # an event of a check that was ended
            return
        kind = event["event"]
        if kind == "answer":
            question = self.questions.pop(event["id"], None)
            if question is not None and not question.done():
                question.set_result(event)
            return
        self.files |= {*event.get("files", ())}
        self.found += event.get("diagnostics", ())
        if kind == "loaded":
            self.loaded = event
            self.found += [self._said(each) for each in event["notices"]]
        elif kind == "checked":
            self.checked[event["title"]] = event
            self.sizes[event["title"]] = event["distinct_states"]
        elif kind == "sampled":
            self.sampled[event["protocol"]] = event
        elif kind == "fault" or (kind == "ended" and event["why"]):
            self.found.append(self._said(event.get("message") or event["why"]))
        if kind != "progress":
            self.doing = event["title"] if kind == "checking" else ""
        if kind in ("ready", "ended", "fault"):
            self.is_running, self.is_ready = False, kind == "ready"
            self.server.one_is_over(self)
        if kind in ("failed", "checked", "done", "fault") or (kind == "ended" and event["why"]):
            self.publish()
        if kind != "progress":
            self.server.refresh()

    def _said(self, message: str) -> Event:
        """A diagnostic for the whole file."""
        place = next(iter(self.loaded["declarations"]), {"line": 1, "column": 1, "end": 0})
        said = {"message": message, "severity": "information", "code": "note", "about": [], "configuration": ""}
        return {**place, **said}

    # -- in the words of the editor ------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Give the editor the diagnostics."""
        document = self.server.workspace.get_text_document(self.uri)
        moved = self._moved(document)
        made = [self._diagnostic(document, each, moved) for each in self.found]
        self.server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(self.uri, made, self.version))

    def _diagnostic(self, document: TextDocument, found: Event, moved: Mapping[int, int]) -> lsp.Diagnostic:
        about = [
            lsp.DiagnosticRelatedInformation(
                lsp.Location(uris.from_fs_path(each["file"]) or "", self._range(document, each, moved)), each["message"]
            )
            for each in found["about"]
        ]
        return lsp.Diagnostic(
            self._range(document, found, moved),
            found["message"],
            _SEVERITIES[found["severity"]],
            code=found["code"],
            source="fencepost",
            related_information=about,
        )

    def _range(self, document: TextDocument, place: Mapping[str, Any], moved: Mapping[int, int]) -> lsp.Range:
        line = place["line"] - 1
        is_here = place.get("file", self.path) == os.path.abspath(self.path)
        if not is_here:
            return lsp.Range(lsp.Position(line, place["column"] - 1), lsp.Position(line, place["end"] or 1000))
        line = min(moved.get(line, line), max(0, len(document.lines) - 1))
        length = len(document.lines[line].rstrip("\r\n")) if document.lines else 0
        begin = min(place["column"] - 1, length)
        end = max(begin, min(place["end"] or length, length))
        codec, lines = document.position_codec, document.lines
        return codec.range_to_client_units(lines, lsp.Range(lsp.Position(line, begin), lsp.Position(line, end)))

    def _moved(self, document: TextDocument, back: bool = False) -> dict[int, int]:
        """Where the lines of the checked text are now, from 0. ``back``: where the lines of now were then."""
        now = [line.rstrip("\r\n") for line in document.lines]
        if now == self.text:
            return {number: number for number in range(len(now))}
        blocks = difflib.SequenceMatcher(None, self.text, now, autojunk=False).get_matching_blocks()
        pairs = [(a + n, b + n) for a, b, size in blocks for n in range(size)]
        return {b: a for a, b in pairs} if back else dict(pairs)

    async def hover(self, position: lsp.Position) -> lsp.Hover | None:
        """What to show at a position."""
        document = self.server.workspace.get_text_document(self.uri)
        at = document.position_codec.position_from_client_units(document.lines, position)
        line = self._moved(document, back=True).get(at.line)
        if self.job is None or not self.is_ready or line is None:
            return None
        self.server.questions += 1
        number = self.server.questions
        answer = self.questions[number] = asyncio.get_running_loop().create_future()
        self.job.send({"id": number, "line": line + 1, "column": at.character + 1})
        try:
            found = await asyncio.wait_for(answer, PATIENCE)
        except TimeoutError:
            self.stop()
            text = f"it was not evaluated within {PATIENCE:g} s, and is not until the next check"
            return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text))
        if found["text"] is None:
            return None
        place = found["place"]
        where = None if place is None else self._range(document, place, self._moved(document))
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, found["text"]), where)

    def lenses(self) -> list[lsp.CodeLens]:
        """Commands and counts above the lines that they are about."""
        document = self.server.workspace.get_text_document(self.uri)
        moved, made = self._moved(document), list[lsp.CodeLens]()

        def add(place: Mapping[str, Any], title: str, command: str, *arguments: Any) -> None:
            start = self._range(document, place, moved).start
            made.append(lsp.CodeLens(lsp.Range(start, start), lsp.Command(title, command, arguments=[*arguments])))

        if self.loaded["missing"]:
            missing = f"{self.loaded['missing']} is not beside it, so there is nothing to check"
            add({"line": 1, "column": 1, "end": 0}, missing, "")
        for each in self.loaded["declarations"]:
            kind, name, protocol = each["kind"], each["name"], each["protocol"]
            own = [case for case in self.loaded["cases"] if case["protocol"] == protocol]
            if kind == "protocol":
                add(each, f"Checking {self.doing} ..." if self.doing else "Check", CHECK, self.uri)
                for case in own[:1]:
                    add(each, "Explore", EXPLORE, self.uri, case["title"])
                for case in own:
                    if case["place"] is None and case["title"] in self.checked:
                        add(each, self._verdict(case["title"]), STORY, self.uri, case["title"])
            elif kind == "action" and protocol in self.sampled:
                sampled = self.sampled[protocol]
                of = plural(sampled["states"], "state")
                first = "" if sampled["complete"] else "the first "
                add(each, f"enabled in {sampled['enabled'].get(name, 0):,} of {first}{of}", "")
            else:
                for title in [t for t, one in self.checked.items() if name in one["violated"]]:
                    if self.checked[title]["protocol"] == protocol and self.checked[title]["steps"] is not None:
                        add(each, f"violated in {title}: show the behaviour", STORY, self.uri, title)
        for case in self.loaded["cases"]:
            if case["place"] is not None:
                if case["title"] in self.checked:
                    add(case["place"], self._verdict(case["title"]), STORY, self.uri, case["title"])
                add(case["place"], "Explore", EXPLORE, self.uri, case["title"])
        return made

    def _verdict(self, title: str) -> str:
        one = self.checked[title]
        return f"{title}: {verdict(one)}, {plural(one['distinct_states'], 'state')}"

    def words(self, title: str) -> list[str]:
        """The words that give a configuration on the command line."""
        case = next((each for each in self.loaded["cases"] if each["title"] == title), None)
        several = len(self.loaded["protocols"]) > 1
        words = [f"{self.path}:{case['protocol']}" if several and case is not None else self.path]
        if case is not None and case["configuration"] is not None:
            words += ["--config", case["configuration"]]
        return words + [word for folder in self.server.libraries for word in ("--library", folder)]


class _Protocol(LanguageServerProtocol):
    """The protocol, which says of a message that is none what it lacks."""

    def handle_message(self, message: Any) -> None:
        """See :class:`pygls.protocol.JsonRPCProtocol`."""
        if not hasattr(message, "jsonrpc"):
            raise JsonRpcInvalidRequest("it is no object with a member jsonrpc")
        super().handle_message(message)


class _InOneLine(logging.Formatter):
    """Formats what pygls logs, without tracebacks: they are of pygls, and are about what the editor sent."""

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        said, *more = record.getMessage().splitlines() or [""]
        error = record.exc_info[1] if record.exc_info else None
        why = f"{type(error).__name__}: {error}" if error is not None else more[-1] if more else ""
        return f"fencepost lsp: {' '.join(said.split())[:_SAID]}" + f": {' '.join(why.split())[:_SAID]}" * bool(why)


class Server(LanguageServer):
    """The server. The editor's options, ``initializationOptions``: ``seconds`` and ``memory`` (MiB) of a check,
    ``checkOn`` (``save``, or ``change``: also before a save), and ``libraries``, folders with modules of TLA+.
    """

    def __init__(self) -> None:
        super().__init__("fencepost", VERSION, protocol_cls=_Protocol)
        self.seconds = 10.0
        self.memory = 2 << 30
        self.checks_changes = False
        self.libraries: list[str] = []
        self.documents: dict[str, Document] = {}
        self.waiting: list[Document] = []
        self.kept: list[Document] = []
        self.questions = 0
        self.explorers: dict[tuple[str, ...], tuple[subprocess.Popen[bytes], str]] = {}
        self.folder = tempfile.mkdtemp(prefix="fencepost-lsp-")

    def configure(self, options: Any) -> None:
        """Take the editor's options. What is of the wrong kind is left as it was."""
        given = options if isinstance(options, Mapping) else {}
        seconds, memory, libraries = (given.get(name) for name in ("seconds", "memory", "libraries"))
        if isinstance(seconds, int | float) and 0 < seconds <= 3600:
            self.seconds = float(seconds)
        if isinstance(memory, int) and 64 <= memory:
            self.memory = memory << 20
        if isinstance(libraries, list):
            self.libraries = [os.path.abspath(each) for each in libraries if isinstance(each, str)]
        self.checks_changes = given.get("checkOn") == "change"

    def check(self, uri: str, pause: float = 0.0) -> None:
        """Check a document after a pause, unless it is no protocol. A check of it that runs is ended at once."""
        document = self.documents.get(uri)
        if document is None:
            return
        document.stop()
        self.waiting = [each for each in self.waiting if each is not document]
        if document.is_protocol(self.workspace.get_text_document(uri).source):
            document.timer = asyncio.get_running_loop().call_later(pause, self._queue, document)
        elif document.version is not None:
            document._begin("")
            document.publish()
        self._start_next()

    def _queue(self, document: Document) -> None:
        self.waiting.append(document)
        self._start_next()

    def _start_next(self) -> None:
        while self.waiting and sum(each.is_running for each in self.documents.values()) < RUNNING:
            self.waiting.pop(0).start()

    def one_is_over(self, document: Document) -> None:
        """The check of a document is over, so another one may begin."""
        self.kept = [each for each in self.kept if each is not document and each.is_ready]
        self.kept += [document] if document.is_ready else []
        for each in self.kept[:-KEPT]:
            each.stop()
        self.kept = self.kept[-KEPT:]
        self._start_next()

    def saved(self, path: str) -> None:
        """A file was saved: check what is made of it."""
        for uri, document in self.documents.items():
            if os.path.abspath(path) in document.files:
                self.check(uri)

    def refresh(self) -> None:
        """Let the editor ask for code lenses again, if it can."""
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.code_lens is not None and workspace.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)

    def open(self, uri: str) -> None:
        """A document is open, and may be checked."""
        self.documents[uri] = Document(self, uri)
        self.check(uri)

    def close(self, uri: str) -> None:
        """A document is closed: nothing is said about it any more."""
        document = self.documents.pop(uri, None)
        if document is not None:
            document.stop()
            self.waiting = [each for each in self.waiting if each is not document]
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))
            self._start_next()

    def end(self) -> None:
        """End every check and every explorer."""
        for document in self.documents.values():
            document.stop()
        for process, _ in self.explorers.values():
            process.kill()
            process.wait()
        self.documents.clear()
        self.explorers.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- commands ------------------------------------------------------------------------------------------------------

    async def story(self, uri: str, title: str) -> str:
        """Show the verdict and the behaviour of a configuration. Returns them as text."""
        document = self.documents.get(uri)
        checked = document.checked.get(title) if document is not None else None
        if document is None or checked is None:
            return "it has not been checked yet"
        name = re.sub(r"[^\w.]+", "-", f"{os.path.basename(document.path)}-{title}")
        path = os.path.join(self.folder, f"{name}.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(checked["told"])
        await self._show(uris.from_fs_path(path) or "", external=False)
        return str(checked["told"])

    async def explore(self, uri: str, title: str) -> str:
        """Open the explorer. It is another process, which serves a page for this machine alone. Returns its address, or
        why there is none.
        """
        document = self.documents.get(uri)
        if document is None:
            return "it is not open"
        words = tuple(document.words(title))
        known = self.explorers.get(words)
        if known is None or known[0].poll() is not None:
            known = await self._explorer(words)
            self.explorers[words] = known
        process, address = known
        if process.poll() is None:
            await self._show(address, external=True)
        else:
            self.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Error, address))
        return address

    async def _explorer(self, words: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _WHILE_OPEN, "explore", "--no-open", *words],
            stdin=subprocess.PIPE,  # which this process never writes to, and which ends with it
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

        def first_line() -> bytes:
            assert process.stdout is not None and process.stderr is not None
            return process.stdout.readline() or (process.wait() and process.stderr.read(2000)) or b""

        try:
            said = (await asyncio.wait_for(asyncio.to_thread(first_line), 60.0)).decode(errors="replace")
        except TimeoutError:
            process.kill()
            process.wait()
            return process, "the explorer did not start within 60 s"
        address = re.search(r"http://\S+", said)
        return process, address[0] if address else said.strip().removeprefix("fencepost: ")

    async def _show(self, uri: str, external: bool) -> None:
        window = self.client_capabilities.window
        if window is not None and window.show_document is not None and window.show_document.support:
            shown = lsp.ShowDocumentParams(uri, external=external, take_focus=True)
            with contextlib.suppress(Exception):  # an editor that cannot show it
                await asyncio.wait_for(self.window_show_document_async(shown), 10.0)


def serve(stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Serve one editor until it ends the server or closes its end, or until SIGTERM or Ctrl-C."""
    server = Server()
    complaints = logging.StreamHandler()
    complaints.setFormatter(_InOneLine())
    logging.getLogger("pygls").addHandler(complaints)

    @server.feature(lsp.INITIALIZE)
    def initialize(params: lsp.InitializeParams) -> None:
        server.configure(params.initialization_options)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        server.open(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        document = server.documents.get(params.text_document.uri)
        # A Python file is run when it is checked, so half of a line is not, unless the author asks for that.
        if document is not None and (server.checks_changes or document.is_specification):
            server.check(document.uri, PAUSE)
        elif document is not None and document.is_running:
            document.stop()
            server.refresh()

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def did_save(params: lsp.DidSaveTextDocumentParams) -> None:
        server.saved(uris.to_fs_path(params.text_document.uri) or "")

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def did_change_files(params: lsp.DidChangeWatchedFilesParams) -> None:
        for change in params.changes:
            if change.uri not in server.documents:  # which the editor tells itself
                server.saved(uris.to_fs_path(change.uri) or "")

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        server.close(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        document = server.documents.get(params.text_document.uri)
        return None if document is None else await document.hover(params.position)

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    async def code_lens(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        document = server.documents.get(params.text_document.uri)
        return [] if document is None else document.lenses()

    @server.feature(lsp.SHUTDOWN)
    def shutdown(*_: Any) -> None:
        server.end()

    @server.command(CHECK)
    async def check(uri: str) -> None:
        server.check(uri)

    @server.command(STORY)
    async def story(uri: str, title: str) -> str:
        return await server.story(uri, title)

    @server.command(EXPLORE)
    async def explore(uri: str, title: str) -> str:
        return await server.explore(uri, title)

    def ended(*_: object) -> None:
        server.end()
        os._exit(0)  # the thread that reads standard input cannot be ended

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ended)
    try:
        server.start_io(stdin, stdout)
    finally:
        server.end()
