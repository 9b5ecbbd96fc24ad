"""Where Spark is: started quietly, given one job at a time, and whatever goes wrong with it said in one line."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import IO, Any

from fencepost import __version__
from fencepost.errors import SystemFailure
from fencepost.spark import stages
from fencepost.spark.level import Plan

JAVA = 17
"""The oldest Java that PySpark 4 runs on."""

TICK = 0.2
"""Seconds between looks at a job."""
STAGES = ("expanding", "removing duplicates", "building")

# What is done to states is done by Python's workers: the virtual machine hands blocks on, and its better compiler would take the cores from
# them for the first half minute.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

SETTINGS = {
    "spark.app.name": "fencepost",
    "spark.driver.extraJavaOptions": JVM,
    "spark.executor.extraJavaOptions": JVM,
    "spark.ui.showConsoleProgress": "false",
    # Fingerprints are random numbers: there is nothing to compress.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.sql.adaptive.enabled": "false",
    # A row is a block of up to 8 MiB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.python.worker.reuse": "true",
}


def require_java() -> None:
    """Raises :class:`fencepost.SystemFailure` unless there is a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    needed = f"Spark needs Java {JAVA} or newer"
    if java is None:
        raise SystemFailure(f"{needed}, and there is none: install one, or set JAVA_HOME to where it is")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise SystemFailure(f"{needed}, and {java} can not be run: set JAVA_HOME to where a working one is") from None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found and int(found[1]) < JAVA:
        raise SystemFailure(f"{needed}, and {java} is Java {found[1]}: set JAVA_HOME to where a newer one is")


def require_spark() -> None:
    """Raises :class:`fencepost.SystemFailure` unless all is there that Spark needs on this machine."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise SystemFailure(f"Spark needs {error.name}: pip install 'fencepost[spark]'") from None
    require_java()


class Cluster:
    """Spark, at ``master``: by default all cores of this machine. It is started when it is first needed.

    A session that is active in this process already is used as it is. What Spark itself has to say is kept from the terminal,
    unless ``debug``.
    """

    def __init__(self, master: str | None, debug: bool = False) -> None:
        self.master = master or "local[*]"
        self.debug = debug
        self._session: Any = None
        self._own: Any = None
        self._log: IO[bytes] | None = None
        self._starting: Future[Any] | None = None
        self._jobs = ThreadPoolExecutor(1)

    @property
    def session(self) -> Any:
        """The session. Raises :class:`fencepost.SystemFailure` if it can not be had."""
        if self._session is None:
            self._session = self._starting.result() if self._starting is not None else _active() or self._start()
        return self._session

    def begin(self) -> None:
        """Start it, if it has to be started, while something else is done: until :meth:`ready`."""
        if self._session is None and _active() is None:
            self._starting = self._jobs.submit(self._start)

    def ready(self) -> bool:
        """Whether nobody has to wait for it any more."""
        return self._starting is None or self._starting.done()

    def _start(self) -> Any:
        require_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if not self.debug:
            self._log = tempfile.TemporaryFile(prefix="fencepost-spark-log-")
        self._own = _started(self.master, self._log)
        return self._own

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""
        session = self.session
        with _failing():
            return int(session.sparkContext.defaultParallelism)

    def share(self, value: Any) -> Any:
        """A broadcast variable."""
        session = self.session
        with _failing():
            return session.sparkContext.broadcast(value)

    def run(self, plan: Plan, name: str, tell: Callable[[str], None]) -> list[bytes]:
        """Run a level as one job; see :meth:`chain`."""
        steps: list[tuple[stages.Stage, int]]
        steps = [(stages.Expand(plan), plan.homes), (stages.Deduplicate(plan), len(plan.runs)), (stages.Build(plan), plan.homes)]
        return self.chain(steps, STAGES, name, tell)

    def chain(
        self, steps: Sequence[tuple[stages.Stage, int]], doing: Sequence[str], name: str, tell: Callable[[str], None]
    ) -> list[bytes]:
        """Run stages, each with its number of tasks, as one job, ``name`` in Spark's own pages; what the last one's rows hold.

        Meanwhile ``tell`` is called with what it is at, ``doing`` for each stage, and may raise KeyboardInterrupt, which cancels
        the job.
        """
        session = self.session

        def rows() -> Any:
            made = session.range(0, steps[0][1], 1, steps[0][1])
            for n, (stage, tasks) in enumerate(steps):
                if n:
                    made = made.repartitionById(tasks, "to")
                made = made.mapInArrow(stage, stages.SCHEMA)
            return made

        return _told(Job(session, self._jobs, rows, name, doing), tell)

    def each(self, task: Any, count: int, doing: str, name: str, tell: Callable[[str], None]) -> list[bytes]:
        """Run ``count`` tasks that have nothing to do with each other as one job; otherwise as :meth:`run`."""
        return _told(self.start(task, count, name, doing), tell)

    def start(self, task: Any, count: int, name: str, doing: str) -> Job:
        """Start ``count`` tasks that have nothing to do with each other, ``name`` in Spark's own pages."""
        session = self.session
        return Job(session, self._jobs, lambda: session.range(0, count, 1, count).mapInArrow(task, stages.SCHEMA), name, (doing,))

    def close(self) -> None:
        """Stop what was started here."""
        if self._starting is not None:
            wait([self._starting])
        self._jobs.shutdown(wait=False, cancel_futures=True)
        if self._own is not None:
            _stop(self._own)
        if self._log is not None:
            self._log.close()


