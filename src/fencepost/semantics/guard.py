"""Checking mode: catches an author's function that depends on something besides the state.

A step is recorded once, and then taken in every state that agrees on the parts that it read. If it also depends on the
clock, a random number, the environment or a variable of its module, the result is silently wrong. :class:`Guard`
watches one evaluation and names the hidden input. It sees calls, through Python's hook for profilers, and changes of
anything that the author's modules hold. It multiplies the cost of an evaluation. It cannot see differences between
Python processes, such as the order of a set. :mod:`fencepost.checker.engines.hashseeds` finds those.
"""

from __future__ import annotations

import collections
import datetime
import gc
import io
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

from fencepost.errors import Misbehaved
from fencepost.language.contents import content_of
from fencepost.language.declarations import Declared
from fencepost.language.seam import Model, language_of
from fencepost.language.source import is_own_module
from fencepost.language.values import Map, Message, ModelValue, Record, Set
from fencepost.semantics.authors import authors_frame, is_authors

ADVICE = "a step must follow from the state alone; for what may go either way ask one_of(...)"

_CLOCKS = (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
    "process_time_ns",
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
    id: "an address",
    hash: "a hash, which may be another one in every process",
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
"""Modules whose functions a step must not call."""

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})


class HiddenInput(Misbehaved):
    """An author's function read or changed something that is not part of the state."""


class _Watch:
    """The hook for profilers. It records the first forbidden call, and raises instead of making it."""

    def __init__(self) -> None:
        self.offence: str | None = None
        self.importing: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, subject: Any) -> None:
        if self.importing is not None:
            # The effects of importing a module are not the step's.
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
            offence = None if _is_lookup(subject, frame) else _c_call(subject)
        if offence is not None and not _is_logging(frame):
            name, what = offence
            self.offence = f"read {what} ({name}{_place(frame)}): {ADVICE}"
            raise HiddenInput(self.offence)


def _is_lookup(function: Any, frame: FrameType) -> bool:
    """Whether a hash or an address is only used to look up a member of a set or a dictionary."""
    return (function is hash or function is id) and (
        not is_authors(frame.f_code.co_filename) or frame.f_code.co_name == "__hash__"
    )


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
    except TypeError:  # a method of an unhashable object
        what = None
    if what is None:
        return None
    module = {"posix": "os.", "nt": "os.", "io": "", "_io": "", "builtins": ""}.get(
        function.__module__, function.__module__ + "."
    )
    return module + name, what


def _is_logging(frame: FrameType | None) -> bool:
    """Whether this call stamps a log record: the step does not see that time."""
    while frame is not None and not is_authors(frame.f_code.co_filename):
        if frame.f_globals.get("__name__") == "logging":
            return True
        frame = frame.f_back
    return False


def _place(frame: FrameType | None) -> str:
    """The author's line that made the call."""
    frame = authors_frame(frame)
    return "" if frame is None else f" at {frame.f_code.co_filename}:{frame.f_lineno}"


