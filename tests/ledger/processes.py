"""The parts of a store as processes, on loopback and free ports. The test that starts one ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from unittest import mock

import fencepost
from fencepost.cli.main import main

SOURCE = Path(fencepost.__file__).parent.parent


def typed(words: Sequence[str], environment: Mapping[str, str], given: bytes = b"") -> tuple[int, bytes, bytes]:
    """Run a command in this process, which has loaded already what a process of its own takes most of a second to load.

    ``given``: its standard input. Returns its exit code, its standard output and its standard error.
    """
    reads, writes = os.pipe()
    typing = threading.Thread(target=_write, args=(writes, given))
    typing.start()
    with ExitStack() as exits:
        files = [exits.enter_context(open(reads, "rb")), *(exits.enter_context(TemporaryFile()) for _ in range(2))]
        for number, (name, file) in enumerate(zip(("stdin", "stdout", "stderr"), files, strict=True)):
            kept = os.dup(number)
            exits.callback(os.close, kept)
            exits.callback(os.dup2, kept, number)
            os.dup2(file.fileno(), number)
            stream = exits.enter_context(open(number, "r" if name == "stdin" else "w", closefd=False))
            exits.enter_context(mock.patch.object(sys, name, stream))
        exits.enter_context(mock.patch.dict(os.environ, environment))
        code = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
        told = []
        for file in files[1:]:
            file.seek(0)
            told.append(file.read())
    typing.join()
    return code, told[0], told[1]


def output(uri: str, *words: str, given: bytes = b"", code: int = 0) -> str:
    """The output of a command that succeeds, and the error output of one that ends with another ``code``."""
    ended, out, err = typed(words, {"FENCEPOST_METADATA": uri}, given)
    assert ended == code, err.decode()
    return (err if code else out).decode()


def environment(uri: str) -> dict[str, str]:
    """The environment of processes that use a cluster."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), "FENCEPOST_METADATA": uri}


def piped(uri: str, *words: str) -> subprocess.Popen[bytes]:
    """A command in a process of its own, with three pipes."""
    command, pipe = [sys.executable, "-m", "fencepost", *words], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment(uri))


def _write(pipe: int, given: bytes) -> None:
    with suppress(BrokenPipeError), open(pipe, "wb") as file:
        file.write(given)


class Process:
    """A Fencepost command that serves. ``told`` is the line it printed when it was ready."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.arguments = arguments
        self.complaints = (folder / f"{arguments[0]}.log").open("ab")
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fencepost", *arguments],
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            env=environment,
        )
        assert self.process.stdout is not None
        self.told = self.process.stdout.readline().decode().strip()
        if not self.told:
            self.end()
            raise AssertionError((folder / f"{arguments[0]}.log").read_text())

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.end()

    def end(self) -> None:
        """Stop it cleanly, unless it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.complaints.close()


@contextmanager
def metadata_service(folder: Path) -> Iterator[str]:
    """A metadata service. Yields its address, without a path."""
    process = Process(folder, "metadata", str(folder / "metadata"), "--port", "0")
    try:
        yield process.told.split()[2]
    finally:
        process.end()


@contextmanager
def cluster(folder: Path, bookies: int = 3) -> Iterator[tuple[str, list[Process]]]:
    """A metadata service and bookies. Yields the address of the metadata service and the processes of the bookies."""
    with ExitStack() as stack:
        uri = stack.enter_context(metadata_service(folder)) + "/ledgers"
        processes = []
        for number in range(1, bookies + 1):
            process = Process(folder, "bookie", str(folder / f"bookie{number}"), "--metadata", uri, "--port", "0")
            stack.callback(process.end)
            processes.append(process)
        yield uri, processes
