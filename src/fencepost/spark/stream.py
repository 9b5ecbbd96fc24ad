"""Validates traces on Spark while systems write them: a Structured Streaming job.

The subjects of a run are divided into shares. The state of a share is a
:class:`fencepost.traces.validation.watch.WatchState`: the events of the open traces. Events about all subjects go to
every share. A thread reads folders on this machine, including events that are in no Parquet file yet. Spark reads
folders at a URL.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fencepost.errors import ProtocolRaised, SystemFailure
from fencepost.report.validation import explaining
from fencepost.spark.cluster import Cluster
from fencepost.spark.session import reason
from fencepost.spark.validate import (
    COLUMNS,
    RESULT,
    TEXT,
    TaskResult,
    common,
    event_of,
    own,
    results_of,
    row_of,
)
from fencepost.traces import RunsFile
from fencepost.traces.validation.outcome import Outcome
from fencepost.traces.validation.request import Request, validator_of
from fencepost.traces.validation.tail import Tail
from fencepost.traces.validation.watch import Limits, Watch, WatchState

EVERY = 1.0
"""Seconds between two batches of events, unless the patience is shorter."""

SOONEST = 0.1
"""The fewest seconds between two batches."""

FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Writes checkpoints without looking for links, for which Hadoop starts several processes a batch."""

LATE = 30.0
"""Seconds in which tasks of a query that has stopped end, too."""

_log = logging.getLogger("fencepost.spark")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WatchState).decode


