"""The Spark session: the existing one of this process, or a new one that is started without output. Reduces an error of
Spark to one line.

The master and the configuration follow Spark's own precedence: the options of Fencepost, then ``spark-submit``, then
``spark-defaults.conf``. Fencepost's default settings come last.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from fencepost.errors import OptionError, SystemFailure, naming_extra
from fencepost.version import VERSION

JAVA = 17
"""The oldest Java that PySpark 4 runs on."""

PYSPARK = (4, 1)
"""The oldest PySpark that the engine runs on: the first one that can send a row to a task by number
(``repartitionById``).
"""

LOCAL = "local[*]"
"""The default master: all cores of this machine."""

# Python workers do the work on states, and the JVM only passes blocks on. Its better compiler would take the cores from
# the workers for the first half minute.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

SETTINGS = {
    "spark.app.name": "fencepost",
    "spark.driver.extraJavaOptions": JVM,
    "spark.executor.extraJavaOptions": JVM,
    "spark.ui.showConsoleProgress": "false",
    # Fingerprints are random numbers, so compression gains nothing.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.python.worker.reuse": "true",
    # The default writes a second file with checksums beside each, and starts a process for either.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
"""Defaults for the settings with which Spark is started."""

JOBS = {
    "spark.sql.adaptive.enabled": "false",
    # A row is a block of up to 8 MiB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
}
"""The settings of the session in which the engine's jobs run. Other sessions of the process keep their own."""

_PROPERTY = re.compile(r"^[ \t]*([^#!\s=:][^\s=:]*)[ \t]*[=:\s][ \t]*(.*?)[ \t]*$", re.MULTILINE)
"""A line of a properties file."""


def require_java() -> None:
    """Raise :class:`fencepost.SystemFailure` unless there is a Java that Spark runs on."""
    java_home = os.environ.get("JAVA_HOME")
    java = os.path.join(java_home, "bin", "java") if java_home else shutil.which("java")
    needed = f"Spark needs Java {JAVA} or newer"
    if java is None:
        raise SystemFailure(f"{needed}, and there is none: install one, or set JAVA_HOME to where it is")
    try:
        version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise SystemFailure(f"{needed}, and {java} cannot be run: set JAVA_HOME to where a working one is") from None
    found = re.search(r'version "(?:1\.)?(\d+)', version)
    if found and int(found[1]) < JAVA:
        raise SystemFailure(f"{needed}, and {java} is Java {found[1]}: set JAVA_HOME to where a newer one is")


def require_spark() -> None:
    """Raise :class:`fencepost.OptionError` unless the libraries that Spark needs are installed, and
    :class:`fencepost.SystemFailure` if they are too old or there is no Java.
    """
    with naming_extra("Spark", "spark"):
        import pyarrow  # noqa: F401
        import pyspark
    version = str(pyspark.__version__)
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < PYSPARK:
        raise SystemFailure(
            f"the Spark engine needs PySpark {'.'.join(map(str, PYSPARK))} or newer, and this is {version}"
        )
    if running() is None:
        require_java()


# -- the master -------------------------------------------------------------------------------------------------------


def running() -> Any:
    """The session of this process, whatever its thread, or None.

    Raises :class:`fencepost.SystemFailure` for a Spark Connect session, which has no SparkContext.
    """
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise SystemFailure(_no_connect("this process has a session of Spark Connect"))
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    # An active session belongs to one thread. The builder knows the session that all threads share.
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _no_connect(why: str) -> str:
    return (
        f"{why}, which has no broadcast variables and no job groups: the Spark engine runs where a SparkContext is, as"
        " under spark-submit"
    )


def master_of(given: str | None, conf: Mapping[str, str]) -> str:
    """The master that Spark has or will have. ``given`` and ``conf``: the options ``master`` and ``conf``.

    Raises :class:`fencepost.OptionError` for a master that Spark does not know, and :class:`fencepost.SystemFailure` if
    the environment lacks something that the master needs. Starts nothing.
    """
    wanted = given or conf.get("spark.master")
    session = running()
    if session is not None:
        master = str(session.sparkContext.master)
        if wanted is not None and wanted != master:
            raise OptionError(
                f"master is {wanted}, but this process has a Spark session at {master} already: stop that one, or leave"
                " out master"
            )
        return master
    if wanted is None:
        inherited = configuration()
        remote = os.environ.get("SPARK_REMOTE") or inherited.get("spark.remote")
        if remote:
            raise SystemFailure(_no_connect(f"{remote} is Spark Connect"))
        wanted = inherited.get("spark.master") or os.environ.get("MASTER") or LOCAL
    _must_make_sense(wanted)
    return wanted


def _must_make_sense(master: str) -> None:
    if master.startswith("sc://"):
        raise SystemFailure(_no_connect(f"{master} is Spark Connect"))
    forms = (
        r"local(\[(\d+|\*)(,"
        r" *\d+)?\])?|local-cluster\[.*\]|spark://[^:/]+:\d+(,[^:/]+:\d+)*|yarn|(?!local|spark:)[\w+.-]+://.+"
    )
    if not re.fullmatch(forms, master):
        raise OptionError(
            f"master {master!r} is no place that Spark knows: give local[N], spark://HOST:PORT, yarn or k8s://HOST:PORT"
        )
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise SystemFailure(
            "master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR in the environment: the folder with yarn-site.xml"
        )


