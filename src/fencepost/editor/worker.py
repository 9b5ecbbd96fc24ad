"""The process that checks a file once: ``python -m fencepost.editor.worker``.

It reads a request, a line of JSON, from standard input, and writes events, one line of JSON each, to standard output:
``loaded`` or ``failed``; for each configuration ``checking``, ``progress`` and ``checked``, or ``skipped``; ``done``;
and, for an editor, ``sampled``. Then it answers questions until standard input ends, which ends it at any time.
"""

from __future__ import annotations

import json
import linecache
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from fencepost.api.check import check
from fencepost.api.result import Result
from fencepost.checker.engines.interface import Progress
from fencepost.editor import findings, places
from fencepost.editor.cases import Case, cases, is_as_expected
from fencepost.editor.findings import Diagnostic
from fencepost.editor.hover import hover
from fencepost.editor.space import Space
from fencepost.errors import (
    HOLDS,
    NOT_AS_EXPECTED,
    NOT_COMPLETE,
    SYSTEM_FAILED,
    FencepostError,
    NotAProtocol,
    OptionError,
    options_spelled,
)
from fencepost.files import regular
from fencepost.language import loading
from fencepost.language.protocol import Protocol
from fencepost.language.seam import language_of
from fencepost.language.source import is_own_module
from fencepost.semantics.authors import authors_frame, is_authors

EVERY = 0.5
"""Seconds between two reports of progress."""


@dataclass(frozen=True)
class Request:
    """What to check. ``argument``: the file, perhaps with a class. ``text``: what an editor has not saved of it.

    ``seconds`` and ``memory`` (bytes) limit each check. ``known``: sizes of configurations by title. ``sample``: look
    at states for an editor's questions afterwards. ``width``: columns of stories.
    """

    argument: str
    config: str | None = None
    definitions: Sequence[str] = ()
    libraries: Sequence[str] = ()
    text: str | None = None
    seconds: float = 10.0
    memory: int = 1 << 30
    known: Mapping[str, int] = field(default_factory=dict)
    sample: bool = False
    width: int = 80

    @property
    def file(self) -> str:
        """The file, without a class."""
        return loading.split(self.argument)[0]


