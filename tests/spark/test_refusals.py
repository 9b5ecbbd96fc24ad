"""Impossible requests are refused in one line, with their exit code."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from fencepost import EmbeddedOptions, OptionError, SearchOptions, SparkOptions, SystemFailure, check
from fencepost.language.loading import shipped
from fencepost.spark.session import reason, require_java
from fencepost.spark.stages import FirstStage, OneStage, ShuffledStage, Stage

CHECK = [
    "check",
    "bookkeeper-4.13",
    "-D",
    "bookies=2",
    "-D",
    "write_quorum=2",
    "-D",
    "ack_quorum=1",
    "-D",
    "recovery_reads_fence=true",
]


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A whole process."""
    return subprocess.run(
        [sys.executable, "-m", "fencepost", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def refused(done: subprocess.CompletedProcess[str], code: int, why: str) -> None:
    assert done.returncode == code, done.stderr
    assert why in done.stderr and done.stderr.startswith("fencepost: ") and done.stderr.count("\n") == 1, done.stderr


def script(folder: Path, name: str, text: str) -> Path:
    """An executable."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def test_no_java(tmp_path: Path) -> None:
    refused(run(*CHECK, "--engine", "spark", JAVA_HOME=str(tmp_path)), 153, "Java 17")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21"])
def test_an_older_java(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "bin/java", f"echo 'openjdk version \"{version}\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SystemFailure, match=r"needs Java 17 or newer, and .* is Java (8|11)"):
        require_java()


def test_no_java_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SystemFailure, match="there is none: install one, or set JAVA_HOME"):
        require_java()


def test_a_wrong_master() -> None:
    refused(
        run(*CHECK, "--engine", "spark", "--master", "local[two]"),
        151,
        "master 'local[two]' is no place that Spark knows",
    )


def test_a_master_that_is_not_there(tmp_path: Path) -> None:
    words = ["--master", "spark://127.0.0.1:1", "--checkpoint", str(tmp_path), "--handover", "500"]
    refused(run(*CHECK, "--engine", "spark", *words), 153, "no Spark master answers at spark://127.0.0.1:1")


def test_a_master_elsewhere_needs_a_common_folder() -> None:
    refused(run(*CHECK, "--engine", "spark", "--master", "spark://127.0.0.1:1"), 151, "--checkpoint DIR")


@pytest.mark.campaign
def test_executors_without_fencepost(tmp_path: Path) -> None:
    shadow = tmp_path / "shadow" / "fencepost"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'fencepost'\")")
    python = script(tmp_path, "python", f'PYTHONPATH={shadow.parent}:$PYTHONPATH exec {sys.executable} "$@"')
    words = [*CHECK, "--engine", "spark", "--master", "local[1]", "--handover", "500"]
    refused(run(*words, PYSPARK_PYTHON=str(python)), 153, "the executors have no Fencepost")


def test_what_is_for_spark_alone() -> None:
    for option, value in (("--master", "local"), ("--handover", "5"), ("--checkpoint-every", "2")):
        refused(run(*CHECK, option, value), 151, f"{option} is for --engine spark")
    refused(run(*CHECK, "--resume", "hdfs://there/it/is"), 151, "only --engine spark keeps checkpoints at a URL")


def test_what_spark_can_not_do() -> None:
    with pytest.raises(OptionError):
        check(shipped("bookkeeper-4.13")(), engine="spark", options=SearchOptions(checking=True))


@pytest.mark.usefixtures("here")
class TestCheckpoints:
    """Checkpoints that cannot be resumed."""

    def search(
        self,
        name: str = "ledger-chaining",
        constants: dict[str, Any] | None = None,
        invariants: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        options = {"workers": 1, "handover": 2, "max_depth": 9, **options}
        result = check(
            shipped(name)(**constants or {}), engine="spark", invariants=invariants, options=SparkOptions(**options)
        )
        if result.failure is not None:
            raise result.failure

    def test_of_something_else(self, tmp_path: Path) -> None:
        place = tmp_path / "checkpoint"
        self.search(checkpoint=place)
        with pytest.raises(SystemFailure, match="of the protocol ledger-chaining, not of bookkeeper"):
            self.search("bookkeeper-4.13", resume=place)
        with pytest.raises(SystemFailure, match="another value of the constant clients"):
            self.search(constants={"clients": 2}, resume=place)
        with pytest.raises(SystemFailure, match="was made with bits 64; give bits 64 again"):
            self.search(bits=128, resume=place)
        with pytest.raises(SystemFailure, match="holds a checkpoint already"):
            self.search(checkpoint=place)

    @pytest.mark.parametrize("what", ["rows", "run", "tables"])
    def test_with_a_file_missing(self, tmp_path: Path, what: str) -> None:
        place = tmp_path / "checkpoint"
        self.search(checkpoint=place)
        next(place.glob(f"level-*-{what}-*")).unlink()
        with pytest.raises(SystemFailure, match="is damaged: there is no level-"):
            self.search(resume=place)

    @pytest.mark.parametrize("handover", [2, 1_000])
    def test_with_a_bit_flipped_in_any_file(self, tmp_path: Path, handover: int) -> None:
        """Read by tasks, or in this process alone. For a temporal property the steps are recorded too."""
        place, random = tmp_path / "checkpoint", Random(handover)
        search = functools.partial(self.search, invariants=["stable_leader_accepts_writes"])
        search(checkpoint=place)
        manifest = (place / "manifest.json").read_text()
        kinds = {what: sorted(place.glob(f"level-*-{what}-*")) for what in ("rows", "run", "tables", "note")}
        assert all(kinds.values())
        for file in [place / "manifest.json", *(random.choice(files) for files in kinds.values() for _ in range(2))]:
            assert file.name in manifest or file.name == "manifest.json"
            whole = file.read_bytes()
            content, at = bytearray(whole), random.randrange(8 * len(whole))
            content[at // 8] ^= 1 << at % 8
            file.write_bytes(content)
            with pytest.raises(SystemFailure, match="is damaged|another version|embedded engine"):
                search(resume=place, handover=handover)
            file.write_bytes(whole)
        search(resume=place, max_depth=10, handover=handover)

    def test_with_an_edited_manifest(self, tmp_path: Path) -> None:
        place = tmp_path / "checkpoint"
        self.search(checkpoint=place)
        manifest = place / "manifest.json"
        manifest.write_text(re.sub(r'"distinct":(\d+)', r'"distinct":1\1', manifest.read_text()))
        with pytest.raises(SystemFailure, match=r"is damaged: manifest\.json is not what was written"):
            self.search(resume=place)

    def test_of_another_engine_or_version(self, tmp_path: Path) -> None:
        place = tmp_path / "checkpoint"
        check(shipped("ledger-chaining")(), engine="embedded", options=EmbeddedOptions(checkpoint=place, max_depth=5))
        with pytest.raises(SystemFailure, match="written by the embedded engine"):
            self.search(resume=place)
        (place / "manifest.json").write_text('{"engine": "spark", "format": 99}')
        with pytest.raises(SystemFailure, match="another version of Fencepost"):
            self.search(resume=place)
        with pytest.raises(SystemFailure, match="written by the spark engine"):
            raise check(shipped("ledger-chaining")(), engine="embedded", resume=place).failure or AssertionError

    def test_nowhere(self, tmp_path: Path) -> None:
        with pytest.raises(SystemFailure, match="holds no complete checkpoint"):
            self.search(resume=tmp_path)
        with pytest.raises(SystemFailure, match="cannot be reached"):
            self.search(checkpoint="nothing://at/all")


def test_a_full_disk_is_said() -> None:
    text = (
        'Py4JJavaError: x\nTraceback (most recent call last):\n  File "a"\nfencepost.errors.SystemFailure: /d/f cannot'
        " be written: No space left\n\n\tat org.apache"
    )
    assert reason(RuntimeError(text)) == "/d/f cannot be written: No space left"


def test_another_version_is_said() -> None:
    text = (
        "\n  An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File"
        ' "a"\nModuleNotFoundError: {}\n'
    )
    said = reason(RuntimeError(text.format("No module named 'fencepost.spark.later'")))
    assert said.startswith("the executors have another Fencepost than the driver, without fencepost.spark.later")
    assert reason(RuntimeError(text.format("No module named 'fencepost'"))).startswith(
        "the executors have no Fencepost"
    )


def test_pyspark_is_imported_for_spark_only() -> None:
    code = (
        "import sys\nfrom fencepost.cli.main import main\n"
        "main(['check', 'ledger-chaining', '-D', 'clients=1', '--engine', 'embedded'])\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'pyarrow', 'pandas')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("[]\n"), done.stdout


@pytest.mark.parametrize("kind", [FirstStage, OneStage, ShuffledStage])
def test_an_executor_with_another_version_refuses_to_work(kind: type[Stage]) -> None:
    done: list[object] = []
    stage = kind(done.append)
    stage.version = "0.0.1"
    with pytest.raises(RuntimeError, match=r"an executor has Fencepost \S+, the driver 0\.0\.1"):
        next(iter(stage(iter([pa.RecordBatch.from_pydict({"id": [0]})]))))
    assert not done
