"""Decoders: functions that turn the bytes of entries into the column ``value``.

A decoder takes the column of a batch as a :class:`pyarrow.BinaryArray`, and returns an array of the same length. Its
attribute ``type`` is the column's Spark type (``"string"``, ``"struct<id: bigint, name: string>"``); ``"binary"`` by
default.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from fencepost.errors import OptionError
from fencepost.spark.ledgers.pulsar import pulsar

Decoder = Callable[[Any], Any]

BINARY = "binary"


def utf8(values: Any) -> Any:
    """Text in UTF-8. Raises :class:`pyarrow.ArrowInvalid` for other bytes."""
    import pyarrow as pa

    return values.cast(pa.string())


utf8.type = "string"  # type: ignore[attr-defined]

NAMED: dict[str, Decoder] = {"utf8": utf8, "pulsar": pulsar}
"""The built-in decoders."""


def decoder_of(name: str) -> Decoder:
    """The decoder with this name or path: ``package.module:function``, or with dots only.

    Raises :class:`fencepost.OptionError` if there is none.
    """
    if name in NAMED:
        return NAMED[name]
    module, _, function = name.rpartition(":") if ":" in name else name.rpartition(".")
    wanted = f"give {', '.join(NAMED)}, or a function as package.module:function"
    if not module or not function:
        raise OptionError(f"option decoder is {name!r}, which is not known: {wanted}")
    try:
        function_at = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"option decoder is {name!r}, which cannot be imported ({error}): {wanted}") from None
    if not callable(function_at):
        raise OptionError(f"option decoder is {name!r}, which is no function: {wanted}")
    decoder: Decoder = function_at
    return decoder


def type_of(name: str | None) -> str:
    """The Spark type of the column ``value`` with this decoder."""
    return BINARY if name is None else str(getattr(decoder_of(name), "type", BINARY))
