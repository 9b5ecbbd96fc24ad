"""Finds a conformance: that of a protocol that comes with Fencepost, by name, or one from a file of the user's."""

from __future__ import annotations

import re
import types
from importlib import import_module

from fencepost.errors import NotAProtocol
from fencepost.language import loading
from fencepost.text.plain import meant
from fencepost.traces.validation.conformance import Conformance

SHIPPED = {
    "store": "fencepost.protocols.store.recorded_conformance:AnyStoreConformance",
    "bookkeeper": "fencepost.protocols.store.recorded_conformance:AnyStoreConformance",
    "running-store": "fencepost.protocols.store.conformance:StoreConformance",
    "log": "fencepost.protocols.log.conformance:LogConformance",
    "quorum": "fencepost.protocols.quorum.conformance:QuorumConformance",
    "recorded-store": "fencepost.protocols.store.recorded_conformance:RecordedConformance",
}
"""By the name of a protocol, where its conformance is. `store` refines `bookkeeper`: a trace of the one is a behaviour
of the other. Both are held to `running-store` or `recorded-store`, by who has written them; traces of logs are held to
`running-log`, those of quorums to `running-quorum`.
"""


def found(given: str) -> type[Conformance]:
    """The conformance that ``given`` means: a protocol's name, ``FILE.py`` or ``FILE.py:NAME``. Raises as
    :func:`shipped` and :func:`from_file`.
    """
    return from_file(given) if ".py" in given else shipped(given)


def shipped(protocol: str) -> type[Conformance]:
    """The conformance of a protocol by the protocol's name. Raises :class:`fencepost.NotAProtocol` if there is none."""
    place = SHIPPED.get(protocol)
    if place is None:
        raise NotAProtocol(
            f"no conformance of a protocol named {protocol} is shipped:"
            f" {meant(protocol.lower(), SHIPPED, 'there are')} (a conformance of your own is a file, ending in .py)"
        )
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)  # type: ignore[no-any-return]


def from_file(given: str) -> type[Conformance]:
    """The conformance that ``FILE.py`` or ``FILE.py:NAME`` holds; NAME is its class or the protocol that it is for.

    Raises :class:`fencepost.NotAProtocol` if the file cannot be loaded, or does not hold exactly one.
    """
    path, colon, name = loading.split(given)
    if not path.endswith(".py"):
        raise NotAProtocol(f"{given} is no conformance: give a Python file, ending in .py")
    found = _conformances_in(loading.from_file(path))
    for each in found.values():
        try:
            re.compile(each.subjects)
        except (re.error, TypeError) as error:
            raise NotAProtocol(f"{each.__name__}.subjects in {path} is no regular expression: {error}") from None
    if colon:
        chosen = found.get(name) or next((each for each in found.values() if each.name == name), None)
        if chosen is None:
            raise NotAProtocol(f"{path} has no conformance named {name}: it has {', '.join(found) or 'none'}")
        return chosen
    if len(found) != 1:
        if found:
            what = f"{len(found)} conformances, {', '.join(found)}: say which, as in {path}:{next(iter(found))}"
        else:
            what = (
                "no conformance: write a class that derives from fencepost.traces.validation.Conformance,"
                " with name and protocol"
            )
        raise NotAProtocol(f"{path} defines {what}")
    return next(iter(found.values()))


def _conformances_in(module: types.ModuleType) -> dict[str, type[Conformance]]:
    """The conformances that a file itself defines, by the names of their classes."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Conformance) and value.__module__ == module.__name__
        and hasattr(value, "protocol") and not value.__abstractmethods__
    }  # fmt: skip
