"""Checking mode: explores the first part of a state space again, in processes with other hash seeds.

The order in which Python walks a set of texts, the results of ``hash`` and ``id``, and the default ``repr`` of an
object differ from process to process. Within one process nothing shows that. So other processes, which differ only in
their seed, take the same steps in the same states, and the results must be equal. Fingerprints are of content, and
equal in every process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fencepost.checker.engines.interface import Exploration, Found
from fencepost.errors import FencepostError, Misbehaved, ProtocolRaised
from fencepost.language.declarations import INITIALLY
from fencepost.language.seam import Model, language_named, language_of
from fencepost.semantics import Root, Stepper
from fencepost.semantics.deadline import Deadline
from fencepost.semantics.roots import STEP_PROPERTIES

SEEDS = (11, 12, 13, 14)
"""The hash seeds. A set of two texts has one of two orders, so each seed finds a dependency on it with a chance of one
in two.
"""

STATES, LEVEL, EVALUATIONS = 500, 50, 20_000
"""The most states to look at, in all and of one level, and the calls of the author's Python after which no more states
are looked at.
"""

PATIENCE = 600.0
"""The most seconds for the other processes. The time limit of the search may be lower."""

Evaluated = list[list[Any]]
"""For every state its fingerprint, and pairs of the title of an action or property and its result as text."""


class Sample:
    """The first states of a protocol, level by level, and the result of evaluating the author's Python in each."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper
        stepper.store.show_only(lambda path: True)  # with a view, it would be open which of several states is evaluated
        self.found: dict[str, Found] = {}
        self.evaluated: Evaluated = []
        self.raised: tuple[str, ProtocolRaised] | None = None

    def explore(self) -> Sample:
        """Evaluate the states."""
        level: dict[str, tuple[int, ...]] = {}
        for state in self.stepper.initial_states():
            key = self._key(state.ids)
            level.setdefault(key, state.ids)
            self.found.setdefault(key, Found("raised", "", state, []))
        self.evaluated.append(["", [["", sorted(level)]]])
        while level:
            following: dict[str, tuple[int, ...]] = {}
            for key in sorted(level)[:LEVEL]:
                if len(self.evaluated) > STATES or self.stepper.evaluations > EVALUATIONS:
                    return self
                self.evaluated.append([key, list(self._state(key, level[key], following))])
            level = following
        return self

    def _key(self, row: Sequence[int]) -> str:
        return f"{self.stepper.store.fingerprint(row):032x}"

    def _state(
        self, key: str, row: tuple[int, ...], following: dict[str, tuple[int, ...]]
    ) -> Iterator[tuple[str, Any]]:
        inside, successors = True, []
        for root in self.stepper.roots:
            if root.kind in (*STEP_PROPERTIES, INITIALLY):
                continue
            try:
                outcomes = self.stepper.outcomes(root, row)
            except ProtocolRaised as error:
                self.raised = self.raised or (key, error)
                yield f"{root.index} {root.title}", "raised"
                continue
            if root.kind != "action":
                inside = inside and not (root.kind == "constraint" and outcomes)
                yield f"{root.index} {root.title}", bool(outcomes)
                continue
            reached = {}
            for outcome in outcomes:
                after = self.stepper.apply(row, outcome)
                reached[self._key(after)] = after, (root.index, outcome.choices)
            successors += list(reached.items())
            yield f"{root.index} {root.title}", sorted(reached)
        for other, (after, move) in successors:
            for root in self.stepper.of_kind(*STEP_PROPERTIES):
                with contextlib.suppress(ProtocolRaised):
                    yield f"{root.index} {root.title}", [other, bool(self.stepper.outcomes(root, row, after))]
            if inside and other not in self.found:
                at = self.found[key]
                self.found[other] = Found("raised", "", at.initial, [*at.path, move])
                following[other] = after


