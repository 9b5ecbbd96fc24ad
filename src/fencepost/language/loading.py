"""Load the protocol that a user names: a shipped one, or one from a file.

    load("ledger-chaining")    load("./my_protocol.py")    load("protocols.py:Fixed")

No engine is imported here, so a mistake is reported immediately.
"""

from __future__ import annotations

import os
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any, cast

from fencepost.errors import Explained, FencepostError, NotAProtocol, OptionError, naming_extra
from fencepost.files import regular
from fencepost.language.protocol import Protocol, unknown_name
from fencepost.language.seam import Model
from fencepost.language.values import PROTOCOL_MODULE, NotAValue

SHIPPED: dict[str, str] = {
    "bookkeeper": "fencepost.protocols.bookkeeper.current:BookKeeper",
    "bookkeeper-4.13": "fencepost.protocols.bookkeeper.v4_13:BookKeeper413",
    "bookkeeper-boot": "fencepost.protocols.bookkeeper.boot:BookKeeperBoot",
    "bookkeeper-limbo": "fencepost.protocols.bookkeeper.limbo:BookKeeperLimbo",
    "kraft-kip-853": "fencepost.protocols.kraft.kip_853:KRaft",
    "kraft-kip-853-join": "fencepost.protocols.kraft.join:KRaftJoin",
    "quorum": "fencepost.protocols.quorum.quorum:Quorum",
    "store": "fencepost.protocols.store.store:Store",
    "store-roles": "fencepost.protocols.store.roles:StoreRoles",
    "booting-store": "fencepost.protocols.store.booting:BootingStore",
    "running-store": "fencepost.protocols.store.running:RunningStore",
    "autorecovery": "fencepost.protocols.store.autorecovery:AutoRecovery",
    "log": "fencepost.protocols.log.log:Log",
    "log-leader": "fencepost.protocols.log.leader:LogLeader",
    "log-offload": "fencepost.protocols.log.offload:LogOffload",
    "quorum-replica": "fencepost.protocols.quorum.replica:Replicas",
    "running-quorum": "fencepost.protocols.quorum.running:RunningQuorum",
    "running-log": "fencepost.protocols.log.running:RunningLog",
    "ledger-chaining": "fencepost.protocols.ledger_chaining:LedgerChaining",
}
"""Every shipped protocol: its name on the command line, then its module and class."""

SPECIFICATION = ".tla"
"""The ending of files that the room ``tla`` loads."""

TLA = "fencepost.tla.protocol"
"""The module that loads them. It is on a floor above this one, and may need a library."""


def shipped(name: str) -> type[Protocol]:
    """The class of the shipped protocol called ``name``.

    Raises :class:`fencepost.NotAProtocol` for any other name, and suggests the nearest one.
    """
    if name not in SHIPPED:
        raise NotAProtocol(unknown_name("protocol", name, SHIPPED, "fencepost"))
    module, _, owner = SHIPPED[name].partition(":")
    return cast("type[Protocol]", getattr(import_module(module), owner))


class Loadable(typing.Protocol):
    """What a user has named, before its constants are known: the class of a protocol, or a specification."""

    @property
    def name(self) -> str: ...

    def configured(self, configuration: str | None = None, /, **constants: Any) -> Model: ...


class Described(Loadable, typing.Protocol):
    """A specification, which describes itself."""

    def description(self, width: int) -> str: ...


def find(argument: str, libraries: Sequence[str] = ()) -> type[Protocol] | Described:
    """What ``argument`` names: a shipped name, ``PATH.py``, ``PATH.py:ClassName``, or ``PATH.tla``. ``libraries``:
    folders with modules that a specification may use.

    Raises :class:`fencepost.NotAProtocol` for an unknown name, or for a file that is missing, cannot be read or
    imported, or does not hold exactly one protocol.
    """
    if argument.endswith(SPECIFICATION):
        with naming_extra(argument, "tla"):
            specification: Described = import_module(TLA).find(argument, libraries)
            return specification
    if libraries:
        raise OptionError(f"{{library}} is for specifications in TLA+, and {argument} is none: leave it out", "library")
    return load(argument)


