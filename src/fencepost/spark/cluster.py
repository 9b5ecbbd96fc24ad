"""Jobs on Spark: a session that is had when it is first needed, one job at a time, and broadcast variables that go when
they are done with.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import IO, Any

from fencepost.errors import SystemFailure
from fencepost.spark import session, stages
from fencepost.spark.level import Plan
from fencepost.spark.session import reason

TICK = 0.2
"""Seconds between looks at a job."""
STAGES = ("expanding", "removing duplicates", "building")
TASK_ROWS = 1 << 18
"""Rows that are worth another core of a cluster that can grow."""
MOST_CORES = 256
"""Cores that such a cluster is taken to grow to, unless it is configured how far."""


class Held:
    """What tasks in this process are given where executors get a broadcast variable."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Cluster:
    """Spark, where ``master``, ``conf`` and the environment say that it is: see
    :func:`fencepost.spark.session.master_of`, which says what it raises. It is started when it is first needed.

    A session that this process has already is used, and left as it is. What Spark itself has to say is kept from the
    terminal, unless ``debug``.
    """

    def __init__(self, master: str | None = None, conf: Mapping[str, str] | None = None, debug: bool = False) -> None:
        self.conf = dict(conf or {})
        self.master = session.master_of(master, self.conf)
        self.debug = debug
        self.used = False
        self._session: Any = None
        self._own: Any = None
        self._log: IO[bytes] | None = None
        self._starting: Future[Any] | None = None
        self._unreachable: SystemFailure | None = None
        self._shared: list[Any] = []
        self._jobs = ThreadPoolExecutor(1)

    @property
    def local(self) -> bool:
        """Whether it is on this machine."""
        return self.master.startswith("local")

    @property
    def session(self) -> Any:
        """The session that the engine's jobs run in. Raises :class:`fencepost.SystemFailure` if it can not be had."""
        if self._session is None:
            self._session = self.session_with(session.JOBS)
        return self._session

    def session_with(self, settings: Mapping[str, str]) -> Any:
        """A session of its own, with these settings. Raises :class:`fencepost.SystemFailure` if it can not be had."""
        if self._unreachable is not None:
            raise self._unreachable
        held = (
            self._starting.result() if self._starting is not None else self._own or session.running() or self._start()
        )
        return session.beside(held, settings, self.conf)

    def look(self, failed: Callable[[], None]) -> None:
        """See whether anybody is there, while something else is done. ``failed`` is called if nobody is, from another
        thread.
        """

        def looking() -> None:
            try:
                session.must_answer(self.master)
            except SystemFailure as error:
                self._unreachable = error
                failed()

        if session.running() is None:
            threading.Thread(target=looking, daemon=True).start()

    def begin(self, failed: Callable[[], None] | None = None) -> None:
        """Start it, if it has to be started, while something else is done: until :meth:`ready`. ``failed`` is called if
        that fails, from another thread.
        """
        if self._session is not None or self._starting is not None or session.running() is not None:
            return

        def ended(starting: Future[Any]) -> None:
            if failed is not None and starting.exception() is not None:
                failed()

        self._starting = self._jobs.submit(self._start)
        self._starting.add_done_callback(ended)

    def ready(self) -> bool:
        """Whether nobody has to wait for it any more."""
        return self._starting is None or self._starting.done()

    def _start(self) -> Any:
        if not self.debug:
            self._log = tempfile.TemporaryFile(prefix="fencepost-spark-log-")
        self._own = session.start(self.master, self.conf, self._log)
        return self._own

    @property
    def cores(self) -> int:
        """How many tasks run at a time, as it is now."""
        held = self.session
        with _failing():
            return max(1, int(held.sparkContext.defaultParallelism))

    def cores_for(self, rows: int) -> int:
        """How many tasks can run at a time for work on so many rows. Where executors come as there is work for them,
        and only then, (dynamic allocation) those that would come are counted.
        """
        held = self.session
        with _failing():
            conf = held.sparkContext.getConf()
            if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
                return self.cores
            executors = int(conf.get("spark.dynamicAllocation.maxExecutors", str(MOST_CORES)))
            most = min(executors * int(conf.get("spark.executor.cores", "1")), MOST_CORES)
        return max(self.cores, min(most, rows // TASK_ROWS))

    def share(self, value: Any) -> Any:
        """A broadcast variable, until :meth:`discard` or :meth:`close`."""
        held = self.session
        with _failing():
            shared = held.sparkContext.broadcast(value)
        self._shared.append(shared)
        return shared

    def discard(self, shared: Any) -> None:
        """Let go of what was shared, here and on every executor. What was only held in this process needs nothing."""
        if shared in self._shared:
            self._shared.remove(shared)
            with contextlib.suppress(Exception):  # a cluster that is gone has let go of it
                shared.destroy()

    def run(self, plan: Plan, name: str, tell: Callable[[str], None]) -> list[bytes]:
        """Run a level as one job; see :meth:`chain`."""
        steps: list[tuple[stages.Stage, int]]
        steps = [
            (stages.Expand(plan), plan.homes),
            (stages.Deduplicate(plan), len(plan.runs)),
            (stages.Build(plan), plan.homes),
        ]
        return self.chain(steps, STAGES, name, tell)

    def chain(
        self, steps: Sequence[tuple[stages.Stage, int]], doing: Sequence[str], name: str, tell: Callable[[str], None]
    ) -> list[bytes]:
        """Run stages, each with its number of tasks, as one job, ``name`` in Spark's own pages; what the last one's
        rows hold.

        Meanwhile ``tell`` is called with what it is at, ``doing`` for each stage, and may raise KeyboardInterrupt,
        which cancels the job.
        """
        held = self.session
        self.used = True

        def rows() -> Any:
            made = held.range(0, steps[0][1], 1, steps[0][1])
            for n, (stage, tasks) in enumerate(steps):
                if n:
                    made = made.repartitionById(tasks, "to")
                made = made.mapInArrow(stage, stages.SCHEMA)
            return made

        return _told(Job(held, self._jobs, lambda: _payloads(rows()), name, doing), tell)

    def collect(
        self, held: Any, frame: Callable[[], Any], name: str, doing: Sequence[str], tell: Callable[[str], None]
    ) -> list[Any]:
        """The rows of a DataFrame of a session ``held`` as one job; otherwise as :meth:`chain`."""
        return _told(Job(held, self._jobs, lambda: frame().collect(), name, doing), tell)

    def each(self, task: Any, count: int, doing: str, name: str, tell: Callable[[str], None]) -> list[bytes]:
        """Run ``count`` tasks that have nothing to do with each other as one job; otherwise as :meth:`run`."""
        return _told(self.start(task, count, name, doing), tell)

    def start(self, task: Any, count: int, name: str, doing: str) -> Job:
        """Start ``count`` tasks that have nothing to do with each other, ``name`` in Spark's own pages."""
        held = self.session
        self.used = True
        return Job(
            held,
            self._jobs,
            lambda: _payloads(held.range(0, count, 1, count).mapInArrow(task, stages.SCHEMA)),
            name,
            (doing,),
        )

    def close(self) -> None:
        """Stop what was started here, and leave nothing in a session that was not."""
        if self._starting is not None:
            wait([self._starting])
        self._jobs.shutdown(wait=False, cancel_futures=True)
        for shared in list(self._shared):
            self.discard(shared)
        if self._own is not None:
            session.stop(self._own)
        if self._log is not None:
            self._log.close()


class Job:
    """A job that is under way, and what its tasks tell when it is done. ``doing``: what each of its stages is
    called.
    """

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
        """Wait so long at the most; whether it is done."""
        return not wait([self._future], seconds).not_done

    def result(self) -> list[Any]:
        """What its tasks told. Raises :class:`fencepost.SystemFailure` if one of them, or Spark itself, failed."""
        with _failing():
            return self._future.result()

    def stage(self) -> str:
        """What it is at. Raises :class:`fencepost.SystemFailure` if Spark is gone."""
        doing = ""
        with _failing():
            tracker = self._context.statusTracker()
            for number in tracker.getJobIdsForGroup(self._group):
                info = tracker.getJobInfo(number)
                for what, stage in zip(self._doing, sorted(info.stageIds) if info else (), strict=False):
                    at = tracker.getStageInfo(stage)
                    if at is not None and at.numActiveTasks:
                        doing = f"{what} ({at.numCompletedTasks} of {at.numTasks})"
        return doing

    def cancel(self) -> None:
        """End it."""
        with contextlib.suppress(Exception):  # a cluster that is gone has ended it
            self._context.cancelJobGroup(self._group)


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    """Says in one line what goes wrong with Spark in here."""
    try:
        yield
    except Exception as error:
        raise SystemFailure(f"Spark failed: {reason(error)}") from error


def _payloads(rows: Any) -> list[bytes]:
    """What the rows of tasks hold."""
    return [bytes(row.payload) for row in rows.select("payload").collect()]


def _told(job: Job, tell: Callable[[str], None]) -> list[Any]:
    """What the tasks of a job tell, in the end."""
    try:
        while not job.wait(TICK):
            tell(job.stage())
        return job.result()
    except KeyboardInterrupt:
        job.cancel()
        raise
