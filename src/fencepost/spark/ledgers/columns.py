"""Converts batches of entries to Arrow record batches, without a Python object for each entry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from fencepost.ledger.client.reading import EntryBatch
from fencepost.ledger.rules.ensembles import fragment_of
from fencepost.ledger.rules.metadata import LedgerMetadata
from fencepost.log.entries import Frames
from fencepost.spark.ledgers.decoders import decoder_of, type_of
from fencepost.spark.ledgers.parts import Range

TYPES = {
    "log": "string",
    "ledger": "bigint",
    "entry": "bigint",
    "lac": "bigint",
    "length": "bigint",
    "time": "timestamp",
    "key": "binary",
    "value": "binary",
    "bookies": "array<string>",
    "fragment": "bigint",
}
"""The columns and their Spark types."""

ON_REQUEST = ("bookies", "fragment")
OF_LOGS = ("time", "key")


def columns(include_bookies: bool, decoder: str | None, log: str | None) -> dict[str, str]:
    """The columns of a query and their types."""
    types = {**TYPES, "value": type_of(decoder)}
    left_out = ((), ON_REQUEST)[not include_bookies] + ((), OF_LOGS)[log is None]
    return {name: kind for name, kind in types.items() if name not in left_out}


class Rows:
    """Creates rows with the columns of an Arrow ``schema`` and this decoder. ``log``: the name of the log, or None for
    entries of a ledger.
    """

    def __init__(self, schema: Any, decoder: str | None, log: str | None) -> None:
        self.schema = schema
        self.log = log
        self.decode = None if decoder is None else decoder_of(decoder)
        self.decoder = decoder

    def of(self, part: Range, metadata: LedgerMetadata, batch: EntryBatch) -> Any:
        """The rows of a batch of entries of a ``part``: a :class:`pyarrow.RecordBatch`.

        Raises :class:`ValueError` if the decoder does not return one value for each entry, and :class:`LogFormatError`
        for entries that are not those of a log.
        """
        frames = None if self.log is None else Frames(batch.data, batch.offsets, part.created)
        arrays = [self._column(field, part.ledger, metadata, batch, frames) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(
        self, field: Any, ledger: int, metadata: LedgerMetadata, batch: EntryBatch, frames: Frames | None
    ) -> Any:
        count = len(batch)
        if field.name == "value":
            return self._values(field, batch, frames)
        if field.name == "ledger":
            return _numbers(np.full(count, ledger, np.int64))
        if field.name == "entry":
            return _numbers(np.arange(batch.first, batch.first + count, dtype=np.int64))
        if field.name in ("lac", "length"):
            buffer = pa.py_buffer(batch.lacs if field.name == "lac" else batch.lengths)
            return pa.Array.from_buffers(pa.int64(), count, [None, buffer])
        fragment = fragment_of(metadata.fragments, batch.first)
        if field.name == "fragment":
            return _numbers(np.full(count, fragment.first_entry_id, np.int64))
        if field.name == "bookies" and fragment.ensemble:
            size, quorum = len(fragment.ensemble), metadata.write_quorum
            positions = (
                np.arange(quorum)
                + (np.arange(batch.first, batch.first + count) % size if quorum < size else np.zeros(count, np.int64))[
                    :, None
                ]
            )
            bookies = pa.array(list(fragment.ensemble), pa.string()).take(pa.array((positions % size).ravel()))
            return pa.ListArray.from_arrays(np.arange(0, (count + 1) * quorum, quorum, dtype=np.int32), bookies).cast(
                field.type
            )
        if field.name == "time" and frames is not None:
            return _numbers(frames.times * 1000).cast(pa.timestamp("us")).cast(field.type)
        if field.name == "key" and frames is not None:
            return _keys(frames).cast(field.type)
        if field.name == "log" and self.log is not None:
            return pa.repeat(pa.scalar(self.log, field.type), count)
        return pa.nulls(count, field.type)

    def _values(self, field: Any, batch: EntryBatch, frames: Frames | None) -> Any:
        data, offsets = (batch.data, batch.offsets) if frames is None else frames.packed()
        values = _binary(
            pa.large_binary() if self.decode is None and field.type == pa.large_binary() else pa.binary(), data, offsets
        )
        if self.decode is None:
            return values
        try:
            made = self.decode(values)
        except Exception as error:
            raise ValueError(f"option decoder: {self.decoder} failed for {batch!r}: {error}") from error
        if not isinstance(made, pa.Array) or len(made) != len(batch):
            said = f"{len(made)} values" if isinstance(made, pa.Array) else type(made).__name__
            raise ValueError(
                f"option decoder: {self.decoder} gave {said} for {len(batch)} entries: it has to give an Arrow array"
                " that is as long"
            )
        return made if made.type == field.type else made.cast(field.type)


def _binary(kind: Any, data: memoryview, offsets: memoryview, validity: Any = None) -> Any:
    positions = np.frombuffer(offsets, np.int64)
    buffers = [
        validity,
        pa.py_buffer(positions if kind == pa.large_binary() else positions.astype(np.int32)),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(kind, len(positions) - 1, buffers)


def _keys(frames: Frames) -> Any:
    """The keys of entries; null for entries without one."""
    has_key = frames.key_starts >= 0
    if not has_key.any():
        return pa.nulls(len(frames), pa.binary())
    starts = np.where(has_key, frames.key_starts, frames.starts)
    offsets = np.zeros(len(frames) + 1, np.int64)
    np.cumsum(frames.starts - starts, out=offsets[1:])
    positions = np.repeat(starts - offsets[:-1], frames.starts - starts) + np.arange(offsets[-1])
    keys = np.frombuffer(frames.data, np.uint8)[positions]
    return _binary(pa.binary(), keys.data, offsets.data, pa.array(has_key).buffers()[1])


def _numbers(values: Any) -> Any:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
