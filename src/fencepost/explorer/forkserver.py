"""Work that may never end, in separate processes that can be killed at any moment.

``10**10**10`` holds the interpreter until it is done, and so does a compiler. A thread that runs these cannot be
stopped, and blocks all others. So *workers* evaluate typed expressions and search for states. A worker is a copy of
this process, with the same protocol. The *fork server* starts them. It is forked before any thread starts and does
nothing else, so it can safely fork at any time.

Only numbers and text pass between the processes. A state is sent as the steps that lead to it, and the worker takes
them again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import struct
import threading
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from fencepost.behaviours.path import Move
from fencepost.checker.engines.resources import forked
from fencepost.errors import SystemFailure
from fencepost.explorer.session import Node, Session

Job = Callable[[Connection], None]
"""The job of a worker. It runs until the other end of its connection is closed."""

Link = tuple[int, int, Move]
"""A node in the form that is sent: its number, its parent's number, and the step between them."""

PATIENCE = 30.0
"""Seconds after which a fork server that does not answer is considered dead."""

_REQUEST = struct.Struct("!cq")
_ANSWER = struct.Struct("!q")


class ForkServer:
    """Starts and ends workers. Each does one of ``jobs``, and is a copy of this process as it is now.

    They end with this process, however it ends.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        """Raises :class:`SystemFailure` if no process can be started."""
        self._jobs = jobs
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._line, its = socket.socketpair()
        self._pid = _forked()
        if not self._pid:
            try:
                _release_sockets(keep=its.fileno())
                _serve(its, self._jobs)
            finally:
                os._exit(0)  # exit handlers of this process must not run in its copies
        its.close()
        self._line.settimeout(PATIENCE)

    def start(self, job: int) -> Worker:
        """Start a worker for the job of this number. Raises :class:`SystemFailure` if that is not possible."""
        mine, its = Pipe()
        with its, self._lock:
            try:
                pid = self._started(job, its)
            except (OSError, struct.error):  # the author's Python may have killed it: a worker has its user's rights
                os.kill(self._pid, signal.SIGKILL)
                self._stop_server()
                self._begin()
                try:
                    pid = self._started(job, its)
                except (OSError, struct.error):
                    raise SystemFailure("the process that starts workers keeps ending") from None
        if pid < 0:
            raise SystemFailure("no process can be started: is the machine out of memory?")
        return Worker(self, mine, pid)

    def _started(self, job: int, its: Connection) -> int:
        socket.send_fds(self._line, [_REQUEST.pack(b"+", job)], [its.fileno()])
        return int(_ANSWER.unpack(self._line.recv(_ANSWER.size))[0])

    def _stop_server(self) -> None:
        self._line.close()
        os.waitpid(self._pid, 0)
        self._pid = 0

    def end(self, pid: int) -> int:
        """Kill a worker, unless it has ended. Returns the signal that ended it, or 0."""
        with self._lock:
            try:
                self._line.sendall(_REQUEST.pack(b"-", pid))
                (status,) = _ANSWER.unpack(self._line.recv(_ANSWER.size))
            except (OSError, struct.error):  # the fork server is gone, and the worker ends because its line is closed
                return 0
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    def close(self) -> None:
        """End every worker."""
        with self._lock:
            if self._pid:
                self._stop_server()


class Worker:
    """The handle of a process with a job."""

    def __init__(self, forkserver: ForkServer, line: Connection, pid: int) -> None:
        self.line = line
        self.pid = pid
        self.ended = False
        self._forkserver = forkserver
        self._knows: set[int] = set()

    def missing_links(self, nodes: Sequence[Node], known: int) -> list[Link]:
        """The links on the paths to these nodes that the worker does not have yet, parents first. It already has the
        nodes with numbers below ``known``.
        """
        found: list[Link] = []
        for node in nodes:
            path: list[Link] = []
            while node.parent is not None and node.number >= known and node.number not in self._knows:
                path.append((node.number, node.parent.number, node.move))
                self._knows.add(node.number)
                node = node.parent
            found += path[::-1]
        return found

    def end(self) -> int:
        """Kill the worker. Returns the signal that ended it, or 0 if it had exited."""
        self.ended = True
        self.line.close()
        return self._forkserver.end(self.pid)

    @property
    def memory(self) -> int:
        """The bytes of memory that it occupies; 0 if the system does not say."""
        try:
            with open(f"/proc/{self.pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0


def why_ended(number: int) -> str:
    """Why a worker has ended, in words. ``number``: the signal, or 0 if it exited."""
    if number == 0:
        return "the author's Python ended its process"
    if number == signal.SIGKILL:
        return "its process was killed, perhaps because memory ran out"
    return f"its process was killed by signal {number} ({signal.strsignal(number)})"


class Copy(dict[int, Node]):
    """The nodes of a session within a worker, by their numbers in the main process."""

    def __init__(self, session: Session) -> None:
        super().__init__((node.number, node) for node in session.nodes)
        self.session = session

    def add(self, links: Sequence[Link]) -> None:
        """Add nodes that were sent, by walking to them."""
        for number, parent, move in links:
            self[number] = self.session.child(self[parent], move)


def _forked() -> int:
    try:
        return forked()
    except OSError as error:
        raise SystemFailure(f"no process can be started: {error.strerror}") from None


def _release_sockets(keep: int) -> None:
    """Release every other socket. The other end sees a socket close only after all copies of it are closed."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor with which the list was read is closed by now
            if int(name) != keep and stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.dup2(nothing, int(name))  # replaced, not closed: the owner of the number may still close it


def _serve(line: socket.socket, jobs: Sequence[Job]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the main process, which then closes the line
    workers: set[int] = set()
    try:
        while True:
            asked, lines, *_ = socket.recv_fds(line, _REQUEST.size, 1)
            if not asked:
                break
            what, number = _REQUEST.unpack(asked)
            if what == b"+":
                pid = _started(line, jobs[number], lines[0])
                os.close(lines[0])
                if pid > 0:
                    workers.add(pid)
                line.sendall(_ANSWER.pack(pid))
            else:
                line.sendall(_ANSWER.pack(_ended(number)))
                workers.discard(number)
    except OSError:
        pass
    for pid in workers:
        _ended(pid)


def _started(line: socket.socket, job: Job, its: int) -> int:
    try:
        pid = os.fork()
    except OSError:
        return -1
    if pid:
        return pid
    try:
        line.close()
        job(Connection(its))
    finally:
        os._exit(0)


def _ended(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]
