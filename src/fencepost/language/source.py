"""The source of a protocol: the files of its classes, and every module of the author's that their code can import.

Imports are parsed from the text, and nothing is imported. Those inside functions count, whether or not they have run.
The standard library, installed packages and Fencepost are not the author's.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from collections.abc import Collection, Iterator
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import ModuleType

from fencepost.files.digest import running
from fencepost.language.protocol import Protocol, declarations_of

SHIPPED = "fencepost.protocols"

_INSTALLED = {"site-packages", "dist-packages"}
_LIBRARY = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
_FILELESS = {*sys.builtin_module_names, "builtins"}
_LOADERS = (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, SOURCE_SUFFIXES)


def source_digest(protocol: Protocol) -> str:
    """A digest of a protocol's source. Another version of the source may number its steps differently.

    It misses modules whose names are computed at run time.
    """
    whole = running()
    whole.update(repr(declared_as(protocol)).encode())
    for name, content in _modules(protocol):
        whole.update(f"{name} {len(content)} ".encode())
        whole.update(content)
    return str(whole.hexdigest())


def declared_as(protocol: Protocol) -> list[tuple[str, ...]]:
    """The kind, the name and the source position of every action and property of a protocol. The position matters
    because a decorator or an assignment may add a function from any file.
    """
    result = []
    for name, declared in declarations_of(protocol).items():
        code = getattr(declared.function, "__code__", None)
        where = () if code is None else (os.path.basename(code.co_filename), code.co_qualname, str(code.co_firstlineno))
        result.append((declared.kind, name, *where))
    return result


def _modules(protocol: Protocol) -> Iterator[tuple[str, bytes]]:
    """The modules of a protocol's classes and all that these can import, as (name, text). Each has the name under which
    it was first reached.
    """
    waiting: list[tuple[str, str, str]] = []  # name, package, file
    tops = owners(type(protocol))
    for owner in type(protocol).__mro__:
        if owner in Protocol.__mro__:
            continue
        module = sys.modules.get(owner.__module__)
        file = getattr(module, "__file__", None)
        if file is not None:
            waiting.append((owner.__qualname__, getattr(module, "__package__", None) or "", file))
    for declared in declarations_of(protocol).values():
        module = sys.modules.get(getattr(declared.function, "__module__", ""))
        file = getattr(module, "__file__", None)
        if module is not None and file is not None and is_own_module(module, tops):
            waiting.append((module.__name__, module.__package__ or "", file))
    if not waiting:
        yield type(protocol).__qualname__, repr(type(protocol)).encode()
    seen: set[Path] = set()
    for name, package, file in waiting:  # which grows
        path = Path(file).resolve()
        if path in seen:
            continue
        seen.add(path)
        content = _content(path)
        yield name, content
        for imported in _imports(content, package):
            for spec in _specs(imported):
                if spec.origin is not None and spec.has_location and is_own(spec.name, spec.origin, tops):
                    waiting.append((spec.name, spec.parent or "", spec.origin))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ran from an archive, or was deleted
        return b""


def _imports(content: bytes, package: str) -> list[str]:
    """The full names of the modules that a text imports. A ``*`` import of a package ends with ``.*``."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # compiled code
        return []
    imports = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            imports += [
                (module, node.level),
                *((f"{module}.{alias.name}".lstrip("."), node.level) for alias in node.names),
            ]
        elif isinstance(node, ast.Call) and _calls_import(node.func) and node.args:
            arguments = node.args[0]
            if isinstance(arguments, ast.Constant) and isinstance(arguments.value, str):
                stem = arguments.value.lstrip(".")
                imports.append((stem, len(arguments.value) - len(stem)))
    names = []
    for name, level in imports:
        try:
            names.append(resolve_name("." * level + name, package) if level else name)
        except ImportError:  # above the top package: it would fail when run
            continue
    return names


def _calls_import(called: ast.expr) -> bool:
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ("import_module", "__import__")


def _specs(name: str) -> Iterator[ModuleSpec]:
    """A module and its enclosing packages, as far as they exist: Python would run all of them. Nothing is imported."""
    top, *rest = name.split(".")
    try:
        spec = find_spec(top) if top else None
    except (
        ImportError,
        ValueError,
    ):  # a module without a specification, such as the file that the command line was given
        return
    whole = top
    while spec is not None:
        yield spec
        if not rest or spec.submodule_search_locations is None:
            return
        folders, part = list(spec.submodule_search_locations), rest.pop(0)
        if part == "*":
            for folder in folders:
                for file in sorted(Path(folder).glob("*")):
                    yield from _below(whole, file.name.partition(".")[0], [folder])
            return
        whole = f"{whole}.{part}"
        spec = next(_below(whole.rpartition(".")[0], part, folders), None)


def _below(package: str, name: str, folders: list[str]) -> Iterator[ModuleSpec]:
    """The module of a package, from the first folder that has it."""
    for folder in folders:
        spec = FileFinder(folder, *_LOADERS).find_spec(f"{package}.{name}")
        if spec is not None:
            yield spec
            return


def owners(protocol: type[Protocol]) -> set[str]:
    """The top-level packages of a protocol's classes: ``tops`` for :func:`is_own`."""
    return {owner.__module__.partition(".")[0] for owner in protocol.__mro__ if owner not in Protocol.__mro__}


def is_own_module(module: ModuleType | None, tops: Collection[str]) -> bool:
    """Whether an imported module is the author's. See :func:`is_own`."""
    return (
        module is not None
        and is_own(module.__name__, getattr(module, "__file__", None) or "", tops)
        and module.__name__ not in _FILELESS
    )


def is_own(name: str, file: str, tops: Collection[str]) -> bool:
    """Whether a module is the author's. ``tops``: the top-level packages of the protocol's classes. Their modules
    count, installed or not.
    """
    top = name.partition(".")[0]
    if top == "fencepost":
        return name.startswith(SHIPPED)
    path = Path(file)
    if top in tops:
        return True
    return _INSTALLED.isdisjoint(path.parts) and not any(path.is_relative_to(folder) for folder in _LIBRARY)
