"""Drives a program in any language, by lines of JSON on its standard input and output."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any

from fencepost.errors import SystemFailure
from fencepost.language.values import Foreign, ModelValue, Record
from fencepost.testing.world import Waits

PATIENCE = 10.0
"""Seconds to wait for a line."""


class Refused(Exception):
    """The program refuses the call."""


class Failed(Exception):
    """The program has not answered as it must."""


class Program:
    """A system for :func:`fencepost.testing.drive`: ``Program(["node", "locks.js"], refuses=["releases"])``.

    Each behaviour has a process of its own. It reads a line of JSON for each call, ``{"action": "acquires",
    "parameters": {"c": "c1"}}``, and writes one after it: ``{"observed": {"holder": "c1"}}`` with what an adapter's
    ``observe()`` gives. The first line is ``{"begin": SEED}``, and is answered with what is observed then. A call that
    must be refused is answered with ``{"refused": true, "observed": ...}``, and one that failed with ``{"error":
    "why"}``.

    ``refuses`` and ``leaves_out``: as of an adapter. ``chooses``: the actions that are sent the chosen options too, as
    ``choices``. Only what runs in this process is simulated, so the program has a clock and randomness of its own,
    which it may take from ``seed``. A line is waited for ten seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        refuses: Collection[str] = (),
        leaves_out: Collection[str] = (),
        chooses: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        self.__name__ = os.path.basename(command[-1])
        self.command = list(command)
        self.refuses = dict.fromkeys(refuses, Refused)
        self.leaves_out = frozenset(leaves_out)
        self.chooses = frozenset(chooses)
        self.seed = seed

    def __call__(self) -> Running:
        """A process of the program. Raises :class:`fencepost.SystemFailure` on Windows, which cannot wait for a line
        for some time.
        """
        if sys.platform == "win32":
            raise SystemFailure("a Program needs Linux or macOS: on Windows, drive a class of Python, or use WSL")
        return Running(self)


class Running:
    """A process of a program, for one behaviour."""

    def __init__(self, program: Program) -> None:
        self.refuses = program.refuses
        self.leaves_out = program.leaves_out
        self._program = program
        self._read = b""
        self._process = subprocess.Popen(program.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self._seen = self._ask({"begin": program.seed})
        except BaseException:
            self.close()
            raise

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*values: Any, **parameters: Any) -> None:
            numbered = {str(number): value for number, value in enumerate(values, 1)}
            self._seen = self._ask({"action": name, "parameters": _json(numbered | parameters)})

        def call_chosen(choices: Any, **parameters: Any) -> None:
            self._seen = self._ask({"action": name, "parameters": _json(parameters), "choices": _json(choices)})

        if name.startswith("_") or name == "expected":
            raise AttributeError(name)
        return call_chosen if name in self._program.chooses else call

    def observe(self) -> Mapping[str, Any]:
        """What the program showed last."""
        return self._seen

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed("the program has ended") from None
        line = self._line()
        try:
            answer = json.loads(line)
        except ValueError:
            raise Failed(f"the program writes {line[:200]!r}, which is no JSON") from None
        if not isinstance(answer, dict):
            raise Failed(f"the program writes {line[:200]!r}, which is no object")
        if "error" in answer:
            raise Failed(str(answer["error"]))
        if not isinstance(answer.get("observed"), dict):
            raise Failed(f"the program writes {line[:200]!r}, which has no observed")
        if answer.get("refused"):
            self._seen = answer["observed"]
            raise Refused
        seen: Mapping[str, Any] = answer["observed"]
        return seen

    def _line(self) -> str:
        assert self._process.stdout is not None
        while b"\n" not in self._read:
            if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
                raise Waits(f"the program has not answered for {PATIENCE:g} seconds")
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                raise Failed("the program has ended")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace")


def _json(value: Any) -> Any:
    """A value of a protocol as JSON: names of model values and of an enum's members, lists, and objects."""
    if isinstance(value, Foreign):
        value = value.python()
    if isinstance(value, ModelValue | Enum):
        return value.name
    if isinstance(value, Record):
        return {name: _json(part) for name, part in value.__parts__().items()}
    if isinstance(value, Mapping):
        return {str(_json(key)): _json(value[key]) for key in value}
    if isinstance(value, tuple | list | frozenset):
        return [_json(each) for each in value]
    return value
