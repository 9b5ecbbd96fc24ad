"""The Python that connects to Spark first: what Spark waits for comes before all that takes long."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

import fencepost_python

SECRET = "a secret"
PLANNER = """
import os, pyspark, sys
from pyspark.worker_util import get_sock_file_to_executor

with get_sock_file_to_executor(timeout=None) as file:
    assert __name__ == "__main__" and sys.argv[1:] == ["more"], sys.argv
    assert file.read(4) == b"plan"
    file.write(b"done")
"""
SLOW = "input()  # as long as the test likes\n"


def python(*arguments: str, folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, fencepost_python.__file__, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


@pytest.mark.parametrize("is_unix", [False, True])
def test_spark_has_a_connection_before_anything_is_imported(tmp_path: Path, is_unix: bool) -> None:
    (tmp_path / "planner.py").write_text(PLANNER)
    (tmp_path / "runpy.py").write_text(SLOW + (Path(os.__file__).parent / "runpy.py").read_text())
    with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET) as listener:
        listener.settimeout(PATIENCE)
        listener.bind(str(tmp_path / "socket") if is_unix else ("127.0.0.1", 0))
        listener.listen()
        given = (
            {"PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "socket")}
            if is_unix
            else {"PYTHON_WORKER_FACTORY_PORT": str(listener.getsockname()[1]), "PYTHON_WORKER_FACTORY_SECRET": SECRET}
        )
        with python("-m", "planner", "more", folder=tmp_path, **given) as process:
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as file:
                if not is_unix:
                    assert file.read(int.from_bytes(file.read(4), "big")) == SECRET.encode()
                    file.write(b"\0\0\0\2ok")
                    file.flush()
                assert process.stdin is not None
                process.stdin.write(b"\n")  # only now does it import
                process.stdin.flush()
                assert int.from_bytes(file.read(4), "big") == process.pid
                file.write(b"plan")
                file.flush()
                assert file.read() == b"done"
        assert process.returncode == 0


def test_a_secret_that_is_refused_ends_the_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        port = str(listener.getsockname()[1])
        given = {"PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": SECRET}
        with python("-m", "planner", folder=tmp_path, **given) as process:
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as file:
                file.read(4 + len(SECRET))
                file.write(b"\0\0\0\3err")
        assert process.returncode == 1


def test_without_spark_it_is_python(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("import sys; print(sys.argv[1:])")
    for arguments in (["-c", "import sys; print(sys.argv[1:])", "a", "b"], ["-m", "module", "a", "b"]):
        with python(*arguments, folder=tmp_path) as process:
            assert process.communicate()[0] == b"['a', 'b']\n"
        assert process.returncode == 0
