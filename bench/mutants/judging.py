"""What notices a mutant: configurations, a refinement, the simulator, traces, or nothing.

Each mutant is judged in a process of its own. It is forked from a process that has loaded the compiled loops but not
the protocol, and imports the changed source instead of the module.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType, ModuleType
from typing import Any

from bench.mutants.mutate import Mutant
from bench.mutants.protocols import Subject, path_of
from fencepost import Protocol, SearchOptions, action, check, constant, require, state
from fencepost.language.loading import expectation, shipped

BY = ("configuration", "refinement", "simulator", "traces", "counts", "nothing")
"""What notices, the strongest first. ``counts``: only the number of states, levels or steps differs."""

MORE_STATES = 2
"""The search of a mutant may reach this multiple of the configuration's states."""

LEAST = 20_000
"""The limit of states is at least this number."""

MOST_CALLS = 2_500
"""The most calls of Python that a configuration may take that looks at what the first did not notice: its cost."""

AT_A_LEVEL = ("invariant", "step_invariant", "refinement", "deadlock")
"""The kinds of violations that are known at the level at which they are reached."""

LONGEST = 30.0
"""CPU seconds for a mutant to reach its limit of states. After that its Python counts as an endless loop."""

SEEDS: Mapping[str, range] = {"store": range(1, 13), "quorum": range(1, 13), "log": range(40)}
"""The simulator seeds that each mutant runs, by simulator; for each profile."""

TRACED = 4
"""The traces of this number of seeds are validated against the unchanged protocol."""


@dataclass(frozen=True)
class Told:
    """What a configuration says without a change: its verdict, and the calls of Python that it takes. ``counts``: of
    states, levels and steps; those seen by then where it is violated, which say little. ``taken``: its actions.
    """

    configuration: str
    verdict: str
    kind: str
    counts: tuple[int, int, int]
    taken: tuple[str, ...]
    calls: int
    said: str
    lines: Mapping[str, frozenset[int]]
    """The lines of the modules that were run."""

    def runs(self, mutant: Mutant) -> bool:
        """Whether a mutant can make a difference: what it changes is run."""
        return not self.lines[mutant.module].isdisjoint(mutant.lines)

    @property
    def most_states(self) -> int:
        """The limit of states in the search of a mutant."""
        return max(MORE_STATES * self.counts[0], LEAST)

    @property
    def levels(self) -> int | None:
        """The limit of levels: those up to the violation, if the configuration has one."""
        return self.counts[1] if self.kind in AT_A_LEVEL else None


@dataclass(frozen=True)
class Notice:
    """Who notices a mutant, and how."""

    by: str
    how: str


NOBODY = Notice("nothing", "")


class _Counter(Protocol):
    """The smallest protocol that compiled loops explore."""

    limit: int = constant(3, "where it ends")
    count: int = state(0)

    @action
    def counts(self) -> None:
        """One more."""
        require(self.count < self.limit)
        self.count += 1


def warm() -> None:
    """Load the compiled loops, so that processes which are forked have them. No protocol is imported."""
    check(_Counter(), engine="embedded", options=SearchOptions(workers=1))


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from another text than that of its file."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType | None:
        code: CodeType = compile(self.text, self.path, "exec", dont_inherit=True)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        file = str(path_of(fullname))
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, file, self.text))


def plant(module: str, text: str) -> None:
    """From now on a module is this text, in this process. It must not have been imported."""
    assert module not in sys.modules, f"{module} is imported already"
    sys.meta_path.insert(0, _Finder(module, text))


