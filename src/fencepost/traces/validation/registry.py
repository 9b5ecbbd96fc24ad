"""Finds a conformance: a shipped one by the name of its protocol, or one in a user's file."""

from __future__ import annotations

import inspect
import os
import re
import types
from importlib import import_module
from pathlib import Path

from fencepost.errors import NotAProtocol
from fencepost.language import loading
from fencepost.language.protocol import Protocol
from fencepost.text.plain import meant
from fencepost.traces.foreign import Foreign
from fencepost.traces.validation.conformance import Conformance
from fencepost.traces.validation.replay import specifications

SHIPPED = {
    "store": "fencepost.protocols.store.recorded_conformance:AnyStoreConformance",
    "bookkeeper": "fencepost.protocols.store.recorded_conformance:AnyStoreConformance",
    "running-store": "fencepost.protocols.store.conformance:StoreConformance",
    "log": "fencepost.protocols.log.conformance:LogConformance",
    "quorum": "fencepost.protocols.quorum.conformance:QuorumConformance",
    "recorded-store": "fencepost.protocols.store.recorded_conformance:RecordedConformance",
}
"""The conformance of each protocol, by the protocol's name. `store` refines `bookkeeper`, so a trace of one is a
behaviour of the other. Both are checked against `running-store` or `recorded-store`, depending on who wrote the trace.
Traces of logs are checked against `running-log`, traces of quorums against `running-quorum`.
"""


METHODS = (
    "of", "constants", "bind", "steps", "hidden", "in_order", "objections", "is_untouched", "names", "is_over",
    "still_needed", "read",
)  # fmt: skip
"""What a conformance may define."""


def resolve(reference: str, protocol: str | None = None, configuration: str | None = None) -> type[Conformance]:
    """The conformance named by ``reference``: a protocol's name, ``FILE.py`` or ``FILE.py:NAME``. ``protocol`` and
    ``configuration``: as for :func:`from_file`. Raises as :func:`shipped` and :func:`from_file`.
    """
    return from_file(reference, protocol, configuration) if ".py" in reference else shipped(reference)


def shipped(protocol: str) -> type[Conformance]:
    """The conformance of a shipped protocol. Raises :class:`fencepost.NotAProtocol` if there is none."""
    place = SHIPPED.get(protocol)
    if place is None:
        raise NotAProtocol(
            f"no conformance of a protocol named {protocol} is shipped:"
            f" {meant(protocol.lower(), SHIPPED, 'there are')} (a conformance of your own is a file, ending in .py)"
        )
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)  # type: ignore[no-any-return]


def from_file(reference: str, protocol: str | None = None, configuration: str | None = None) -> type[Conformance]:
    """The conformance in ``FILE.py`` or ``FILE.py:NAME``. NAME is its class, or the name of its protocol. ``protocol``:
    the file of a specification in place of its own, and ``configuration``: that of the specification.

    Raises :class:`fencepost.NotAProtocol` if the file cannot be loaded, or if the choice is not exactly one.
    """
    path, colon, name = loading.split(reference)
    if not path.endswith(".py"):
        raise NotAProtocol(f"{reference} is no conformance: give a Python file, ending in .py")
    module = loading.from_file(path)
    conformances = {
        name: _against(each, path, protocol, configuration)
        for name, each in _conformances_in(module, protocol is not None).items()
    }
    for each in conformances.values():
        _look(each, path)
        try:
            re.compile(each.subjects)
        except re.error as error:
            raise NotAProtocol(f"{each.__name__}.subjects in {path} is no regular expression: {error}") from None
    if colon:
        chosen = conformances.get(name) or next((each for each in conformances.values() if each.name == name), None)
        if chosen is None:
            unfinished = vars(module).get(name)
            if isinstance(unfinished, type) and issubclass(unfinished, Conformance):
                lacks = [
                    *sorted(unfinished.__abstractmethods__),
                    *([] if hasattr(unfinished, "protocol") else ["protocol"]),
                ]
                raise NotAProtocol(f"{name} in {path} is not complete: it does not define {' and '.join(lacks)}")
            raise NotAProtocol(f"{path} has no conformance named {name}: it has {', '.join(conformances) or 'none'}")
        return chosen
    if len(conformances) != 1:
        if conformances:
            names = list(conformances)
            what = f"{len(names)} conformances, {', '.join(names)}: say which, as in {path}:{names[0]}"
        else:
            what = (
                "no conformance: write a class that derives from fencepost.traces.validation.Conformance,"
                " with name and protocol"
            )
        raise NotAProtocol(f"{path} defines {what}")
    return next(iter(conformances.values()))


