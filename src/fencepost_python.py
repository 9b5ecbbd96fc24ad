"""The command ``fencepost-python``: a Python for Spark (``PYSPARK_PYTHON``) that connects to Spark before it imports
PySpark.

Spark starts a Python process to plan a stream, and gives up after ten seconds unless the process has connected by then.
No setting changes that. PySpark connects once it is imported, which takes half a second of CPU: more than a busy
machine grants in that time. This module imports little before it connects. Spark then waits as long as it takes.
"""

from __future__ import annotations

import io
import os
import socket
import sys


def main() -> None:
    """Run Python with the arguments of this process."""
    to_spark = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH") or os.environ.get("PYTHON_WORKER_FACTORY_PORT")
    if not to_spark or sys.argv[1:2] != ["-m"]:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    connected = _connected(to_spark)
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()  # as `python -m` has it

    import runpy

    import pyspark.util
    import pyspark.worker_util

    for module in (pyspark.util, pyspark.worker_util):  # the second has a name of its own for it
        vars(module)["local_connect_and_auth"] = lambda *_: connected
    sys.argv[:] = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _connected(to_spark: str) -> tuple[io.IOBase, socket.socket]:
    """What ``pyspark.util.local_connect_and_auth`` returns: a connection to Spark, which has taken the secret."""
    secret = os.environ.get("PYTHON_WORKER_FACTORY_SECRET")
    if secret is None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(to_spark)
    else:
        is_v6 = os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true"
        connection = socket.create_connection(("::1" if is_v6 else "127.0.0.1", int(to_spark)))
    file = connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536")))
    if secret is not None:
        file.write(len(secret.encode()).to_bytes(4, "big") + secret.encode())
        file.flush()
        if file.read(int.from_bytes(file.read(4), "big")) != b"ok":
            sys.exit("Spark refuses the secret that it gave to this process")
    return file, connection


if __name__ == "__main__":
    main()