def configuration() -> dict[str, str]:
    """The settings of ``spark-submit`` and ``spark-defaults.conf`` for a session started in this process."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Started by spark-submit: its JVM is running and has the settings.
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf(_jvm=SparkContext._jvm).getAll())
    submitted, file = _submitted(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    if file is None:
        from pyspark.find_spark_home import _find_spark_home

        file = os.path.join(
            os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf"), "spark-defaults.conf"
        )
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError:
        text = ""
    return dict(_PROPERTY.findall(text)) | submitted


def _submitted(words: list[str]) -> tuple[dict[str, str], str | None]:
    """The settings in the arguments of ``spark-submit``, and the properties file that they name."""
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    found: dict[str, str] = {}
    file = None
    for option, value in pairwise(parts):
        if option in ("--master", "--remote"):
            found[f"spark.{option[2:]}"] = value
        elif option in ("--conf", "-c"):
            name, _, setting = value.partition("=")
            found[name] = setting
        elif option == "--properties-file":
            file = value
    return found, file


def require_answer(master: str) -> None:
    """Raise :class:`fencepost.SystemFailure` if no master answers. Spark itself would retry for two minutes and then
    give another reason.
    """
    places = re.findall(r"([^:,/]+):(\d+)", master) if master.startswith(("spark://", "k8s://")) else []
    for host, port in places:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except (OSError, OverflowError):
            continue
    if places:
        raise SystemFailure(f"no Spark master answers at {master}")


# -- starting and stopping --------------------------------------------------------------------------------------------


def start(master: str, conf: Mapping[str, str], log: IO[bytes] | None) -> Any:
    """Start a session at ``master``. ``log``: the file for the JVM's messages, None for the terminal.

    Raises :class:`fencepost.SystemFailure` if the session cannot be started.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    require_java()
    require_answer(master)
    inherited = configuration()
    python = conf.get("spark.pyspark.python") or inherited.get("spark.pyspark.python") or sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    chosen = (
        {name: value for name, value in SETTINGS.items() if name not in inherited}
        | dict(conf)
        | {"spark.master": master}
    )
    launched = None
    try:
        if SparkContext._gateway is None:
            settings = SparkConf(loadDefaults=False).setAll(list(chosen.items()))
            launched = launch_gateway(settings, {"stdout": log, "stderr": log} if log is not None else {})
            SparkContext._ensure_initialized(gateway=launched)
        settings = SparkConf(_jvm=SparkContext._jvm).setAll(list(chosen.items()))
        return SparkSession(SparkContext(conf=settings))
    except Exception as error:
        failure = SystemFailure(f"Spark cannot be started at {master}: {_logged(log) or reason(error)}")
        if launched is not None:
            _shut_down(launched)
        raise failure from error


def beside(session: Any, own: Mapping[str, str], conf: Mapping[str, str]) -> Any:
    """A new session beside an existing one, which stays unchanged. It has the settings ``own`` and those of the option
    ``conf``.

    Raises :class:`fencepost.OptionError` for a setting that can only be changed when Spark starts.
    """
    fresh = session.newSession()
    started_with = session.sparkContext.getConf()
    for name, value in own.items():
        fresh.conf.set(name, value)
    for name, value in conf.items():
        if started_with.get(name) == value and name not in own:
            continue
        try:
            fresh.conf.set(name, value)
        except Exception:
            raise OptionError(f"conf: {name} cannot be changed in a Spark session that is running already") from None
    return fresh


def stop(session: Any) -> None:
    """Stop a session that was started here, and its JVM unless that is ``spark-submit``'s."""
    gateway = session.sparkContext._gateway
    with suppress(Exception):  # a lost cluster has stopped already
        session.stop()
    if getattr(gateway, "proc", None) is not None:
        _shut_down(gateway)


def _shut_down(gateway: Any) -> None:
    from pyspark import SparkContext

    with suppress(Exception):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        # The JVM ends when its standard input is closed.
        process.stdin.close()
        process.wait()
    SparkContext._gateway = SparkContext._jvm = None


# -- errors -----------------------------------------------------------------------------------------------------------


def _logged(log: IO[bytes] | None) -> str | None:
    """The first error that a JVM logged before it ended."""
    if log is None:
        return None
    log.seek(0)
    found = re.search(
        r"^(?:Exception in thread \S+ |Error: )?(?:[\w.$]*(?:Exception|Error): )(.+)$",
        log.read().decode(errors="replace"),
        re.M,
    )
    return found[1] if found else None


def reason(error: BaseException) -> str:
    """The reason of an error of Spark, in one line."""
    text = str(error)
    if "No module named 'fencepost'" in text:
        return (
            "the executors have no Fencepost: install fencepost[spark] for their Python (PYSPARK_PYTHON says which"
            " that is)"
        )
    lacking = re.search(r"No module named '(fencepost\.[\w.]+)'", text)
    if lacking:
        return (
            f"the executors have another Fencepost than the driver, without {lacking[1]}: install {VERSION} for"
            " their Python"
        )
    # The last line of a Python traceback has the reason, whatever Java has wrapped around it.
    errors = re.findall(r"^((?:\w+\.)*)(\w+): (.+)$", text, re.MULTILINE)
    ours = [
        message
        for module, kind, message in errors
        if kind in ("SystemFailure", "RuntimeError") or module.startswith("fencepost.")
    ]
    if ours:
        return str(ours[-1])
    java = getattr(error, "java_exception", None)
    lines = [line.strip() for line in (str(java) if java is not None else text).splitlines() if line.strip()]
    return str(re.sub(r"^(?:[\w$]+\.)+([\w$]+): ", "", lines[0])) if lines else type(error).__name__
