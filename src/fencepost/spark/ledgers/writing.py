"""Writing a log: each task writes its own ledgers, and the driver attaches them all at once, and only once; see
:mod:`fencepost.log.batches`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from fencepost.api.client import Client
from fencepost.errors import OptionError
from fencepost.log.batches import Batches, Part
from fencepost.log.errors import MissingLedgerError, NoSuchLogError
from fencepost.spark.ledgers.options import WriteOptions
from fencepost.spark.ledgers.reading import lost, store_at

COLUMNS = {"value": "the data of the entries", "key": "their keys"}
TYPES = ("binary", "string")

AT_ONCE = 10_000
"""The number of rows that become entries at once."""

TIDY_EVERY = 100
"""A stream deletes the ledgers of abandoned batches once in this number of batches."""


class Batch(msgspec.Struct, frozen=True):
    """Rows that are written at once: the batch ``number`` of a ``writer``. ``remembered``: the batch may be written
    again, and must be in the log once.
    """

    writer: str
    number: int
    remembered: bool

    def of(self, store: Client, options: WriteOptions) -> Batches:
        """The handle for the batches of its writer."""
        return store.log(options.log, password=options.password).batches(self.writer, remembered=self.remembered)


def check_columns(columns: Iterable[tuple[str, str]]) -> None:
    """Check that columns, by names and Spark types, can be written. Raises :class:`fencepost.OptionError`."""
    types = dict(columns)
    for name, kind in types.items():
        if name not in COLUMNS:
            there_are = " and ".join(f"{each}, {what}" for each, what in COLUMNS.items())
            raise OptionError(f"column {name} cannot be written to a log: there are {there_are}")
        if kind not in TYPES:
            raise OptionError(f"column {name} is {kind}: cast it to {' or '.join(TYPES)}")
    if "value" not in types:
        raise OptionError("there is no column value, which has the data of the entries")


def write(options: WriteOptions, batch: Batch, rows: Iterator[Any]) -> Part:
    """Write the rows of a partition, given as Arrow batches, to ledgers that are not in the log yet. Writes nothing if
    the batch is in the log.

    Raises :class:`StoreError`, and :class:`fencepost.OptionError` for a row without a value. The written ledgers are
    deleted then.
    """
    store = store_at(options.metadata)
    batches = store.run(lambda store: _batches(store, options, batch))
    if batches is None:
        return Part()
    writing = batches.part(batch.number)
    try:
        for each in rows:
            for data, keys in _entries(each):
                store.run(lambda _, data=data, keys=keys: writing.append(data, keys))  # type: ignore[misc]
        return store.run(lambda _: writing.close())
    except BaseException:
        store.run(lambda _: writing.discard())
        raise


async def _batches(store: Client, options: WriteOptions, batch: Batch) -> Batches | None:
    """The handle for the batch's writer; None if the batch is in the log."""
    batches = batch.of(store, options)
    try:
        return None if await batches.has(batch.number) else batches
    except NoSuchLogError as error:
        raise NoSuchLogError(f"option log: {error}") from None


def _entries(rows: Any) -> Iterator[tuple[list[bytes], list[bytes | None] | None]]:
    """Yield the data of rows, and their keys if there are any, in chunks."""
    import pyarrow as pa

    columns = {name: rows.column(name).cast(pa.large_binary()) for name in rows.schema.names}
    values, keys = columns["value"], columns.get("key")
    if values.null_count:
        raise OptionError("column value is null in some row: an entry has data, if only of no bytes")
    for start in range(0, rows.num_rows, AT_ONCE):
        some = values.slice(start, AT_ONCE).to_pylist()
        yield some, None if keys is None else keys.slice(start, AT_ONCE).to_pylist()


def commit(options: WriteOptions, batch: Batch, parts: Sequence[Part]) -> None:
    """Attach the written parts to the log, in this order, unless the batch is in it. Raises :class:`StoreError`."""

    async def attach(store: Client) -> None:
        batches = batch.of(store, options)
        try:
            await batches.attach(
                batch.number, parts, wait=options.lead_timeout, despite_missing=not options.fail_on_data_loss
            )
        except MissingLedgerError as error:
            raise lost(error) from None
        if batch.number % TIDY_EVERY == 0:
            await batches.delete_given_up(time.time_ns() // 1_000_000)

    store_at(options.metadata).run(attach)


def abort(options: WriteOptions, batch: Batch) -> None:
    """Delete the written parts, unless they are in the log. Raises :class:`StoreError`."""
    store_at(options.metadata).run(lambda store: batch.of(store, options).withdraw(batch.number))
