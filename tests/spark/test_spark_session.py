"""Where Spark is: given by the option, an existing session, spark-submit, spark-defaults.conf, or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from spark.conftest import Here
from virtual_machines import QUICK
from work_units import FIRST, SPARK, OneSession, work_unit

import fencepost
from fencepost import OptionError, SearchOptions, SparkOptions, SystemFailure, check
from fencepost.cli.main import main
from fencepost.language.loading import shipped
from fencepost.semantics import Stepper
from fencepost.spark import cluster, engine, session

SAID_BY_NOBODY = ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "MASTER")


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session, and an environment without settings."""
    monkeypatch.setattr(session, "running", lambda: None)
    for name in SAID_BY_NOBODY:
        monkeypatch.delenv(name, raising=False)


def defaults(folder: Path, text: str) -> str:
    """A folder with a spark-defaults.conf."""
    (folder / "spark-defaults.conf").write_text(text)
    return str(folder)


@pytest.mark.usefixtures("nothing")
def test_the_master_is_the_one_that_spark_itself_would_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert session.master_of(None, {}) == "local[*]"
    monkeypatch.setenv(
        "SPARK_CONF_DIR",
        defaults(tmp_path, "# spark.master local[7]\nspark.master  spark://here:7077 \nspark.app.name=mine\n"),
    )
    assert session.master_of(None, {}) == "spark://here:7077"
    assert session.configuration() == {"spark.master": "spark://here:7077", "spark.app.name": "mine"}
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.executor.memory=2g --master=local[5] pyspark-shell")
    assert session.master_of(None, {}) == "local[5]"
    assert session.configuration()["spark.executor.memory"] == "2g"
    assert session.master_of(None, {"spark.master": "local[4]"}) == "local[4]"
    assert session.master_of("local[3]", {"spark.master": "local[4]"}) == "local[3]"
    other = tmp_path / "other.conf"
    other.write_text("spark.master local[6]")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {other} pyspark-shell")
    assert session.master_of(None, {}) == "local[6]"


@pytest.mark.usefixtures("nothing")
def test_a_master_that_makes_no_sense_is_refused_before_anything_is_explored(monkeypatch: pytest.MonkeyPatch) -> None:
    for master in (
        "local",
        "local[2]",
        "local[*, 4]",
        "local-cluster[2,1,1024]",
        "spark://a:1,b:2",
        "k8s://https://a:6443",
    ):
        assert session.master_of(master, {}) == master
    for master in ("local[two]", "localhost", "spark://a", "spark:7077", "host:7077"):
        with pytest.raises(OptionError, match="is no place that Spark knows: give"):
            session.master_of(master, {})
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemFailure, match="master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR"):
        session.master_of("yarn", {})
    with pytest.raises(SystemFailure, match="sc://a is Spark Connect, which has no broadcast variables"):
        session.master_of("sc://a", {})
    monkeypatch.setenv("SPARK_REMOTE", "sc://b")
    with pytest.raises(SystemFailure, match="sc://b is Spark Connect"):
        session.master_of(None, {})


def test_a_session_of_spark_connect_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.utils.is_remote", lambda: True)
    with pytest.raises(SystemFailure, match="this process has a session of Spark Connect"):
        check(shipped("ledger-chaining")(), engine="spark", options=SparkOptions(max_depth=2))


