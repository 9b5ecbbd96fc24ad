"""Runs ``fencepost check`` on a model, and compares its answer with what is known."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.tla.models import UNKNOWN, VERDICTS, Counts, Model
from fencepost.errors import NOT_COMPLETE

_PLACE = re.compile(r"^(fencepost: )?(\S+:\d+(:\d+)?: )?")


@dataclass(frozen=True)
class Ended:
    """How a command ended. ``exit_code`` is None if its time was over."""

    exit_code: int | None
    output: str
    errors: str
    seconds: float


Runner = Callable[[Model], Ended]


@dataclass(frozen=True)
class Answer:
    """What Fencepost said about a model: a verdict with counts, or a refusal, which is a sentence."""

    model: Model
    seconds: float
    verdict: str | None = None
    counts: Counts | None = None
    length: int | None = None
    """States of the counterexample, if there is one."""
    refusal: str | None = None

    @property
    def same_verdict(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.verdict is not None and self.verdict == self.model.verdict

    @property
    def same_states(self) -> bool:
        """Whether the verdict, the distinct states and the depth are the expected ones."""
        ours, theirs = self.counts, self.model.counts
        if ours is None or theirs is None or not self.same_verdict:
            return False
        return (ours.distinct, ours.depth) == (theirs.distinct, theirs.depth)

    @property
    def same_generated(self) -> bool:
        """Whether the generated states are the expected ones."""
        ours, theirs = self.counts, self.model.counts
        return ours is not None and theirs is not None and ours.generated == theirs.generated

    @property
    def wrong(self) -> bool:
        """Whether there is an answer, and it is not the expected one. Generated states do not matter here."""
        if self.verdict is None or not self.model.judged:
            return False
        return not (self.same_verdict if self.model.counts is None else self.same_states)

    def document(self) -> dict[str, Any]:
        """The answer and what was expected, as plain values for JSON."""
        return {
            "model": self.model.path,
            "published": self.model.published,
            "expected": {"verdict": self.model.verdict, "counts": _plain(self.model.counts)},
            "found": {"verdict": self.verdict, "counts": _plain(self.counts), "length": self.length},
            "seconds": round(self.seconds, 2),
            "refusal": self.refusal,
            "wrong": self.wrong,
        }


def _plain(counts: Counts | None) -> dict[str, int] | None:
    return None if counts is None else asdict(counts)


def command(model: Model, limit: float, options: Sequence[str]) -> Ended:
    """Run ``fencepost check`` in a process of its own, for ``limit`` seconds at most."""
    words = [sys.executable, "-m", "fencepost", "check", str(model.module), "--config", str(model.config)]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*words, "--json", "-", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=model.folder,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Ended(None, "", "", time.perf_counter() - began)
    return Ended(process.returncode, output, errors, time.perf_counter() - began)


def answer(model: Model, ended: Ended) -> Answer:
    """What a command said."""
    if ended.exit_code is None:
        return Answer(model, ended.seconds, refusal="out of time")
    try:
        found = json.loads(ended.output)
    except ValueError:
        found = {}
    verdict = VERDICTS.get(ended.exit_code)
    if verdict is None or not found:
        return Answer(model, ended.seconds, refusal=_refusal(model, ended, found))
    counts = Counts(found["distinct_states"], found["generated_states"], found["depth"])
    trace = (found["violation"] or {}).get("trace")
    return Answer(model, ended.seconds, verdict, counts, None if trace is None else len(trace))


def _refusal(model: Model, ended: Ended, found: dict[str, Any]) -> str:
    """The exit code and the first line of the error, without the place in the file, so that equal reasons are equal."""
    if ended.exit_code == NOT_COMPLETE and found.get("limit"):
        return f"152: {found['limit']}"
    lines = [line for line in ended.errors.splitlines() if line.strip()]
    crashed = any(line.startswith("Traceback ") for line in lines)
    own = [line for line in lines if line.startswith("fencepost: ")]
    said = lines[-1] if crashed else (own or lines or ["nothing was said"])[0]
    said = _PLACE.sub("", said).strip()
    for file, name in ((model.module, "the module"), (model.config, "the configuration")):
        said = said.replace(str(file), name).replace(file.name, name)
    return f"{ended.exit_code}: {'crashed: ' if crashed else ''}{said}"


HEADINGS = ("model", "verdict", "distinct", "generated", "depth", "seconds")
_ROW = "{:<74} {:<19} {:>21} {:>23} {:>9} {:>8}"


def heading() -> str:
    """The first line of the table."""
    return _ROW.format(*HEADINGS)


def row(one: Answer) -> str:
    """A line of the table. Where the expected value is another than the found one, it follows in parentheses."""
    name = one.model.path.removeprefix("specifications/").removesuffix(".cfg")
    if one.verdict is None:
        return f"{name:<74} {'refused':<19} {one.seconds:8.1f}  {one.refusal}"
    ours, theirs = one.counts, one.model.counts
    assert ours is not None
    cells = [
        _beside(one.verdict.removesuffix(" failure"), one.model.verdict.removesuffix(" failure")),
        *(
            _beside(f"{getattr(ours, what):,}", "" if theirs is None else f"{getattr(theirs, what):,}")
            for what in ("distinct", "generated", "depth")
        ),
    ]
    mark = "  WRONG" if one.wrong else ""
    return _ROW.format(name, *cells, f"{one.seconds:.1f}") + mark


def _beside(found: str, expected: str) -> str:
    return found if expected in (found, "", UNKNOWN) else f"{found} ({expected})"


def summary(answers: Sequence[Answer]) -> str:
    """The closing lines: how much is equal, and why the rest was refused, by the number of models."""
    published = [one for one in answers if one.model.published]
    others = [one for one in answers if not one.model.published]
    judged = [one for one in others if one.model.judged]
    refused = Counter(one.refusal for one in answers if one.refusal is not None)
    lines = [
        f"{len(answers)} models: of {len(published)} with published counts,"
        f" {sum(one.same_states for one in published)} have equal distinct states and depth,"
        f" {sum(one.same_states and one.same_generated for one in published)} equal generated states, too;"
        f" of {len(others)} others, {len(judged)} have a known verdict and {sum(one.same_verdict for one in judged)}"
        f" have an equal one; {sum(one.wrong for one in answers)} wrong; {sum(refused.values())} refused"
    ]
    lines += [f"{count:5}  {why}" for why, count in sorted(refused.items(), key=lambda item: (-item[1], item[0]))]
    return "\n".join(lines)