def foreign_of(conformance: type[Conformance]) -> Foreign | None:
    """What makes events of records of other systems, if the conformance says how."""
    own = getattr(conformance.read, "__func__", conformance.read)
    if own is Conformance.read.__func__:  # type: ignore[attr-defined]
        return None
    return Foreign(conformance.read, f"{conformance.__name__}.read")


def _look(conformance: type[Conformance], path: str) -> None:
    """Raises :class:`fencepost.NotAProtocol` for what no trace could be validated with."""
    own, name = conformance.protocol, conformance.__name__
    if not isinstance(own, str) and not (isinstance(own, type) and issubclass(own, Protocol)):
        raise NotAProtocol(
            f"{name}.protocol in {path} is {own!r}, and neither a class of a protocol nor the file of a specification"
        )
    if not hasattr(conformance, "name"):
        raise NotAProtocol(f"{name} in {path} has no name: write name = ...")
    for method in METHODS:
        if not callable(found := getattr(conformance, method)):
            raise NotAProtocol(f"{name}.{method} in {path} is {found!r}, and no method")
    for attribute in ("name", "subjects"):
        if not isinstance(text := getattr(conformance, attribute), str):
            raise NotAProtocol(f"{name}.{attribute} in {path} is {text!r}, and no text")
    heeds = conformance.heeds
    if not isinstance(heeds, (tuple, list, set, frozenset)) or not all(isinstance(each, str) for each in heeds):
        raise NotAProtocol(f"{name}.heeds in {path} is {heeds!r}, and no tuple of names of actions")
    if not isinstance(inspect.getattr_static(conformance, "read"), (classmethod, staticmethod)):
        raise NotAProtocol(f"{name}.read in {path} is no classmethod: write @classmethod above it")


def _conformances_in(module: types.ModuleType, has_protocol: bool) -> dict[str, type[Conformance]]:
    """The conformances that a file defines (not those that it imports), by class name."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Conformance) and value.__module__ == module.__name__
        and (has_protocol or hasattr(value, "protocol")) and not value.__abstractmethods__
    }  # fmt: skip


def _against(
    conformance: type[Conformance], path: str, protocol: str | None, configuration: str | None
) -> type[Conformance]:
    """The conformance with another specification, or with whole paths in place of those beside its file."""
    own, folder = getattr(conformance, "protocol", None), Path(path).absolute().parent
    if protocol is None and not isinstance(own, str):
        return conformance
    chosen = Path(protocol).absolute() if protocol is not None else folder / str(own)
    if not chosen.name.endswith(loading.SPECIFICATION):
        raise NotAProtocol(
            f"{conformance.__name__}.protocol in {path} is {own!r}, and no {loading.SPECIFICATION} file: import the"
            " class of a protocol in Python"
        )
    if not isinstance(conformance.configuration, str | None):
        raise NotAProtocol(
            f"{conformance.__name__}.configuration in {path} is {conformance.configuration!r}, and no name of a file"
        )
    if configuration is None and conformance.configuration is not None:
        configuration = str(folder / conformance.configuration)
    specifications(chosen.name).look(str(chosen), configuration)
    changed = {"protocol": str(chosen), "configuration": configuration and os.path.abspath(configuration)}
    if not hasattr(conformance, "name"):
        changed["name"] = chosen.stem
    return type(conformance.__name__, (conformance,), {**changed, "__module__": conformance.__module__})