def given(words: Sequence[str]) -> Model:
    """The model that these words give: see :meth:`fencepost.language.seam.Language.words`. Raises as :func:`find` and
    :func:`configured` do.
    """
    argument, *rest = words
    options: dict[str, list[str]] = {"--config": [], "-D": [], "--library": []}
    for option, value in zip(rest[::2], rest[1::2], strict=True):
        options[option].append(value)
    configuration = options["--config"][0] if options["--config"] else None
    return configured(find(argument, options["--library"]), configuration, options["-D"], argument)


def load(argument: str) -> type[Protocol]:
    """The protocol class that ``argument`` names: a shipped name, ``PATH.py`` or ``PATH.py:ClassName``. Raises as
    :func:`find` does.
    """
    path, colon, name = split(argument)
    if colon:
        if not name:
            raise NotAProtocol(f"{argument} names no class after the colon: write {path}:ClassName")
        return _named(from_file(path), name, path)
    if argument.endswith(".py") or os.sep in argument or (os.altsep and os.altsep in argument):
        return _only(from_file(argument), argument)
    if argument not in SHIPPED:
        raise NotAProtocol(_no_such_protocol(argument, [*SHIPPED]))
    return shipped(argument)


def split(argument: str) -> tuple[str, str, str]:
    """``PATH.py:ClassName`` as (path, colon, class name). For a name or a path alone, the colon and the class name are
    "".
    """
    stem, separator, name = argument.partition(".py:")
    return (stem + ".py", ":", name) if separator else (argument, "", "")


def configured(
    protocol: Loadable, configuration: str | None, definitions: Iterable[str] = (), given: str = ""
) -> Model:
    """``protocol`` in one of its configurations, changed by ``NAME=VALUE`` definitions.

    Raises :class:`fencepost.OptionError` for an unknown name or a value of the wrong type, and
    :class:`fencepost.NotAProtocol` if the declarations fail with these constants.
    """
    constants: dict[str, str] = {}
    for definition in definitions:
        name, equals, value = definition.partition("=")
        name = name.strip()
        if not equals or not name:
            raise OptionError(f"-D {definition} is not of the form NAME=VALUE")
        if name in constants:
            raise OptionError(f"-D {name} is given twice, as {constants[name]} and as {value}: leave one out")
        constants[name] = value.strip()
    return set_up(protocol, configuration, constants, given)


def set_up(protocol: Loadable, configuration: str | None, constants: Mapping[str, Any], given: str = "") -> Model:
    """``protocol`` in one of its configurations, changed by ``constants``. Raises as :func:`configured` does."""
    try:
        return protocol.configured(configuration, **constants)
    except (OptionError, Explained):
        raise
    except (FencepostError, NotAValue) as error:
        if not isinstance(protocol, type):  # a specification says itself where it is wrong
            raise
        raise NotAProtocol(f"{given or protocol.name} cannot be set up: {error}") from error
    except Exception as error:
        raise NotAProtocol(f"{given or protocol.name} cannot be set up: {_brief(error)}") from error


# -- files ------------------------------------------------------------------------------------------------------------


def from_file(path: str) -> types.ModuleType:
    """The module of a file, which is run again on every call. It can import files next to it.

    Raises :class:`fencepost.NotAProtocol` with the line if the file cannot be read, compiled or run.
    """
    code = _compiled(path, _read(path))
    name = PROTOCOL_MODULE + os.path.splitext(os.path.basename(path))[0]
    module = types.ModuleType(name)
    module.__file__ = path
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        # Last, not first: a file named queue.py next to it must not hide the standard queue module.
        sys.path.append(folder)
    # Records look up their annotations in the module, so it must be registered before its classes are made.
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        raise NotAProtocol(f"{path} cannot be loaded: it exits Python{_at(error, path)}") from error
    except Exception as error:
        # Before Python 3.12, an error of a declaration arrives wrapped.
        cause = error.__cause__ if type(error) is RuntimeError and error.__cause__ is not None else error
        message = str(cause) if isinstance(cause, (FencepostError, NotAValue)) else _brief(cause)
        raise NotAProtocol(f"{path} cannot be loaded{_at(error, path)}: {message}") from error
    return module