def in_child(task: Callable[[Callable[[Any], None]], None], seconds: float) -> tuple[list[Any], str]:
    """Run a task in a process of its own. Returns the values that it sent, and what killed the process, or nothing.

    ``seconds``: the limit of CPU time.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_child(task, seconds, reading, writing)
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = said.readlines()
    _, status = os.waitpid(pid, 0)
    told = [json.loads(line) for line in lines if line.endswith("\n")]
    if os.WIFSIGNALED(status):
        return told, "time" if os.WTERMSIG(status) == signal.SIGXCPU else signal.Signals(os.WTERMSIG(status)).name
    return told, ""


def _run_child(task: Callable[[Callable[[Any], None]], None], seconds: float, reading: int, writing: int) -> None:
    os.close(reading)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)

    def tell(value: Any) -> None:
        os.write(writing, json.dumps(value).encode() + b"\n")

    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    code = 0
    try:
        task(tell)
    except BaseException as error:
        tell({"raised": f"{type(error).__name__}: {error}"[:200]})
        code = 1
    finally:
        os._exit(code)


def _searched(protocol: type[Protocol], look: str, most: int, depth: int | None = None) -> dict[str, Any]:
    """The result of a configuration, searched up to ``most`` states and ``depth`` levels. ``look`` is its name,
    optionally with levels: ``default@12``.
    """
    name, _, levels = look.partition("@")
    deadlock = expectation(protocol, name) == "deadlock"
    subject = protocol.configured(name)
    depth = int(levels) if levels else depth
    options = SearchOptions(workers=1, max_states=most, max_depth=depth, deadlock=deadlock)
    result = check(subject, engine="embedded", options=options)
    ended = result.holds or (result.verdict == "not complete" and "depth" in str(result.limit))
    return {
        "configuration": look,
        "verdict": "holds" if ended else result.verdict,
        "kind": result.violations[0].kind if result.violations else "",
        "said": str(result.error or result.failure or "")[:200],
        "counts": (result.distinct_states, result.depth, result.generated_states),
        "taken": [one.name for one in result.actions if one.taken] if ended else [],
        "calls": result.evaluations,
    }


def _baseline(subject: Subject, look: str, most_states: int) -> Told | None:
    """What a configuration says, and the lines that it runs; None for one that calls Python too often."""

    def task(tell: Callable[[Any], None]) -> None:
        protocol = shipped(subject.name)
        told = _searched(protocol, look, most_states)
        if told["verdict"] == "not complete":
            told = _searched(protocol, f"{look}@{told['counts'][1] - 1}", most_states)
        lines: Mapping[str, set[int]] = {}
        if not _is_dear(subject, look, told["calls"]):  # Tracing makes Python many times slower.
            lines = trace_lines(subject)
            _searched(protocol, told["configuration"], most_states)
        tell({**told, "lines": {module: sorted(run) for module, run in lines.items()}})

    told, ended = in_child(task, 4 * LONGEST)
    assert told and "verdict" in told[0], f"{subject.name} is broken: {ended or told}"
    (one,) = told
    if _is_dear(subject, look, one["calls"]):
        return None
    lines = {module: frozenset(run) for module, run in one["lines"].items()}
    return Told(**{**one, "counts": tuple(one["counts"]), "taken": tuple(one["taken"]), "lines": lines})


def _is_dear(subject: Subject, look: str, calls: int) -> bool:
    return look not in subject.first and calls > MOST_CALLS


def trace_lines(subject: Subject) -> Mapping[str, set[int]]:
    """The lines of the modules of a protocol that are run from now on, in this process."""
    lines: dict[str, set[int]] = {module: set() for module in subject.modules}

    def tracer(module: str) -> Any:
        add = lines[module].add

        def trace(frame: FrameType, event: str, given: Any) -> Any:
            add(frame.f_lineno)
            return trace

        return trace

    tracers = {str(path_of(module)): tracer(module) for module in subject.modules}

    def called(frame: FrameType, event: str, given: Any) -> Any:
        return tracers.get(frame.f_code.co_filename)

    threading.settrace(called)
    sys.settrace(called)
    return lines


def baselines(subject: Subject, first: bool, others: bool, most_states: int) -> list[Told]:
    """The results of the first configurations, then of the others that do not call Python too often, fewest calls
    first. A search that does not end within ``most_states`` is cut to the levels that fit.
    """

    (names,), _ = in_child(lambda tell: tell(list(shipped(subject.name).configurations)), LONGEST)
    looks = [*(subject.first if first else ()), *(name for name in names if others and name not in subject.first)]
    found = [one for look in looks if (one := _baseline(subject, look, most_states)) is not None]
    rest = [one for one in found if one.configuration not in subject.first]
    return [one for one in found if one.configuration in subject.first] + sorted(rest, key=lambda one: one.calls)


def by_configurations(
    subject: Subject, mutant: Mutant, text: str, configurations: Sequence[Told], by_more: bool = False
) -> Notice:
    """Who of these notices a mutant first: one that says something else, or counts others; ``by_more``: rather the
    first that says something else.

    ``text``: the module with the change.
    """
    unchanged = [one for one in configurations if one.runs(mutant)]
    if not unchanged:
        return NOBODY

    def task(tell: Callable[[Any], None]) -> None:
        plant(mutant.module, text)
        protocol = shipped(subject.name)
        for one in unchanged:
            told = _searched(protocol, one.configuration, one.most_states, one.levels)
            tell(told)
            if _notices(told, one) or (not by_more and _counts_others(told, one)):
                return

    told, ended = in_child(task, LONGEST)
    counts = ""
    for one, was in zip(told, unchanged, strict=False):
        if "raised" in one:
            return Notice("configuration", f"{was.configuration}: {one['raised']}")
        if _notices(one, was):
            by = "refinement" if one["kind"] == "refinement" else "configuration"
            return Notice(by, f"{was.configuration}: {one['verdict']}" + (f": {one['said']}" if one["said"] else ""))
        if not counts and _counts_others(one, was):
            never = [name for name in was.taken if name not in one["taken"]] if one["verdict"] == "holds" else []
            counts = f"{was.configuration}: {_said(one)} and not {_said(was.__dict__)}"
            counts += f"; {', '.join(never)} never taken" if never else ""
    if ended and not counts:
        counts = f"{unchanged[len(told)].configuration}: does not end ({ended})"
    return Notice("counts", counts) if counts else NOBODY


def by_simulator(subject: Subject, module: str, text: str) -> Notice:
    """Whether the simulator notices a mutant of the rules that its roles run, or one of its traces tells of it."""
    if not subject.simulator or module == subject.modules[0]:
        return NOBODY
    from bench.mutants.simulated import simulate, validate

    def task(tell: Callable[[Any], None]) -> None:
        plant(module, text)
        for told in simulate(subject, SEEDS[subject.simulator], TRACED):
            tell(told)

    def judge(events: list[Any], tell: Callable[[Any], None]) -> None:
        tell(validate(subject, events))

    told, ended = in_child(task, 4 * LONGEST)
    for one in told:
        if "raised" in one:
            return Notice("simulator", one["raised"])
        if one["promise"]:
            return Notice("simulator", f"{one['run']}: {one['promise']}")
    if ended:
        return Notice("simulator", f"does not end ({ended})")
    for one in told:
        if one["events"]:
            said, ended = in_child(partial(judge, one["events"]), LONGEST)
            if said and said[0] != "accepted":
                return Notice("traces", f"{one['run']}: {said[0] if isinstance(said[0], str) else said[0]['raised']}")
    return NOBODY


def _said(told: Mapping[str, Any]) -> str:
    if told["verdict"] == "not complete":
        return "more states than are looked at"
    states, depth, steps = told["counts"]
    return f"{states:,} states, depth {depth}, {steps:,} steps"


def _notices(told: Mapping[str, Any], was: Told) -> bool:
    """Whether a configuration says something else. That a search does not end with these states is a matter of
    counts.
    """
    return told["verdict"] not in (was.verdict, "not complete")


def _counts_others(told: Mapping[str, Any], was: Told) -> bool:
    """Whether a configuration that holds has other counts, or more states than are looked at."""
    return was.verdict == "holds" and tuple(told["counts"]) != was.counts
