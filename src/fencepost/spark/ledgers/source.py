"""The data source ``fencepost`` of PySpark: ``spark.read.format("fencepost")`` and
``spark.readStream.format("fencepost")``, and the same with ``write``.

Every session of Spark that finds :mod:`pyspark_fencepost` imports this module. So it imports the modules for planning,
reading and writing only when they are needed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from fencepost.errors import OptionError, SystemFailure, naming_extra

if TYPE_CHECKING:
    from fencepost.log.batches import Part as WrittenPart
    from fencepost.spark.ledgers.options import ReadOptions, WriteOptions
    from fencepost.spark.ledgers.stream import Stream
    from fencepost.spark.ledgers.writing import Batch

NAME = "fencepost"


class Part(InputPartition):  # type: ignore[misc]
    """Ranges of entries for one task."""


class FencepostSource(DataSource):  # type: ignore[misc]
    """Ledgers as rows; see docs/run/spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return NAME

    def schema(self) -> str:
        """The columns. Raises :class:`fencepost.OptionError`, like the methods below."""
        options = self._options()
        from fencepost.spark.ledgers.columns import columns

        types = columns(options.include_bookies, options.decoder, options.log)
        return ", ".join(f"{name} {kind}" for name, kind in types.items())

    def reader(self, schema: Any) -> DataSourceReader:
        """The reader of a batch query."""
        options = self._options()
        for name in ("maxEntriesPerTrigger", "maxBytesPerTrigger"):
            if name in self.options:
                raise OptionError(f"option {name} is for streams: this query reads all that there is")
        return LedgerReader(options, _checked(schema, options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """The reader of a stream."""
        options = self._options()
        if options.has_end:
            raise OptionError(
                "option endingOffsets is for queries that are no streams: leave it out, or use the trigger availableNow"
            )
        return LedgerStreamReader(options, _checked(schema, options))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of a DataFrame."""
        return LogWriter(self._write_options(schema, overwrite, streams=False))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of a stream."""
        return LogStreamWriter(self._write_options(schema, overwrite, streams=True))

    def _write_options(self, schema: Any, overwrite: bool, streams: bool) -> WriteOptions:
        with naming_extra("the data source fencepost", "spark"):
            from fencepost.spark.ledgers.options import parse_write
            from fencepost.spark.ledgers.writing import check_columns

            options = parse_write(dict(self.options), streams)
        if overwrite:
            wanted = 'outputMode("append")' if streams else 'mode("append")'
            raise OptionError(f"a log is only appended to: give {wanted}")
        check_columns((field.name, field.dataType.simpleString()) for field in schema.fields)
        return options

    def _options(self) -> ReadOptions:
        with naming_extra("the data source fencepost", "spark"):
            from fencepost.spark.ledgers.options import parse

            return parse(dict(self.options))


def _checked(schema: Any, options: ReadOptions) -> Any:
    """The schema, if all its columns exist. A query that gives a schema reads no other columns."""
    from fencepost.spark.ledgers.columns import columns

    there_are = columns(options.include_bookies, options.decoder, options.log)
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in there_are:
            raise OptionError(f"schema: there is no column {field.name}: there are {', '.join(there_are)}")
        of_column = "".join(there_are[field.name].split())
        if kind != of_column and (field.name != "value" or options.decoder is None):
            raise OptionError(f"schema: column {field.name} is {there_are[field.name]}, not {kind}")
    return schema


def _read(options: ReadOptions, schema: Any, partition: InputPartition) -> Iterator[Any]:
    from pyspark.sql.pandas.types import to_arrow_schema

    from fencepost.spark.ledgers.columns import Rows
    from fencepost.spark.ledgers.reading import read

    if partition.value is None:  # Spark's value for no partition
        return
    rows = Rows(to_arrow_schema(schema, timezone="UTC"), options.decoder, options.log)
    for each, metadata, batch in read(options, partition.value):
        yield rows.of(each, metadata, batch)


class LedgerReader(DataSourceReader):  # type: ignore[misc]
    """Reads all entries that can be read when the query is planned."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        from fencepost.spark.ledgers.filters import ANY

        self.options = options
        self.schema = schema
        self.ledgers, self.entries = ANY, ANY

    @property
    def pushFilters(self) -> Callable[[list[Any]], Iterable[Any]]:
        """Take conditions from Spark, only if option ``filterPushdown`` says that the DataFrame is used once.

        Spark 4.3 keeps one plan of a Python source for each ``load()``. So the conditions of one query also apply to
        the next query of the same DataFrame, and those of one part of a query to its other parts.

        While ``spark.sql.python.filterPushdown.enabled`` is off, Spark refuses a reader that has this method. This one
        works without conditions too, so :class:`_WhereAllowed` hides the method from that check.
        """
        if self.options.filter_pushdown:
            return _WhereAllowed(self._push_filters)
        inherited: Callable[[list[Any]], Iterable[Any]] = super().pushFilters
        return inherited

    def _push_filters(self, filters: list[Any]) -> Iterable[Any]:
        """Restrict the read to ledgers and entries that satisfy the conditions. Returns the conditions that Spark still
        has to apply.
        """
        from fencepost.spark.ledgers.filters import take

        left = []
        for each in filters:
            self.ledgers, self.entries, is_all = take(each, self.ledgers, self.entries)
            if not is_all:
                left.append(each)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions."""
        from fencepost.spark.ledgers import logs, planning
        from fencepost.spark.ledgers.reading import store_at

        store = store_at(self.options.metadata)
        batch = planning.batch if self.options.log is None else logs.batch
        work = store.run(lambda store: batch(store, self.options, self.ledgers, self.entries))
        return [Part(part) for part in work]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one partition, on an executor."""
        return _read(self.options, self.schema, partition)


class _WhereAllowed:
    """A method that looks inherited when Spark checks for an override, and works when Spark calls it."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, method: Callable[[list[Any]], Iterable[Any]]) -> None:
        self._method = method

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._method(filters)


class LedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Follows ledgers as they are written, up to the last confirmed entry."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self.options = options
        self.schema = schema
        self._stream: Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Connections are not sent to executors, which have their own."""
        return {**vars(self), "_stream": None}

    @property
    def stream(self) -> Stream:
        """The driver's side."""
        from fencepost.spark.ledgers.logs import LogStream
        from fencepost.spark.ledgers.stream import Stream

        if self._stream is None:
            self._stream = (Stream if self.options.log is None else LogStream)(self.options)
        return self._stream

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a batch."""
        if self.options.max_entries is not None:
            return ReadMaxRows(self.options.max_entries)
        return ReadAllAvailable() if self.options.max_bytes is None else ReadMaxBytes(self.options.max_bytes)

    def initialOffset(self) -> dict[str, Any]:
        """The offsets of a new query."""
        return self.stream.begin()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The offsets after the next batch."""
        is_all = isinstance(limit, ReadAllAvailable)  # the limit overrides the options
        max_entries = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None if is_all else self.options.max_bytes
        return self.stream.after(start, max_entries, max_bytes)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The offsets that were last available."""
        return None if self._stream is None else self._stream.seen

    def prepareForTriggerAvailableNow(self) -> None:
        """End with the entries that are confirmed now."""
        self.stream.end_at_present()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a batch."""
        return [Part(part) for part in self.stream.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one partition, on an executor."""
        return _read(self.options, self.schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed the batches up to ``end``."""
        self.stream.committed(end)

    def stop(self) -> None:
        """The query has ended."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class Written(WriterCommitMessage):  # type: ignore[misc]
    """The report of a task: the number of its partition, its batch, and the part of the batch that it has written."""

    def __init__(self, partition: int, batch: Batch, part: WrittenPart) -> None:
        self.partition = partition
        self.batch = batch
        self.part = part


def _in_order(messages: Sequence[Written | None]) -> list[WrittenPart]:
    """The written parts, in the order of the partitions."""
    return [
        each.part for each in sorted((each for each in messages if each is not None), key=lambda each: each.partition)
    ]


class LogWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a DataFrame to a log."""

    def __init__(self, options: WriteOptions) -> None:
        from fencepost.spark.ledgers.writing import Batch

        self.options = options
        self.batch = Batch(options.write_id or uuid.uuid4().hex, 0, options.write_id is not None)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write a partition, on an executor."""
        from pyspark import TaskContext

        from fencepost.spark.ledgers.writing import write

        return Written(TaskContext.get().partitionId(), self.batch, write(self.options, self.batch, iterator))

    def commit(self, messages: list[Any]) -> None:
        """Attach all written parts to the log."""
        from fencepost.spark.ledgers.writing import commit

        commit(self.options, self.batch, _in_order(messages))

    def abort(self, messages: list[Any]) -> None:
        """Delete all written parts."""
        from fencepost.spark.ledgers.writing import abort

        abort(self.options, self.batch)


class LogStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes a stream to a log, batch after batch.

    Spark uses another writer object to commit a batch. So tasks report the query, by the id that Spark stores in its
    checkpoint.
    """

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write a partition of a batch, on an executor."""
        from pyspark import TaskContext

        from fencepost.spark.ledgers.writing import Batch, write

        task = TaskContext.get()
        query, number = (task.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if query is None or number is None:
            raise SystemFailure(
                "Spark does not tell which query and which batch this is, and without that nothing is written once"
            )
        batch = Batch(query, int(number), remembered=True)
        return Written(task.partitionId(), batch, write(self.options, batch, iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Attach all written parts of a batch to the log."""
        from fencepost.spark.ledgers.writing import commit

        for batch in self._batch(messages, batchId):
            commit(self.options, batch, _in_order(messages))

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Delete all written parts of a batch."""
        from fencepost.spark.ledgers.writing import abort

        for batch in self._batch(messages, batchId):
            abort(self.options, batch)

    def _batch(self, messages: Sequence[Written | None], number: int) -> set[Batch]:
        """The batch that tasks report; empty if there were no tasks, and so no rows."""
        batches = {each.batch for each in messages if each is not None}
        if any(batch.number != number for batch in batches) or len(batches) > 1:
            raise SystemFailure(f"Spark commits batch {number}, and its tasks have written {sorted(map(str, batches))}")
        return batches