def compare(
    protocol: Model, invariants: Sequence[str] | None, timeout: float | None, deadline: Deadline
) -> tuple[Stepper, Exploration] | None:
    """Evaluate the first states here and under other hash seeds. If they differ, returns an exploration that ends at
    the first difference, and the stepper whose states it is about.

    ``timeout``: the most seconds for the other processes. ``deadline`` ends an evaluation here that does not return.

    Compares nothing if no other process can import the protocol's class, or if the protocol raises something here that
    the search will report anyway.
    """
    began = time.monotonic()
    request = _request(protocol, invariants)
    if request is None:
        return None
    stepper = Stepper(protocol, invariants, True, deadline)
    others = [_started(seed, request) for seed in SEEDS]
    try:
        here = Sample(stepper).explore()
        if here.raised is not None:
            key, error = here.raised
            # Python may keep a value that the author's code has changed, so the search might not notice it.
            return (stepper, _ended(here, key, error, began)) if isinstance(error.__cause__, Misbehaved) else None
        late = began + min(PATIENCE, timeout or PATIENCE)
        for other in others:
            evaluated = _answer(other, late)
            difference = None if evaluated is None else _difference(here, evaluated)
            if difference is not None:
                return stepper, _ended(here, *_differs(here, *difference), began)
        return None
    except ProtocolRaised as error:
        return stepper, Exploration(raised=error)
    finally:
        for other in others:
            other.kill()
            other.communicate()


def _difference(here: Sample, evaluated: Evaluated) -> tuple[str, str] | None:
    """The first state, by its key, and the action or property with different results."""
    ours: Evaluated = json.loads(json.dumps(here.evaluated))
    for (key, mine), (other, its) in zip(ours, evaluated, strict=False):
        if key != other or mine != its:
            return key, next((one[0] for one, two in zip(mine, its, strict=False) if one != two), "")
    return None


def _differs(here: Sample, key: str, title: str) -> tuple[str, ProtocolRaised]:
    root: Root | None = next((r for r in here.stepper.roots if f"{r.index} {r.title}" == title), None)
    what = "the initial state" if root is None else f"{root.kind.replace('_', ' ')} {root.title}"
    return key, ProtocolRaised(
        f"{what} comes to something else in another process: it depends on the order of a set or on the hash of a text,"
        " which follow Python's hash seed, or on an address; walk a set with canonical(...)",
        where="" if root is None else root.title,
    )


def _ended(here: Sample, key: str, error: ProtocolRaised, began: float) -> Exploration:
    at = here.found.get(key)
    return Exploration(
        raised=error,
        raised_at=None if at is None else Found("raised", error.where, at.initial, at.path),
        distinct=len(here.evaluated) - 1,
        generated=len(here.found),
        seconds=time.monotonic() - began,
    )


# -- the other processes ----------------------------------------------------------------------------------------------


def _request(protocol: Model, invariants: Sequence[str] | None) -> bytes | None:
    """The data from which another process builds the same protocol; None if it cannot."""
    packed = language_of(protocol).packed(protocol)
    if packed is None or not sys.executable:
        return None
    head = protocol.__language__, None if invariants is None else list(invariants)
    return json.dumps(head).encode() + b"\n" + packed


def _started(seed: int, request: bytes) -> subprocess.Popen[bytes]:
    package = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": path}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.write(request)
        process.stdin.close()
    process.stdin = None
    return process


def _answer(process: subprocess.Popen[bytes], late: float) -> Evaluated | None:
    try:
        said, _ = process.communicate(timeout=max(0.0, late - time.monotonic()))
        found: Evaluated = json.loads(said)
        return found
    except (subprocess.TimeoutExpired, ValueError):  # it ran out of time, or cannot import the module
        return None


def _end(*_: Any, **__: Any) -> None:
    raise SystemExit


def _main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the author's code may print
    # A script that runs a check when it is imported would start processes like this one, without end.
    sys.modules["fencepost"].check = sys.modules["fencepost.api.check"].check = _end  # type: ignore[attr-defined]
    named, invariants = json.loads(sys.stdin.buffer.readline())
    protocol = language_named(named).unpacked(sys.stdin.buffer.read())
    sample = Sample(Stepper(protocol, invariants)).explore()
    json.dump(sample.evaluated, out)
    out.flush()


if __name__ == "__main__":
    with contextlib.suppress(FencepostError, ValueError):
        _main()
