"""Python as a modelling language: what an engine asks about a :class:`fencepost.Protocol`."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pickle
import sys
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any

from fencepost.language import loading
from fencepost.language.constants import Symmetric
from fencepost.language.declarations import Declared, initial, invariant
from fencepost.language.protocol import Protocol, constants_of, declarations_of, refuse_changed, variables_of
from fencepost.language.seam import Language
from fencepost.language.source import declared_as, owners, source_digest
from fencepost.language.values import PROTOCOL_MODULE, constant_text


class Python(Language):
    """The language of :class:`fencepost.Protocol`."""

    may_hide_inputs = True

    def declarations(self, model: Protocol) -> Mapping[str, Declared]:
        return declarations_of(model)

    def refuse_changed(self, model: Protocol) -> None:
        refuse_changed(model)

    def digest(self, model: Protocol) -> str:
        return source_digest(model)

    def home(self, model: Protocol) -> str:
        kind = type(model)
        if loading.SHIPPED.get(model.name) == f"{kind.__module__}:{kind.__qualname__}":
            return model.name
        try:
            return f"{os.path.abspath(inspect.getfile(kind))}:{kind.__qualname__}"
        except (OSError, TypeError):
            return ""

    def arguments(self, model: Protocol) -> list[str]:
        words = [_given(model)]
        for name, constant in constants_of(model).items():
            if model.constants[name] != constant.default:
                words += ["-D", f"{name}={constant_text(model.constants[name])}"]
        return words

    def packed(self, model: Protocol) -> bytes | None:
        cls = type(model)
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if "<locals>" in cls.__qualname__ or file is None:
            return None
        from_file = cls.__module__ == "__main__" or cls.__module__.startswith(PROTOCOL_MODULE)
        locator = {
            "path": sys.path,
            "file": os.path.abspath(file) if from_file else None,
            "module": cls.__module__,
            "name": cls.__qualname__,
        }
        return json.dumps(locator).encode() + b"\n" + pickle.dumps((dict(model.constants), declared_as(model)))

    def unpacked(self, content: bytes) -> Protocol:
        head, _, body = content.partition(b"\n")
        locator = json.loads(head)
        sys.path[:] = locator["path"]
        module = loading.from_file(locator["file"]) if locator["file"] else importlib.import_module(locator["module"])
        sys.modules[locator["module"]] = module  # may be __main__, under which the values were pickled
        constants, declared = pickle.loads(body)
        made: Protocol = attrgetter(locator["name"])(module)(**constants)
        if declared_as(made) != declared:
            raise ValueError("code that does not run here has added something to the class")
        return made

    def symmetric(self, model: Protocol) -> Mapping[str, Symmetric]:
        return {name: c.symmetric for name, c in constants_of(model).items() if c.symmetric is not False}

    def is_unordered(self, model: Protocol, constant: str) -> bool:
        return constants_of(model)[constant].prefix is not None

    def extended(
        self, model: Protocol, name: str, holds: Callable[[Any], bool], begin: Callable[[Any], None] | None
    ) -> Protocol:
        declared: dict[str, Any] = {"__module__": type(model).__module__, "name": model.name, name: invariant(holds)}
        if begin is not None:
            setups = model.declared("initial")
            declared[setups[0].name if setups else "begin_here"] = initial(begin)
        made: Protocol = object.__new__(type(type(model).__name__, (type(model),), declared))
        made.__dict__.update(model.__dict__)
        return made

    def packages(self, model: Protocol) -> Collection[str]:
        return owners(type(model))

    def lifelines(self, model: Protocol) -> Mapping[str, str]:
        return {name: v.held_by for name, v in variables_of(model).items() if v.held_by is not None}


def _given(protocol: Protocol) -> str:
    """The name of a protocol on the command line."""
    kind = type(protocol)
    if loading.SHIPPED.get(protocol.name) == f"{kind.__module__}:{kind.__name__}":
        return protocol.name
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or f"{kind.__module__}.py"
    return f"{file}:{kind.__name__}"


PYTHON = Python()
