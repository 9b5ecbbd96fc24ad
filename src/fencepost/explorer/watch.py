"""Evaluates typed expressions at the states of a walk, in a worker. If an expression takes too much time or memory, the
worker is killed, and the page says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from fencepost.errors import OptionError
from fencepost.explorer import sandbox
from fencepost.explorer.forkserver import Copy, ForkServer, Worker, why_ended
from fencepost.explorer.session import MAX_EXPRESSIONS, Evaluation, Node, Session

SECONDS = 2.0
"""Seconds of processor time for an expression, for all states in one request."""

MEMORY = 1 << 30
"""The most bytes of memory for evaluation."""

PATIENCE = 60.0
"""Seconds after which a worker is killed even if it uses no processor time: an author's function may block."""

SLOW = "it is no longer evaluated: it takes longer than {:g} seconds for the states of this history"
DIED = "it is no longer evaluated: {}"


def evaluating(session: Session) -> Any:
    """The job of a worker: to evaluate one expression after another."""

    def job(line: Connection) -> None:
        copy, own = Copy(session), os.getpid()
        sandbox.enter(MEMORY)
        with contextlib.suppress(EOFError, OSError):
            while True:
                text, numbers, links = line.recv()
                copy.add(links)
                # The system kills the process after this time, whatever it is doing.
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                try:
                    answer: Any = [(one.text, one.false) for one in session.watch(text, [copy[n] for n in numbers])]
                except OptionError as error:
                    answer = str(error)
                signal.setitimer(signal.ITIMER_PROF, 0)
                sandbox.exit_if_forked(own)
                line.send(answer)

    return job


class Watcher:
    """The values of expressions at the nodes of a session. ``job``: the number of :func:`evaluating` in the server."""

    def __init__(self, session: Session, forkserver: ForkServer, job: int) -> None:
        self._forkserver, self._job = forkserver, job
        self._copied = len(session.nodes)
        self._worker: Worker | None = None
        self._ended: dict[str, str] = {}

    def watch(self, text: str, nodes: Sequence[Node]) -> list[Evaluation]:
        """The values of an expression at these nodes.

        Raises :class:`OptionError` if it cannot be parsed, or if it once took too long.
        """
        if text in self._ended:
            raise OptionError(self._ended[text])
        missing = [node for node in nodes if text not in node.evaluations]
        if missing:
            for node, (said, false) in zip(missing, self._asked(text, missing), strict=True):
                if len(node.evaluations) >= MAX_EXPRESSIONS:
                    node.evaluations.clear()
                node.evaluations[text] = Evaluation(said, false)
        return [node.evaluations[text] for node in nodes]

    def only(self, texts: Sequence[str]) -> None:
        """Let all other expressions be tried again if they are requested again."""
        self._ended = {text: why for text, why in self._ended.items() if text in texts}

    def _asked(self, text: str, nodes: Sequence[Node]) -> list[tuple[str, bool]]:
        for _ in range(2):  # the system may have killed an idle worker
            worker = self._worker = self._worker or self._forkserver.start(self._job)
            late = False
            with contextlib.suppress(EOFError, OSError):
                worker.line.send((text, [node.number for node in nodes], worker.missing_links(nodes, self._copied)))
                late = not worker.line.poll(PATIENCE)
                if not late:
                    answer: list[tuple[str, bool]] | str = worker.line.recv()
                    if isinstance(answer, str):
                        raise OptionError(answer)
                    return answer
            self._worker = None
            ended = worker.end()
            late = ended == signal.SIGPROF or late
            if late:
                break
        self._ended[text] = SLOW.format(SECONDS) if late else DIED.format(why_ended(ended))
        raise OptionError(self._ended[text])