class Job:
    """A job that is under way, and what its tasks tell when it is done. ``doing``: what each of its stages is called."""

    def __init__(self, session: Any, thread: ThreadPoolExecutor, rows: Callable[[], Any], name: str, doing: Sequence[str]) -> None:
        self._context = session.sparkContext
        self._group = f"fencepost-{uuid.uuid4().hex[:8]}"
        self._doing = doing

        def collected() -> list[bytes]:
            self._context.setJobGroup(self._group, name)
            return [bytes(row.payload) for row in rows().select("payload").collect()]

        self._future = thread.submit(collected)

    def wait(self, seconds: float) -> bool:
        """Wait so long at the most; whether it is done."""
        return not wait([self._future], seconds).not_done

    def result(self) -> list[bytes]:
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


def _active() -> Any:
    """The session that is active in this process, if one is."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _told(job: Job, tell: Callable[[str], None]) -> list[bytes]:
    """What the tasks of a job tell, in the end."""
    try:
        while not job.wait(TICK):
            tell(job.stage())
        return job.result()
    except KeyboardInterrupt:
        job.cancel()
        raise


def _started(master: str, log: IO[bytes] | None) -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    _must_answer(master)
    conf = SparkConf(loadDefaults=False).setMaster(master)
    for name, value in SETTINGS.items():
        conf.set(name, value)
    try:
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log} if log is not None else {})
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except Exception as error:
        raise SystemFailure(f"Spark can not be started at {master}: {_logged(log) or reason(error)}") from error


def _must_answer(master: str) -> None:
    """Raises :class:`fencepost.SystemFailure` if nobody is there: Spark itself would try for two minutes and then say something else."""
    places = re.findall(r"([^:,/]+):(\d+)", master) if master.startswith("spark://") else []
    for host, port in places:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except (OSError, OverflowError):
            continue
    if places:
        raise SystemFailure(f"no Spark master answers at {master}")


def _logged(log: IO[bytes] | None) -> str | None:
    """The first error that a virtual machine has written down before it ended."""
    if log is None:
        return None
    log.seek(0)
    found = re.search(r"^(?:Exception in thread \S+ |Error: )?(?:[\w.$]*(?:Exception|Error): )(.+)$", log.read().decode(errors="replace"), re.M)
    return found[1] if found else None


def _stop(session: Any) -> None:
    from pyspark import SparkContext

    gateway = session.sparkContext._gateway
    try:
        session.stop()
    except Exception:  # a cluster that is gone has been stopped
        pass
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        # The virtual machine ends when nobody holds the other end of its input.
        process.stdin.close()
        process.wait()
    SparkContext._gateway = SparkContext._jvm = None


def reason(error: BaseException) -> str:
    """What an error of Spark comes down to, in one line."""
    text = str(error)
    if "No module named 'fencepost'" in text:
        return "the executors have no Fencepost: install fencepost[spark] for their Python (PYSPARK_PYTHON says which that is)"
    lacking = re.search(r"No module named '(fencepost\.[\w.]+)'", text)
    if lacking:
        return f"the executors have another Fencepost than the driver, without {lacking[1]}: install {__version__} for their Python"
    # The last line of a Python traceback says it, in whatever Java wrapped around it.
    told = re.findall(r"^(?:\w+\.)*(\w+): (.+)$", text, re.MULTILINE)
    ours = [message for kind, message in told if kind in ("SystemFailure", "RuntimeError")]
    if ours:
        return str(ours[-1])
    java = getattr(error, "java_exception", None)
    lines = [line.strip() for line in (str(java) if java is not None else text).splitlines() if line.strip()]
    return str(re.sub(r"^(?:[\w$]+\.)+([\w$]+): ", "", lines[0])) if lines else type(error).__name__