def _read(path: str) -> bytes:
    with missing_is_an_error(path):
        return regular.content(path)


@contextmanager
def missing_is_an_error(path: str) -> Iterator[None]:
    """Turn the failure to read a user's file into :class:`fencepost.NotAProtocol`."""
    try:
        yield
    except FileNotFoundError:
        raise NotAProtocol(_no_such_file(path)) from None
    except IsADirectoryError:
        raise NotAProtocol(f"{path} is a directory: give a {_ending(path)} file in it") from None
    except OSError as error:
        raise NotAProtocol(f"{path} cannot be read: {error.strerror or error}") from None


def _compiled(path: str, source: bytes) -> Any:
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f" line {error.lineno}:" if error.lineno else ""
        raise NotAProtocol(f"{path} is not Python:{line} {error.msg}") from None
    except ValueError as error:  # null bytes
        raise NotAProtocol(f"{path} is not Python: {error}") from None


def protocols_in(module: types.ModuleType) -> dict[str, type[Protocol]]:
    """The protocols that the file defines itself, by class name, without those whose names begin with ``_``."""
    return {name: value for name, value in _protocols_in(module).items() if not name.startswith("_")}


def _protocols_in(module: types.ModuleType) -> dict[str, type[Protocol]]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Protocol) and value.__module__ == module.__name__
    }


def _only(module: types.ModuleType, path: str) -> type[Protocol]:
    protocols = protocols_in(module)
    if len(protocols) == 1:
        return next(iter(protocols.values()))
    if not protocols:
        raise NotAProtocol(f"{path} defines no protocol: write a class that derives from fencepost.Protocol")
    raise NotAProtocol(
        f"{path} defines {len(protocols)} protocols, {', '.join(protocols)}: say which, as in"
        f" {path}:{next(iter(protocols))}"
    )


def _named(module: types.ModuleType, name: str, path: str) -> type[Protocol]:
    value = getattr(module, name, None)
    if isinstance(value, type) and issubclass(value, Protocol) and value is not Protocol:
        return value
    if value is not None:
        raise NotAProtocol(f"{name} in {path} is not a protocol: it does not derive from fencepost.Protocol")
    raise NotAProtocol(f"{path} has no protocol named {name}{_hint(name, _protocols_in(module))}")


# -- saying what is wrong ---------------------------------------------------------------------------------------------


def _hint(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f": did you mean {' or '.join(near)}?"
    return f": it has {', '.join(names)}" if names else ""


def _no_such_protocol(argument: str, names: list[str]) -> str:
    if not argument:
        return f"give a protocol: a .py file, or one of {', '.join(names)}"
    if os.path.exists(argument + ".py"):
        return f"no protocol named {argument} is shipped: for the file, write {argument}.py"
    if os.path.exists(argument):
        return f"{argument} is not a protocol: give a Python file, ending in .py, or one of {', '.join(names)}"
    near = get_close_matches(argument.lower().replace("_", "-"), names, n=3, cutoff=0.5)
    known = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
    return f"no protocol named {argument} is shipped: {known} (a file of your own ends in .py)"


def _ending(path: str) -> str:
    return SPECIFICATION if path.endswith(SPECIFICATION) else ".py"


def _no_such_file(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        near = get_close_matches(name, [f for f in os.listdir(folder or ".") if f.endswith(_ending(path))], n=1)
    except OSError:
        return f"there is no file {path}: there is no folder {folder}"
    return f"there is no file {path}" + (f": did you mean {os.path.join(folder, near[0])}?" if near else "")


def _at(error: BaseException, path: str) -> str:
    """The line of the user's file that was running, as ``, line N``."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f", line {line}" if line is not None else ""


def _brief(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}, is not Python: {error.msg}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"it imports {error.name}, which is not installed and not a file next to it"
    return f"{type(error).__name__}{': ' + said[0] if said else ''}"


def expectation(protocol: Model | type[Model], configuration: str | None) -> str | None:
    """The expected verdict of a configuration. None if it expects none."""
    known = protocol.configurations.get(configuration or "")
    return None if known is None else known.expect
