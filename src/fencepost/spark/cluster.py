"""Jobs on Spark: a session that is started on first use, one job at a time, and broadcast variables that are destroyed
after use.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO, Any

from fencepost.errors import SystemFailure
from fencepost.spark import session, stages
from fencepost.spark.level import LocalBroadcast, Shared
from fencepost.spark.session import reason

TICK = 0.2
"""Seconds between two checks of a job."""
TASK_ROWS = 1 << 18
"""Rows for which another core of an elastic cluster pays."""
MOST_CORES = 256
"""The assumed maximum of cores of an elastic cluster without a configured maximum."""


class Cluster:
    """Spark at the master that ``master``, ``conf`` and the environment determine:
    :func:`fencepost.spark.session.master_of` explains how, and what it raises. Spark is started when a job first needs
    it.

    An existing session of this process is used and left unchanged. Unless ``debug``, Spark's own messages do not reach
    the terminal.
    """

    def __init__(self, master: str | None = None, conf: Mapping[str, str] | None = None, debug: bool = False) -> None:
        self.conf = dict(conf or {})
        self.master = session.master_of(master, self.conf)
        self.debug = debug
        self.used = False
        self._session: Any = None
        self._started: Any = None
        self._log: IO[bytes] | None = None
        self._warehouse: tempfile.TemporaryDirectory[str] | None = None
        self._starting: Future[Any] | None = None
        self._unreachable: SystemFailure | None = None
        self._shared: list[Any] = []
        self._jobs = ThreadPoolExecutor(1)

    @property
    def local(self) -> bool:
        """Whether Spark runs on this machine."""
        return self.master.startswith("local")

    @property
    def session(self) -> Any:
        """The session in which the engine's jobs run. Raises :class:`fencepost.SystemFailure` if Spark cannot start."""
        if self._session is None:
            self._session = self.session_with(session.JOBS)
        return self._session

    def session_with(self, settings: Mapping[str, str]) -> Any:
        """A new session with these settings. Raises :class:`fencepost.SystemFailure` if Spark cannot start."""
        if self._unreachable is not None:
            raise self._unreachable
        if self._starting is not None:
            present = self._starting.result()
        else:
            present = self._started or session.running() or self._start()
        return session.beside(present, settings, self.conf)

    def check_reachable(self, failed: Callable[[], None]) -> None:
        """Check in the background whether the master answers. If not, calls ``failed`` from another thread."""

        def check() -> None:
            try:
                session.require_answer(self.master)
            except SystemFailure as error:
                self._unreachable = error
                failed()

        if session.running() is None:
            threading.Thread(target=check, daemon=True).start()

    def start_in_background(self, failed: Callable[[], None] | None = None) -> None:
        """Start Spark in the background, if needed; :meth:`is_ready` returns whether that is done. If the start fails,
        calls ``failed`` from another thread.
        """
        if self._session is not None or self._starting is not None or session.running() is not None:
            return

        def ended(starting: Future[Any]) -> None:
            if failed is not None and starting.exception() is not None:
                failed()

        self._starting = self._jobs.submit(self._start)
        self._starting.add_done_callback(ended)

    def is_ready(self) -> bool:
        """Whether no start in the background is in progress."""
        return self._starting is None or self._starting.done()

    def _start(self) -> Any:
        if not self.debug:
            self._log = tempfile.TemporaryFile(prefix="fencepost-spark-log-")
        # Spark creates a folder for tables in the working directory, though none are used.
        self._warehouse = tempfile.TemporaryDirectory(prefix="fencepost-spark-", ignore_cleanup_errors=True)
        own = {
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": Path(self._warehouse.name).as_uri(),
        }
        self._started = session.start(self.master, own | self.conf, self._log)
        return self._started

    @property
    def cores(self) -> int:
        """The number of tasks that can run at once now."""
        spark = self.session
        with _spark_failures():
            return max(1, int(spark.sparkContext.defaultParallelism))

    def cores_for(self, rows: int) -> int:
        """The number of tasks that can run at once for work on this number of rows. With dynamic allocation, executors
        start only when there is work, so this includes executors that would be started.
        """
        spark = self.session
        with _spark_failures():
            conf = spark.sparkContext.getConf()
            if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
                return self.cores
            executors = int(conf.get("spark.dynamicAllocation.maxExecutors", str(MOST_CORES)))
            most = min(executors * int(conf.get("spark.executor.cores", "1")), MOST_CORES)
        return max(self.cores, min(most, rows // TASK_ROWS))

    def share(self, value: Any) -> Any:
        """A broadcast variable that lives until :meth:`discard` or :meth:`close`."""
        spark = self.session
        with _spark_failures():
            variable = spark.sparkContext.broadcast(value)
        self._shared.append(variable)
        return variable

    def discard(self, variable: Any) -> None:
        """Destroy a broadcast variable, here and on every executor. A :class:`LocalBroadcast` needs no cleanup."""
        if variable in self._shared:
            self._shared.remove(variable)
            with contextlib.suppress(Exception):  # a lost cluster has destroyed it already
                variable.destroy()

    def run(
        self, job_stages: stages.JobStages, doing: Sequence[str], name: str, report: Callable[[str], None]
    ) -> list[bytes]:
        """Run stages, each with its number of tasks, as one job called ``name`` in Spark's UI. Returns the reports of
        the tasks.

        Meanwhile, calls ``report`` with the current stage, by its name in ``doing``. ``report`` may raise
        KeyboardInterrupt, which cancels the job.
        """
        return self.submit(job_stages, doing, name).finish(report)

    def submit(self, job_stages: stages.JobStages, doing: Sequence[str], name: str) -> Job:
        """As :meth:`run`, but returns the running job."""
        spark = self.session
        self.used = True

        def payloads() -> list[bytes]:
            first = job_stages[0][1]
            rows = spark.range(0, first, 1, first)
            for n, (stage, tasks) in enumerate(job_stages):
                if n:
                    rows = rows.repartitionById(tasks, "to")
                rows = rows.mapInArrow(stage, stages.SCHEMA)
            return [bytes(row.payload) for row in rows.select("payload").collect()]

        return Job(spark, self._jobs, payloads, name, doing)

    def collect(
        self, spark: Any, frame: Callable[[], Any], name: str, doing: Sequence[str], report: Callable[[str], None]
    ) -> list[Any]:
        """The rows of a DataFrame of the session ``spark``, computed as one job. Otherwise as :meth:`run`."""
        return Job(spark, self._jobs, lambda: frame().collect(), name, doing).finish(report)

    def close(self) -> None:
        """Stop the session if it was started here. Leaves nothing behind in another one."""
        if self._starting is not None:
            wait([self._starting])
        self._jobs.shutdown(wait=False, cancel_futures=True)
        for variable in list(self._shared):
            self.discard(variable)
        if self._started is not None:
            session.stop(self._started)
        if self._log is not None:
            self._log.close()
        if self._warehouse is not None:
            self._warehouse.cleanup()


class Broadcast:
    """A value that grows from job to job, and is broadcast again only after it has grown."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._version: tuple[bool, Any] | None = None
        self._shared = Shared(None, "")

    def current(self, small: bool, version: Callable[[], Any], value: Callable[[], Any]) -> Shared:
        """The broadcast variable of the current ``value``. ``version``: returns the version of the value. A ``small``
        job runs in this process, and nothing is sent.
        """
        if self._version != (small, version()):
            self.cluster.discard(self._shared.variable)
            now = value()
            self._shared = Shared(LocalBroadcast(now) if small else self.cluster.share(now), uuid.uuid4().hex)
            self._version = small, version()
        return self._shared


class Job:
    """A running job. ``doing``: the name of each of its stages."""

    def __init__(
        self, session: Any, thread: ThreadPoolExecutor, rows: Callable[[], list[Any]], name: str, doing: Sequence[str]
    ) -> None:
        self._context = session.sparkContext
        self._group = f"fencepost-{uuid.uuid4().hex[:8]}"
        self._doing = doing

        def collected() -> list[Any]:
            self._context.setJobGroup(self._group, name)
            return rows()

        self._future = thread.submit(collected)

    def wait(self, seconds: float) -> bool:
        """Wait for at most this number of seconds. Returns whether the job is done."""
        return not wait([self._future], seconds).not_done

    def result(self) -> list[Any]:
        """The rows of the job. Raises :class:`fencepost.SystemFailure` if a task, or Spark itself, failed."""
        with _spark_failures():
            return self._future.result()

    def stage(self) -> str:
        """The current stage of the job. Raises :class:`fencepost.SystemFailure` if Spark is gone."""
        doing = ""
        with _spark_failures():
            tracker = self._context.statusTracker()
            for number in tracker.getJobIdsForGroup(self._group):
                info = tracker.getJobInfo(number)
                for name, stage in zip(self._doing, sorted(info.stageIds) if info else (), strict=False):
                    at = tracker.getStageInfo(stage)
                    if at is not None and at.numActiveTasks:
                        doing = f"{name} ({at.numCompletedTasks} of {at.numTasks})"
        return doing

    def finish(self, report: Callable[[str], None]) -> list[Any]:
        """Wait for the rows of the job. Meanwhile, calls ``report`` with the current stage. An interrupt cancels the
        job.
        """
        try:
            while not self.wait(TICK):
                report(self.stage())
            return self.result()
        except KeyboardInterrupt:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Cancel the job."""
        with contextlib.suppress(Exception):  # a lost cluster has ended it already
            self._context.cancelJobGroup(self._group)


@contextlib.contextmanager
def _spark_failures() -> Iterator[None]:
    """Turn an error of Spark into a :class:`fencepost.SystemFailure` of one line."""
    try:
        yield
    except Exception as error:
        raise SystemFailure(f"Spark failed: {reason(error)}") from error