class Guard:
    """Watches the functions of one protocol, one action or property at a time."""

    def __init__(self, protocol: Model) -> None:
        self._surroundings = _Surroundings(protocol)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch an author's function while the body runs it.

        Raises :class:`HiddenInput` if it read the time, a random number, a file or the environment (even if the
        author's code caught the exception), or changed a module, a class, a function or an object of the author's.
        """
        watch = _Watch()
        outer = sys.getprofile()
        # A callback of the garbage collector (a test runner's, say) may read the clock on any collection.
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
            changed = self._surroundings.changed()
            if changed == _NUMPY:
                raise HiddenInput(f"read a random number ({_NUMPY}): {ADVICE}")
            if changed is not None:
                raise HiddenInput(
                    f"changed {changed}, which is no part of the state: declare it with state(...) (a cache can be a"
                    " functools.cache)"
                )


_NUMPY = "numpy.random"
_OF_PYTHON = ("__", "_abc_", "_member_", "_value2member_")
"""Prefixes of the names that Python itself sets in modules and classes."""


@dataclass
class _Holder:
    """A mutable namespace, container or object. ``was``: its content, as ``read`` returned it when it was first
    reached.

    ``held`` keeps the object alive, so that its id stays unique.
    """

    title: str
    held: Any
    read: Callable[[], Any]
    was: Any
    is_namespace: bool = False


class _Surroundings:
    """Everything that an author's functions could change besides the state.

    It covers whatever is reachable from the protocol's class and functions: the author's modules, classes, functions
    and objects, and the containers in them. The standard library, installed packages and Fencepost are excluded. A new
    object is reachable only through an old one that has changed, so one walk is enough.
    """

    def __init__(self, protocol: Model) -> None:
        self._tops = frozenset(language_of(protocol).packages(protocol))
        self._holders: list[_Holder] = []
        self._met: dict[int, Any] = {}
        self._waiting: collections.deque[tuple[str, Any]] = collections.deque()
        for declared in language_of(protocol).declarations(protocol).values():
            self._hold_names("", getattr(declared.function, "__globals__", {}))
        self._hold_names(type(protocol).__name__, protocol.constants)
        for owner in (*type(protocol).__mro__, Record, Message, ModelValue, Map, Set):
            if owner is not object:
                self._hold_names(owner.__name__, owner)
        self._walk()
        self._numpy: Any = None
        self._numpy_changed()

    def changed(self) -> str | None:
        """The name of something that has changed. None if nothing has."""
        for holder in self._holders:
            now = holder.read()
            if _same(now, holder.was):
                continue
            if not holder.is_namespace:
                return holder.title
            for name in {**holder.was, **now}:
                if not name.startswith(_OF_PYTHON) and not self._is_import(holder, now, name):
                    if name in now and name in holder.was and _same(now[name], holder.was[name]):
                        continue
                    return f"{holder.title}.{name}" if holder.title else name
            holder.was = dict(now)
        self._walk()
        return _NUMPY if self._numpy_changed() else None

    def _is_import(self, holder: _Holder, now: Mapping[str, Any], name: str) -> bool:
        """Whether a name only changed because a module was imported."""
        value = now.get(name)
        if name in holder.was or not isinstance(value, ModuleType):
            return False
        self._waiting.append((name, value))
        return True

    def _numpy_changed(self) -> bool:
        """Whether numpy's global generator was used since the last call."""
        numpy_random = sys.modules.get(_NUMPY)
        if numpy_random is None:
            return False
        kind, words, *rest = numpy_random.get_state()
        before, self._numpy = self._numpy, (kind, words.tobytes(), rest)
        return before is not None and before != self._numpy

    # -- the walk -----------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        while self._waiting:
            title, value = self._waiting.popleft()
            if type(value) not in _PLAIN and id(value) not in self._met:
                self._met[id(value)] = value
                self._meet(title, value)

    def _hold(self, title: str, held: Any, read: Callable[[], Any]) -> None:
        self._holders.append(_Holder(title, held, read, read()))

    def _hold_names(self, title: str, space: Any) -> None:
        """Hold the names of a class, or of the dictionary of a module or a function."""
        if id(space) in self._met:
            return
        self._met[id(space)] = space
        held = space if isinstance(space, Mapping) else vars(space)
        self._holders.append(_Holder(title, space, lambda: held, dict(held), is_namespace=True))
        for name, value in held.items():
            if not name.startswith(_OF_PYTHON):
                self._waiting.append((f"{title}.{name}" if title else name, value))

    def _meet(self, title: str, value: Any) -> None:
        if isinstance(value, Declared):
            value = value.function
        if isinstance(value, (classmethod, staticmethod)):
            value = value.__func__
        if isinstance(value, ModuleType):
            if self._is_own(value.__name__):
                self._hold_names(value.__name__, vars(value))
        elif isinstance(value, type):
            if self._is_own(value.__module__):
                del self._met[id(value)]
                self._hold_names(value.__name__, value)
        elif isinstance(value, FunctionType):
            if self._is_own(value.__module__):
                self._meet_function(value)
        elif isinstance(value, dict):
            self._hold(title, value, lambda: list(dict.items(value)))
            self._waiting += [(title, part) for pair in dict.items(value) for part in pair]
            self._meet_attributes(title, value)
        elif isinstance(value, (list, set, collections.deque)):
            self._hold(title, value, lambda: list(value))
            self._waiting += [(title, part) for part in value]
            self._meet_attributes(title, value)
        elif isinstance(value, (tuple, frozenset)):
            self._waiting += [(title, part) for part in value]
        elif isinstance(value, (bytearray, itertools.count)):
            self._hold(title, value, lambda: repr(value))
        elif type(value).__module__.startswith("numpy."):
            generator = getattr(value, "bit_generator", None)
            if generator is not None:
                self._hold(title, value, lambda: repr(generator.state))
            elif hasattr(value, "tobytes"):
                self._hold(title, value, lambda: value.tobytes())
        elif isinstance(value, SimpleNamespace) or self._is_own(type(value).__module__):
            if not isinstance(value, Record):  # a record is a value, but caches its hash and code
                self._meet_attributes(title, value)

    def _meet_function(self, function: FunctionType) -> None:
        name = function.__qualname__
        self._hold_names(function.__module__, function.__globals__)
        self._hold_names(name, vars(function))
        self._waiting += [(f"a default of {name}", value) for value in function.__defaults__ or ()]
        self._waiting += [(f"a default of {name}", value) for value in (function.__kwdefaults__ or {}).values()]
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._hold(f"{name}.{variable}", cell, lambda cell=cell: content_of(cell))  # type: ignore[misc]
            self._waiting.append((f"{name}.{variable}", content_of(cell)))

    def _meet_attributes(self, title: str, value: Any) -> None:
        slots = [s for owner in type(value).__mro__ for s in _slots(owner)]
        if slots:
            self._hold(title, value, lambda: [getattr(value, slot, None) for slot in slots])
            self._waiting += [(title, getattr(value, slot, None)) for slot in slots]
        attributes = getattr(value, "__dict__", None)
        if attributes is not None:
            self._hold(title, value, lambda: dict(attributes))
            self._waiting += [(title, attribute) for attribute in attributes.values()]

    def _is_own(self, module: str) -> bool:
        return _is_own(module, self._tops)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # an author's ==, or an array's
        return one is other


@cache
def _is_own(module: str, tops: frozenset[str]) -> bool:
    return is_own_module(sys.modules.get(module), tops)


def _slots(owner: type) -> list[str]:
    slots = vars(owner).get("__slots__", ())
    return [s for s in ((slots,) if isinstance(slots, str) else slots) if not s.startswith("__")]