class Worker:
    """Does one request. ``write`` takes each event."""

    def __init__(self, request: Request, write: Any) -> None:
        self.request = request
        self.write = write
        self.file = request.file
        self.text = ""
        self.cases: list[tuple[str, Case]] = []
        self.results: list[tuple[Case, Result]] = []
        self.spaces: dict[str, tuple[str, Space]] = {}
        self.missing = ""

    def run(self) -> None:
        """Load the file, check its configurations, and look at states."""
        try:
            with _stopped_after(self.request.seconds, self._too_late):
                self._read()
                self.cases = self._cases(self._found())
        except (FencepostError, RecursionError, MemoryError) as error:
            code = getattr(error, "exit_code", SYSTEM_FAILED)
            found = [findings.plain(findings.of_failure(error, self.file))]
            self.write("failed", diagnostics=found, exit_code=code, files=self._files())
            return
        self.write(
            "loaded",
            protocols=sorted({name for name, _ in self.cases}),
            declarations=self._declarations(),
            cases=[self._described(name, case) for name, case in self.cases],
            missing=self.missing,
            files=self._files(),
            notices=[n for _, case in self.cases[:1] for n in language_of(case.model).notices(case.model)],
        )
        self._check_all()
        self.write("done", diagnostics=[findings.plain(each) for each in findings.never_taken(self.results, self.file)])
        if self.request.sample:
            self._sample()

    # -- loading -------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read the file once, so that all that is said about it is about one text."""
        if self.request.text is not None:
            content = self.request.text.encode()
        else:
            with loading.missing_is_an_error(self.file):
                content = regular.content(self.file)
        regular.use_instead(self.file, content)
        self.text = content.decode(errors="replace")
        linecache.cache[self.file] = (len(content), None, self.text.splitlines(keepends=True), self.file)

    def _found(self) -> list[tuple[str, Any]]:
        """The protocols of the file with their names. An editor gets all of them."""
        argument = self.request.argument
        if argument.endswith(loading.SPECIFICATION):
            found = loading.find(argument, self.request.libraries)
            return [(found.name, found)]
        if not self.request.sample or argument != self.file:
            protocol = loading.find(argument, self.request.libraries)
            assert isinstance(protocol, type)
            return [(protocol.__name__, protocol)]
        every = loading.protocols_in(loading.from_file(argument))
        return [(name, one) for name, one in every.items() if one.declared("action")]

    def _cases(self, found: Sequence[tuple[str, Any]]) -> list[tuple[str, Case]]:
        request, made = self.request, list[tuple[str, Case]]()
        for name, one in found:
            if isinstance(one, type) and issubclass(one, Protocol) and not one.declared("action"):
                raise NotAProtocol(
                    f"{self.file} has no actions, so there is nothing to check: mark its steps with @action"
                )
            try:
                made += [(name, case) for case in cases(one, request.config, request.definitions, request.known)]
            except OptionError:
                own = os.path.splitext(self.file)[0] + ".cfg"
                if not request.sample or isinstance(one, type) or os.path.exists(own):
                    raise
                self.missing = os.path.basename(own)  # it may be a module of others
        return made

    def _too_late(self) -> None:
        frame = authors_frame(sys._current_frames().get(threading.main_thread().ident or 0))
        while frame is not None and frame.f_code.co_filename != self.file and is_authors(frame.f_code.co_filename):
            frame = frame.f_back
        here = frame is not None and frame.f_code.co_filename == self.file
        place = places.Place(os.path.abspath(self.file), frame.f_lineno if frame is not None and here else 1)
        message = f"it had not been loaded after {self.request.seconds:g} s, and was stopped here"
        late = Diagnostic(place, message, code="load")
        self.write("failed", diagnostics=[findings.plain(late)], exit_code=NOT_COMPLETE, files=self._files())

    def _files(self) -> list[str]:
        """The author's files that have been read."""
        found = {self.file}
        for _, case in self.cases:
            specification = getattr(getattr(case.model, "setup", None), "specification", None)
            found |= {*getattr(specification, "files", ())}
        if self.file.endswith(loading.SPECIFICATION):
            found.add(self.request.config or os.path.splitext(self.file)[0] + ".cfg")
        else:
            modules = [each for name, each in sys.modules.items() if name != "__main__" and is_own_module(each, ())]
            found |= {file for each in modules if (file := getattr(each, "__file__", None))}
        return sorted({os.path.abspath(each) for each in found})

    def _declarations(self) -> list[dict[str, Any]]:
        """The protocols, actions and properties of the file with their places."""
        made, seen = list[dict[str, Any]](), set[str]()
        for name, case in self.cases:
            if name in seen:
                continue
            seen.add(name)
            at = findings.protocol_place(case.model, self.file)
            made.append({"kind": "protocol", "name": name, "protocol": name, **vars(at)})
            for declared in language_of(case.model).declarations(case.model).values():
                place = places.of_declaration(declared, case.model)
                if place is not None and place.file == os.path.abspath(self.file):
                    made.append({"kind": declared.kind, "name": declared.name, "protocol": name, **vars(place)})
        return made

    def _described(self, name: str, case: Case) -> dict[str, Any]:
        place = findings.case_place(case, self.file)
        return {
            "protocol": name,
            "title": self._title(name, case),
            "configuration": case.name,
            "constants": case.constants,
            "expect": case.expect,
            "place": None if place is None else vars(place),
        }

    def _title(self, name: str, case: Case) -> str:
        return case.title if len({each for each, _ in self.cases}) == 1 else f"{name}, {case.title}"

    # -- checking ------------------------------------------------------------------------------------------------------

    def _check_all(self) -> None:
        """Check the cases from the smallest. After one that reaches a limit, larger ones are left out."""
        limited: set[str] = set()
        for name, case in self.cases:
            if name in limited:
                self.write("skipped", title=self._title(name, case), why="a smaller one reached its limit")
                continue
            self.write("checking", title=self._title(name, case))
            try:
                result = self._checked(case)
            except FencepostError as error:
                found = [findings.plain(findings.of_failure(error, self.file))]
                self.write("failed", title=self._title(name, case), diagnostics=found, exit_code=error.exit_code)
                limited.add(name)
                continue
            if result.limit is not None and not result.violations:
                limited.add(name)
            self.results.append((case, result))
            self._report(name, case, result)

    def _checked(self, case: Case) -> Result:
        said = time.monotonic()

        def report(progress: Progress) -> None:
            nonlocal said
            if time.monotonic() - said >= EVERY:
                said = time.monotonic()
                self.write("progress", distinct_states=progress.distinct, doing=progress.doing)

        more: dict[str, Any] = {"deadlock": True} if case.expect == "deadlock" else {}
        return check(
            case.model, timeout=self.request.seconds, max_memory=self.request.memory, workers=1, report=report, **more
        )

    def _report(self, name: str, case: Case, result: Result) -> None:
        violated = [each.name or each.kind for each in result.violations]
        as_expected = is_as_expected(case.expect, result.verdict, violated, result.complete)
        first = result.violation
        trace = first.trace if first is not None else result.error_trace
        titled = Case(self._title(name, case), case.model, case.expect)
        found = findings.of_result(titled, result, self.file, as_expected, self.request.seconds)
        self.write(
            "checked",
            protocol=name,
            title=titled.title,
            configuration=case.name,
            expect=case.expect,
            verdict=result.verdict,
            as_expected=as_expected,
            exit_code=self._exit_code(result, as_expected),
            complete=result.complete,
            limit=result.limit,
            distinct_states=result.distinct_states,
            seconds=round(result.seconds, 3),
            violated=violated,
            steps=None if trace is None else len(trace.steps),
            actions={each.name: each.taken for each in result.actions},
            told=findings.told(result, self.request.width),
            diagnostics=[findings.plain(each) for each in found],
        )

    def _exit_code(self, result: Result, as_expected: bool | None) -> int:
        if as_expected is None or result.error is not None or result.failure is not None or result.violations:
            return HOLDS if as_expected else result.exit_code
        return HOLDS if as_expected else NOT_AS_EXPECTED

    # -- questions -----------------------------------------------------------------------------------------------------

    def _sample(self) -> None:
        for name, case in self.cases:
            if name in self.spaces:
                continue
            try:
                space = Space(case.model, self.file)
                space.explore()
            except FencepostError:
                continue
            self.spaces[name] = self._title(name, case), space
            self.write(
                "sampled",
                protocol=name,
                title=self._title(name, case),
                states=len(space.states),
                complete=space.complete,
                enabled={each: one.states for each, one in space.enabled.items()},
                false={each: one.states for each, one in space.false.items()},
            )

    def answer(self, question: Mapping[str, Any]) -> None:
        """Answer what to show at a place of the file."""
        found = None
        for title, space in self.spaces.values():
            found = found or hover(space, title, self.text, question["line"], question["column"])
        text, place = found or (None, None)
        self.write("answer", id=question["id"], text=text, place=None if place is None else vars(place))


