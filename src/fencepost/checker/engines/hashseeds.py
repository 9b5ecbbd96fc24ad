"""Checking mode: the first part of a state space, explored again by processes with other hash seeds.

In which order Python walks a set of texts, what ``hash`` and ``id`` come to and what an object without a ``__repr__``
is called differ from process to process, and in one process nothing shows that. So processes that differ in nothing
else take the same steps in the same states, and what comes out has to be the same: fingerprints are of content, and
equal everywhere.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from fencepost.checker.engines.interface import Exploration, Found
from fencepost.errors import FencepostError, Misbehaved, ProtocolRaised
from fencepost.language import loading
from fencepost.language.protocol import Protocol
from fencepost.language.source import declared_as
from fencepost.language.values import PROTOCOL_MODULE
from fencepost.semantics import Root, Stepper
from fencepost.semantics.deadline import Deadline
from fencepost.semantics.roots import STEP_PROPERTIES

SEEDS = (11, 12, 13, 14)
"""The hash seeds. A set of two texts has one of two orders, so that each seed finds what depends on it with a chance of
one in two.
"""

STATES, LEVEL, EVALUATIONS = 500, 50, 20_000
"""The most states that are looked at, those of one level, and the calls of the author's Python after which no further
state is.
"""

PATIENCE = 600.0
"""Seconds that the other processes may take, unless the whole search may take less."""

Evaluated = list[list[Any]]
"""Of every state its fingerprint, and for each action or property the title and the result, as text."""


class Sample:
    """The first states of a protocol, level by level, and what the author's Python makes of each."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper
        stepper.store.show_only(lambda path: True)  # a view would leave open which of several states is looked at
        self.found: dict[str, Found] = {}
        self.evaluated: Evaluated = []
        self.raised: tuple[str, ProtocolRaised] | None = None

    def explore(self) -> Sample:
        """Look at the states."""
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
            if root.kind in STEP_PROPERTIES:
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
    protocol: Protocol, invariants: Sequence[str] | None, timeout: float | None, deadline: Deadline
) -> Exploration | None:
    """Look at the first states here and under other hash seeds; an exploration that ends where they first differ, if
    they do.

    ``timeout``: the seconds that the other processes have, at most. ``deadline`` ends what does not return here.

    Nothing is compared if the protocol's class is in no module that another process could import, or does something
    here that the search itself will tell of.
    """
    began = time.monotonic()
    request = _request(protocol, invariants)
    if request is None:
        return None
    others = [_started(seed, request) for seed in SEEDS]
    try:
        here = Sample(Stepper(protocol, invariants, True, deadline)).explore()
        if here.raised is not None:
            key, error = here.raised
            # A value that was changed once may stay as it is, so that the search itself would not notice.
            return _ended(here, key, error, began) if isinstance(error.__cause__, Misbehaved) else None
        late = began + min(PATIENCE, timeout or PATIENCE)
        for other in others:
            evaluated = _answer(other, late)
            difference = None if evaluated is None else _difference(here, evaluated)
            if difference is not None:
                return _ended(here, *_differs(here, *difference), began)
        return None
    except ProtocolRaised as error:
        return Exploration(raised=error)
    finally:
        for other in others:
            other.kill()
            other.communicate()


def _difference(here: Sample, evaluated: Evaluated) -> tuple[str, str] | None:
    """The first state, by its key, and action or property that are not the same in both."""
    ours: Evaluated = json.loads(json.dumps(here.evaluated))
    for (key, mine), (other, its) in zip(ours, evaluated, strict=False):
        if key != other or mine != its:
            return key, next((one[0] for one, two in zip(mine, its, strict=False) if one != two), "")
    # One of them may have looked at more: here every evaluation is done twice, which uses up their number.
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


def _request(protocol: Protocol, invariants: Sequence[str] | None) -> bytes | None:
    """The data by which another process makes the same protocol; None if it cannot."""
    cls = type(protocol)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if "<locals>" in cls.__qualname__ or file is None or not sys.executable:
        return None
    from_file = cls.__module__ == "__main__" or cls.__module__.startswith(PROTOCOL_MODULE)
    locator = {
        "path": sys.path,
        "file": os.path.abspath(file) if from_file else None,
        "module": cls.__module__,
        "name": cls.__qualname__,
    }
    given = dict(protocol.constants), None if invariants is None else list(invariants), declared_as(protocol)
    return json.dumps(locator).encode() + b"\n" + pickle.dumps(given)


def _started(seed: int, request: bytes) -> subprocess.Popen[bytes]:
    package = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": package}
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
    except (subprocess.TimeoutExpired, ValueError):  # it had no time, or its module cannot be imported elsewhere
        return None


def _end(*_: Any, **__: Any) -> None:
    raise SystemExit


def _main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for what an author prints
    # A script that checks while it is imported would start processes like this one, and each of them more.
    sys.modules["fencepost"].check = sys.modules["fencepost.api.check"].check = _end  # type: ignore[attr-defined]
    locator = json.loads(sys.stdin.buffer.readline())
    sys.path[:] = locator["path"]
    module = loading.from_file(locator["file"]) if locator["file"] else importlib.import_module(locator["module"])
    sys.modules[locator["module"]] = module  # which may be __main__, by which name its values were pickled
    constants, invariants, declared = pickle.load(sys.stdin.buffer)
    protocol = attrgetter(locator["name"])(module)(**constants)
    if declared_as(protocol) != declared:
        raise SystemExit  # something was put on its class by what does not run here
    sample = Sample(Stepper(protocol, invariants)).explore()
    json.dump(sample.evaluated, out)
    out.flush()


if __name__ == "__main__":
    with contextlib.suppress(FencepostError):
        _main()