@pytest.mark.parametrize("version", ["3.5.9", "4.0.5"])
def test_an_older_pyspark_is_refused_in_one_line(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(SystemFailure, match=rf"needs PySpark 4\.1 or newer, and this is {version}$"):
        session.require_spark()


@pytest.mark.campaign
def test_what_defaults_and_spark_submit_say_is_what_spark_gets(tmp_path: Path) -> None:
    """Two virtual machines: one is spark-submit's, the other is started with the defaults of a cluster."""
    script = tmp_path / "script.py"
    script.write_text(
        "from fencepost.spark.cluster import Cluster\nhere = Cluster()\nconf ="
        " here.session.sparkContext.getConf()\nprint('got', here.master, here.cores, conf.get('spark.app.name'),"
        " conf.get('spark.executor.memory'), conf.get('spark.python.worker.reuse'))\nhere.close()\n"
    )
    home = os.path.dirname(pyspark.__file__)
    folder = defaults(tmp_path, "spark.app.name mine\nspark.executor.memory 600m\nspark.master local[5]\n")
    environment = {
        **os.environ,
        "JDK_JAVA_OPTIONS": QUICK,
        "SPARK_HOME": home,
        "SPARK_CONF_DIR": folder,
        "PYSPARK_PYTHON": sys.executable,
    }

    def got(*command: str) -> list[str]:
        done = subprocess.run([*command, str(script)], capture_output=True, text=True, check=True, env=environment)
        return next(line for line in done.stdout.splitlines() if line.startswith("got ")).split()[1:]

    submit = os.path.join(home, "bin", "spark-submit")
    assert got(submit, "--master", "local[3]", "--name", "ours") == ["local[3]", "3", "ours", "600m", "true"]
    assert got(sys.executable) == ["local[5]", "5", "mine", "600m", "true"]


def test_a_session_of_another_thread_is_used_and_left_as_it_is(spark: Any) -> None:
    def elsewhere() -> list[Any]:
        here = cluster.Cluster(conf={"spark.sql.shuffle.partitions": "7"})
        try:
            own = here.session
            return [own.sparkContext is spark.sparkContext, here.master, own.conf.get("spark.sql.shuffle.partitions")]
        finally:
            here.close()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(elsewhere).result() == [True, "local[2]", "7"]
    assert spark.conf.get("spark.sql.shuffle.partitions") != "7" and spark.range(3).count() == 3


def test_what_a_running_session_can_not_be_given(spark: Any) -> None:
    with pytest.raises(
        OptionError, match=r"master is local\[1\], but this process has a Spark session at local\[2\] already"
    ):
        cluster.Cluster("local[1]")
    here = cluster.Cluster(conf={"spark.executor.memory": "3g"})
    with pytest.raises(
        OptionError, match=r"conf: spark\.executor\.memory cannot be changed in a Spark session that is running"
    ):
        _ = here.session
    here.close()
    assert spark.range(2).count() == 2


def test_settings_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["check", "ledger-chaining", "--engine", "spark", "--conf", "executor.memory"])
        == fencepost.errors.WRONG_OPTIONS
    )
    assert "'executor.memory' is not a setting of Spark" in capsys.readouterr().err
    assert main(["check", "ledger-chaining", "--conf", "spark.executor.memory=1g"]) == fencepost.errors.WRONG_OPTIONS
    assert "--conf is for --engine spark" in capsys.readouterr().err


class AtOnce:
    """A thread that ends before anything else continues."""

    def __init__(self, target: Any, daemon: bool) -> None:
        self.start = target


def test_a_cluster_that_is_not_there_is_noticed_at_once_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although no level is large enough to be handed over."""
    place = tmp_path / "checkpoint"
    with monkeypatch.context() as patched:
        patched.setattr(session, "running", lambda: None)
        patched.setattr(cluster, "threading", SimpleNamespace(Thread=AtOnce))
        options = SparkOptions(workers=1, master="spark://127.0.0.1:1", checkpoint=place)
        result = check(shipped("ledger-chaining")(clients=1), engine="spark", options=options)
        assert result.verdict == "failed" and "no Spark master answers at spark://127.0.0.1:1" in str(result.failure)
        assert result.distinct_states > 0
        patched.setattr(engine, "Cluster", Here)
        resumed = engine.explore(Stepper(shipped("ledger-chaining")(clients=1)), SparkOptions(workers=1, resume=place))
    whole = check(shipped("ledger-chaining")(clients=1), engine="embedded")
    assert (
        resumed.complete and resumed.distinct == whole.distinct_states and resumed.generated == whole.generated_states
    )


def test_a_search_that_never_needs_spark_says_so() -> None:
    result = check(shipped("ledger-chaining")(), engine="spark", options=SparkOptions(workers=1, max_depth=4))
    assert (result.engine, result.on_spark) == ("embedded", False)
    assert "embedded engine; Spark was not needed" in str(result)
    assert "Spark" not in str(
        check(shipped("ledger-chaining")(), engine="embedded", options=SearchOptions(workers=1, max_depth=4))
    )


def test_all_that_need_a_session_go_to_one_worker(request: pytest.FixtureRequest) -> None:
    files = {item.nodeid.partition("::")[0] for item in request.session.items if "spark" in item.fixturenames}  # type: ignore[attr-defined]
    assert {work_unit(file) for file in files} <= {SPARK}
    assert work_unit("tests/spark/test_files.py") == "tests/spark/test_files.py"


def test_what_goes_to_workers_first_is_there() -> None:
    assert FIRST[0] == SPARK
    assert all((Path(__file__).parents[2] / file).is_file() and work_unit(file) == file for file in FIRST[1:])


def test_pages_that_take_long_go_to_any_worker() -> None:
    scope = partial(OneSession._split_scope, OneSession.__new__(OneSession))
    first, second = (f"tests/docs/test_store_pages.py::test[{page}]" for page in ("one", "two"))
    assert scope(first) != scope(second)
    assert scope("tests/spark/test_files.py::one") == scope("tests/spark/test_files.py::two")