def follow(
    cluster: Cluster,
    paths: Sequence[str],
    request: Request,
    limits: Limits,
    report: Callable[[list[Outcome]], None],
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Report the verdicts of traces as they become certain, and in the end those that are not finished. Ends when
    ``until`` returns true, or at a KeyboardInterrupt. ``until`` is called only after the first batch, so the start of
    Spark does not count.

    Raises :class:`fencepost.traces.TraceError` if events are missing, :class:`fencepost.ProtocolRaised` if the
    conformance raises when asked what is over, and :class:`fencepost.SystemFailure` if Spark fails.
    """
    with _temporary_folder() as folder, contextlib.ExitStack() as cleanup:
        spark = cluster.session_with(
            {
                "spark.sql.shuffle.partitions": str(cluster.cores),
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
            }
        )
        if has_class(spark, FILE_MANAGER):
            spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER)
        every = seconds_between_batches(limits)
        feeder = Feeder(Tail([path for path in paths if "://" not in path]), Path(folder) / "events", every / 2)
        sources = [path for path in paths if "://" in path]
        if feeder.tail.folders:
            feeder.start()
            cleanup.callback(feeder.stop)
            sources.append(f"file://{feeder.folder}")
        stream = verdicts(spark, sources, request, limits, cluster.cores)

        caller = contextvars.copy_context()  # Spark has a thread of its own for batches
        raised: list[str] = []
        still_open: dict[tuple[str, int], list[Outcome]] = {}

        def batch(frame: Any, number: int) -> None:
            results = results_of(frame.collect())
            raised.extend(each.raised for each in results if each.raised is not None)
            still_open.update({each.still_open[:2]: each.still_open[2] for each in results if each.still_open})
            found = [each.outcome for each in results if each.outcome is not None]
            if found:
                caller.run(report, found)

        writer = stream.writeStream.foreachBatch(batch).option("checkpointLocation", f"{folder}/checkpoint")
        query = writer.trigger(processingTime=f"{every} seconds").start()
        cleanup.callback(_stop, query)
        with contextlib.suppress(KeyboardInterrupt):
            while query.isActive and feeder.failure is None and not raised and not (query.lastProgress and until()):
                time.sleep(every / 4)
        if feeder.failure is not None:
            raise feeder.failure
        if raised:
            raise ProtocolRaised(raised[0])
        if query.exception() is not None:
            raise SystemFailure(f"Spark failed: {reason(query.exception())}")
        _stop(query)  # so that no more verdicts come
        if left := [outcome for some in still_open.values() for outcome in some]:
            report(left)


def seconds_between_batches(limits: Limits) -> float:
    """How often events are looked at: as often as the patience asks, between :data:`SOONEST` and :data:`EVERY`."""
    return max(SOONEST, min(EVERY, limits.patience))


def has_class(spark: Any, name: str) -> bool:
    """Whether this Spark has a class. Those that are not for users may have another name in the next version."""
    from py4j.protocol import Py4JJavaError

    try:
        spark._jvm.java.lang.Class.forName(name)
    except Py4JJavaError:
        return False
    return True


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    """A folder that is removed at the end. Tasks of a query that has stopped may write to it for a moment."""
    folder = tempfile.mkdtemp(prefix="fencepost-validate-")
    try:
        yield folder
    finally:
        end = time.monotonic() + LATE
        shutil.rmtree(folder, ignore_errors=True)
        while os.path.exists(folder) and time.monotonic() < end:
            time.sleep(EVERY / 10)
            shutil.rmtree(folder, ignore_errors=True)
        if os.path.exists(folder):
            _log.warning("%s could not be removed: remove it", folder)


def _stop(query: Any) -> None:
    with contextlib.suppress(Exception):  # a lost cluster has stopped it already
        query.stop()


class Feeder:
    """A thread that writes the events added to folders of traces to Parquet files in a folder for Spark. It looks for
    some every ``pause`` seconds. ``failure``: the error that ended the thread.
    """

    def __init__(self, tail: Tail, folder: Path, pause: float = EVERY / 2) -> None:
        self.tail = tail
        self.folder = folder
        self.pause = pause
        self.failure: Exception | None = None
        self._has_begun = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        folder.mkdir(parents=True)

    def start(self) -> None:
        """Start the thread, and wait until all existing events are in a file, so that the first batch has them."""
        self._thread.start()
        self._has_begun.wait()

    def stop(self) -> None:
        """Stop the thread, and wait for it."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        try:
            while not self._stopping.is_set():
                found = self.tail.poll()
                if found:
                    with RunsFile(self.folder / f"{number:08}.parquet") as file:
                        for event in found:
                            parameters = event.parameter_values()
                            file.emit(
                                event.run,
                                event.node,
                                event.incarnation,
                                event.seq,
                                event.action,
                                event.subject,
                                parameters,
                                actor=event.actor,
                            )
                    number += 1
                self._has_begun.set()
                self._stopping.wait(self.pause)
        except Exception as error:
            self.failure = error
        finally:
            self._has_begun.set()


def verdicts(spark: Any, sources: Sequence[str], request: Request, limits: Limits, shares: int) -> Any:
    """A stream of verdicts, as :data:`RESULT` has them, on the events in Parquet files that are added to folders."""
    from pyspark.sql import functions as f

    events: Any = None
    for source in sources:
        some = spark.readStream.schema(TEXT).option("pathGlobFilter", "*.parquet").parquet(source)
        events = some if events is None else events.unionByName(some)
    if request.runs:
        events = events.where(f.col("run").isin(list(request.runs)))
    wanted = f.col("subject").isin(list(request.subjects)) if request.subjects else own(request)
    events = events.where(common(request) | wanted)
    all_shares = f.array(*(f.lit(share) for share in range(shares)))
    share = f.when(common(request), all_shares).otherwise(f.array(f.pmod(f.hash("subject"), f.lit(shares))))
    shared = events.withColumn("share", f.explode(share)).select("run", "share", *COLUMNS)
    return shared.groupBy("run", "share").applyInPandasWithState(
        partial(watch_task, request, limits), RESULT, "kept binary", "append", "ProcessingTimeTimeout"
    )


def watch_task(
    request: Request, limits: Limits, key: tuple[Any, ...], frames: Iterator[Any], state: Any
) -> Iterator[Any]:
    """Feed the events of a share of the subjects of a run, and yield the verdicts that are certain and the traces that
    are still open, or what the conformance raised when asked what is over.
    """
    kept = _decode(state.get[0]) if state.exists else None
    explain = explaining(request.last, request.width)
    watch = Watch(validator_of(request), str(key[0]), limits, kept, explain)
    now = state.getCurrentProcessingTimeMs() / 1000
    if not state.hasTimedOut:
        for frame in frames:
            rows = zip(*(frame[name].tolist() for name in COLUMNS), strict=True)
            watch.feed((event_of(*row) for row in rows), now)
    try:
        results = [row_of(TaskResult(outcome)) for outcome in watch.look(now)]
        results.append(row_of(TaskResult(still_open=(str(key[0]), int(key[1]), watch.unfinished()))))
    except ProtocolRaised as error:
        results = [row_of(TaskResult(raised=str(error)))]
    state.update((_encode(watch.state),))
    if watch.is_waiting:
        state.setTimeoutDuration(int(seconds_between_batches(limits) * 1000))
    for row in results:
        yield row.to_pandas()
