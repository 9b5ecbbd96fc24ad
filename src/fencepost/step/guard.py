"""Checking mode: catches an author's function that looks at something besides the state.

A step that depends on the clock, a random number, the environment or a variable of its module is recorded once and then taken in every
state that agrees on what was read of the state: a wrong answer that nobody would notice. :func:`guarded` watches one
evaluation and names what it looked at. It sees calls, through the hook for profilers, and changes of what the author's module and
class hold; it costs many times the evaluation itself.
"""

from __future__ import annotations

import collections
import datetime
import enum
import gc
import io
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from fencepost.errors import Misbehaved
from fencepost.spec.protocol import Protocol
from fencepost.spec.values import Record

ADVICE = "a step must follow from the state alone; for what may go either way ask one_of(...)"

_CLOCKS = (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns",
    "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "localtime", "gmtime", "ctime",
)  # fmt: skip
_C_FUNCTIONS: dict[Any, str] = {getattr(time, name): "the clock" for name in _CLOCKS if hasattr(time, name)} | {
    io.open: "a file",
    os.open: "a file",
    os.stat: "a file",
    os.listdir: "a directory",
    os.scandir: "a directory",
    os.urandom: "a random number",
    os.getpid: "the number of its process",
    input: "what is typed",
}
_PYTHON_FUNCTIONS: dict[CodeType, tuple[str, str]] = {
    os.getenv.__code__: ("os.getenv", "the environment"),
    **{
        getattr(type(os.environ), name).__code__: ("os.environ", "the environment")
        for name in ("__getitem__", "__iter__", "__len__", "copy")
        if hasattr(getattr(type(os.environ), name, None), "__code__")
    },
}
_MODULES = {"random": "a random number", "secrets": "a random number"}
"""Modules of which every function is one that no step may call."""

_LIBRARY = os.path.dirname(os.__file__)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PROTOCOLS = os.path.join(_OURS, "protocols")
_CONTAINERS = (list, dict, set, bytearray, collections.deque, itertools.count)


class HiddenInput(Misbehaved):
    """An author's function looked at, or changed, something that is no part of the state."""


class _Watch:
    """The profiler's hook: remembers the first call that no step may make, and raises in its place."""

    def __init__(self) -> None:
        self.offence: str | None = None
        self.importing: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, subject: Any) -> None:
        if self.importing is not None:
            # What a module does while it is imported is not what the step does.
            if event == "return" and frame is self.importing:
                self.importing = None
            return
        offence = None
        if event == "call":
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                self.importing = frame
                return
            offence = _python_call(frame)
        elif event == "c_call":
            offence = _c_call(subject)
        if offence is not None and not _is_logging(frame):
            name, what = offence
            self.offence = f"read {what} ({name}{_place(frame)}): {ADVICE}"
            raise HiddenInput(self.offence)


def _python_call(frame: FrameType) -> tuple[str, str] | None:
    code = frame.f_code
    known = _PYTHON_FUNCTIONS.get(code)
    if known is not None:
        return known
    module = frame.f_globals.get("__name__")
    if module in _MODULES:
        name = "Random" if code.co_name in ("__init__", "seed") else code.co_name
        return f"{module}.{name}", _MODULES[module]
    if module == "uuid" and code.co_name in ("uuid1", "uuid4", "uuid6", "uuid7", "getnode"):
        return f"uuid.{code.co_name}", "a random number"
    return None


def _c_call(function: Any) -> tuple[str, str] | None:
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if type(owner).__module__ in _MODULES:
        return f"{type(owner).__module__}.{name}", _MODULES[type(owner).__module__]
    if isinstance(owner, type) and issubclass(owner, datetime.date) and name in ("now", "utcnow", "today"):
        return f"{owner.__name__}.{name}", "the clock"
    try:
        what = _C_FUNCTIONS.get(function)
    except TypeError:  # a method of something that can not be hashed
        what = None
    if what is None:
        return None
    module = {"posix": "os.", "nt": "os.", "io": "", "_io": "", "builtins": ""}.get(
        function.__module__, function.__module__ + "."
    )
    return module + name, what


def _is_logging(frame: FrameType | None) -> bool:
    """Whether this is a log record being stamped: the step does not see the time that is in it."""
    while frame is not None and _is_library(frame):
        if frame.f_globals.get("__name__") == "logging":
            return True
        frame = frame.f_back
    return False


def _is_library(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith((_LIBRARY, "<frozen")) or (file.startswith(_OURS) and not file.startswith(_PROTOCOLS))


def _place(frame: FrameType | None) -> str:
    """The author's line that made the call."""
    while frame is not None and _is_library(frame):
        frame = frame.f_back
    return "" if frame is None else f" at {frame.f_code.co_filename}:{frame.f_lineno}"


@contextmanager
def guarded(function: Callable[..., Any], protocol: Protocol) -> Iterator[None]:
    """Watch ``function``, an action or property of ``protocol``, while the body runs it.

    Raises :class:`HiddenInput` if it asked for the time, a random number, a file or the environment (even if the author's code
    swallowed that), or changed a variable of its module or of the protocol's class.
    """
    watch = _Watch()
    before = _surroundings(function, protocol)
    outer = sys.getprofile()
    # Whoever watches the garbage collector (a test runner, say) may look at the clock whenever it runs.
    collecting = gc.isenabled()
    gc.disable()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(outer)
        if collecting:
            gc.enable()
        if watch.offence is not None:
            raise HiddenInput(watch.offence)
        _compare(before, _surroundings(function, protocol))


def _compare(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, now in after.items():
        if name in before and _same(before[name], now):
            continue
        if name == _NUMPY:
            raise HiddenInput(f"read a random number ({_NUMPY}): {ADVICE}")
        raise HiddenInput(
            f"changed {name}, which is no part of the state: declare it with state(...) (a cache can be a functools.cache)"
        )


_NUMPY = "numpy.random"


def _surroundings(function: Callable[..., Any], protocol: Protocol) -> dict[str, Any]:
    """What the author's function could change besides the state: variables of its module and class, and numpy's generator."""
    module = getattr(function, "__module__", None)
    variables: dict[str, Any] = dict(getattr(function, "__globals__", {}))
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(getattr(function, "__code__", _surroundings.__code__).co_freevars, cells, strict=False):
        try:
            variables[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            variables.pop(name, None)
    found = {n: _content(v, module) for n, v in variables.items() if not (n.startswith("__") and n.endswith("__"))}
    for owner in type(protocol).__mro__:
        if owner is Protocol:
            break
        for name, value in list(vars(owner).items()):
            if isinstance(value, _CONTAINERS):
                found[f"{owner.__name__}.{name}"] = _content(value, module)
    numpy_random = sys.modules.get(_NUMPY)
    if numpy_random is not None:
        kind, words, *rest = numpy_random.get_state()
        found[_NUMPY] = f"{kind} {hash(words.tobytes())} {rest}"
    return found


def _content(value: Any, module: str | None) -> Any:
    """Something to compare a variable by: the content of what is mutable, the object itself otherwise."""
    if isinstance(value, _CONTAINERS):
        return repr(value)
    kind = type(value)
    if kind.__module__ == module and not isinstance(value, (Record, enum.Enum)) and hasattr(value, "__dict__"):
        return repr(vars(value))
    generator = getattr(value, "bit_generator", None) if kind.__module__.startswith("numpy.") else None
    return value if generator is None else repr(generator.state)


def _same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, str) and one == other)