class _stopped_after:
    """Ends this process after some time, unless the body ends before. ``late`` is called first."""

    def __init__(self, seconds: float, late: Any) -> None:
        self._timer = threading.Timer(seconds, self._end, (late,))
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _end(self, late: Any) -> None:
        try:
            late()
        finally:
            os._exit(1)


def _of_editors(option: str) -> str:
    """How an editor spells an option."""
    return "the option memory" if option == "max_memory" else option


def _of_watch(option: str) -> str:
    """How ``fencepost watch`` spells an option."""
    return f"--{option.replace('_', '-')}"


def main() -> None:
    """Do the request on standard input."""
    sys.dont_write_bytecode = True  # Python takes it for up to date when a file is saved twice in one second
    lines = sys.stdin.buffer
    request = Request(**json.loads(lines.readline()))
    events: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what the author's Python prints is no event
    lock = threading.Lock()

    def write(event: str, **more: Any) -> None:
        with lock:
            events.write(json.dumps({"event": event, **more}).encode() + b"\n")

    questions: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen() -> None:
        for line in lines:
            questions.put(json.loads(line))
        os._exit(0)  # the process that asked is gone

    threading.Thread(target=listen, daemon=True).start()
    worker = Worker(request, write)
    try:
        with options_spelled(_of_editors if request.sample else _of_watch):
            worker.run()
        write("ready")
        while request.sample:
            worker.answer(questions.get())
    except BrokenPipeError:
        pass  # the process that asked is gone
    except Exception as error:
        write("fault", message=f"a fault in Fencepost: {type(error).__name__}: {error}", trace=traceback.format_exc())
    finally:
        os._exit(0)  # the thread that listens never ends


if __name__ == "__main__":
    main()
