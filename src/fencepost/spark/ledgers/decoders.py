"""Decoders: what becomes of the bytes of entries before they are the column ``value``.

A decoder is a function that is given the column of a batch as a :class:`pyarrow.BinaryArray`, and gives an array that
is as long. Its attribute ``type`` is the column's type in Spark's words (``"string"``, ``"struct<id: bigint, name:
string>"``); without one that is ``"binary"``.
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
    """Text in UTF-8. Raises :class:`pyarrow.ArrowInvalid` for bytes that are none."""
    import pyarrow as pa

    return values.cast(pa.string())


utf8.type = "string"  # type: ignore[attr-defined]

NAMED: dict[str, Decoder] = {"utf8": utf8, "pulsar": pulsar}
"""The decoders that have a name of their own."""


def decoder_of(name: str) -> Decoder:
    """The decoder that has this name, or that is at this path: ``package.module:function``, or with dots alone.

    Raises :class:`fencepost.OptionError` if there is none.
    """
    if name in NAMED:
        return NAMED[name]
    module, _, function = name.rpartition(":") if ":" in name else name.rpartition(".")
    wanted = f"give {', '.join(NAMED)}, or a function as package.module:function"
    if not module or not function:
        raise OptionError(f"option decoder is {name!r}, which is not known: {wanted}")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"option decoder is {name!r}, which cannot be imported ({error}): {wanted}") from None
    if not callable(found):
        raise OptionError(f"option decoder is {name!r}, which is no function: {wanted}")
    decoder: Decoder = found
    return decoder


def type_of(name: str | None) -> str:
    """The type that the column ``value`` has with this decoder, in Spark's words."""
    return BINARY if name is None else str(getattr(decoder_of(name), "type", BINARY))
