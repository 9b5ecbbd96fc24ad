"""Evaluations of the author's Python on all cores.

An evaluation holds Python's lock, so threads cannot share the work. For many evaluations, processes are forked. Such a
**helper** is a copy of this process, with its values and tables, and lives for one **round** of questions. The
questions are handed out in chunks. A helper takes a chunk when it has sent the answers to its last one, and so does
this process while it has no answer to record. Answers are recorded here, in the order of the questions.

An answer is a decision tree, in numbers of slots and values. A new value is sent along, and gets its number here. All
else that an evaluation may change stays in the helper. So a helper leaves a question open if the evaluation raises,
makes a slot, or relies on a universe in a new way. It is evaluated here when its turn comes. What was evaluated before
a universe grew says nothing about states with the new slots, so growth ends the round.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from fencepost.checker.compiler.tables import Question, Tables
from fencepost.checker.engines.resources import forked, resident_memory
from fencepost.checker.engines.search import TICK
from fencepost.errors import FencepostError, ProtocolRaised
from fencepost.language.context import Reliance
from fencepost.semantics import RanOtherwise, State
from fencepost.semantics.trees import Branch, packed, unpacked

FEW = 100
"""The most questions that are answered here alone, before it is looked at how long they took."""

FORKING, COPYING = 0.15, 0.1
"""The seconds of evaluation for which a round may pay, and those in addition for each GiB of memory in use, whose pages
a copy of this process shares.
"""

MOST_PASSED = 64
"""The most times that a round is passed over after one that did not pay."""

CHUNK = 0.05
"""The seconds that a chunk of questions should take."""

MOST_CHUNKS = 1_000
"""The most chunks of a round. Their numbers fit into one page, which every pipe can hold."""

PATIENCE, SLOWER = 1.0, 20
"""The seconds to wait for a chunk of another process, and those in addition, as a multiple of what it should take.
After that it is evaluated here, where a limit on time can end an evaluation.
"""

_NUMBER = struct.Struct("=i")


class Answer(NamedTuple):
    """The tree of an evaluation, and the calls of the author's Python that it took."""

    tree: Branch
    calls: int


Answers = list[Answer | RanOtherwise | None]
"""The answers to a chunk. None: the question is open."""


class Helper(NamedTuple):
    """Another process of a round. ``numbers``: the numbers here of its new values, by slot and its number."""

    pid: int
    line: Connection
    numbers: dict[tuple[int, int], int]


class Evaluators:
    """Answers the questions of an engine, and records the answers in ``tables``. ``cores``: the most processes at work,
    this one included. Only Linux has others: the libraries of macOS do not stand a fork.
    """

    def __init__(self, tables: Tables, cores: int) -> None:
        self.tables = tables
        self.helpers = cores - 1 if sys.platform == "linux" else 0
        self._pace = 0.0
        """The seconds that an evaluation took here, the last time."""
        self._passes, self._passing = 0, 1
        """How often to pass over a round, and how often after the next one that does not pay."""

    def ask(self, questions: Sequence[Question]) -> Iterator[ProtocolRaised | None]:
        """Record the answer to each question. Yields for each the error that the author's Python raised, or None."""
        at = 0
        while at < len(questions):
            left = questions[at:]
            for raised in self._together(left) if self._pays(len(left)) else self._alone(left[:FEW]):
                at += 1
                yield raised

    def _pays(self, questions: int) -> bool:
        if not self.helpers or self.tables.stepper.checking or questions < 2:
            return False
        if self._pace * questions <= FORKING + COPYING * resident_memory() / (1 << 30):
            return False
        self._passes -= 1
        return self._passes < 0

    def _alone(self, questions: Sequence[Question]) -> Iterator[ProtocolRaised | None]:
        began = time.monotonic()
        for question in questions:
            yield asked(self.tables, question)
        self._pace = (time.monotonic() - began) / len(questions)

    def _together(self, questions: Sequence[Question]) -> Iterator[ProtocolRaised | None]:
        began, answered = time.monotonic(), 0
        try:
            begun = Round(self.tables, questions, self.helpers, self._pace)
        except OSError:  # the system gives no pipe
            self.helpers = 0
            return
        with closing(begun):
            for raised in begun.answers():
                answered += 1
                yield raised
        if begun.is_useless:
            self.helpers = 0
        self._notice(time.monotonic() - began, answered)

    def _notice(self, seconds: float, answered: int) -> None:
        """Whether a round that took some seconds was worth it decides how soon there is another one."""
        if seconds > answered * self._pace:
            self._passes, self._passing = self._passing, min(2 * self._passing, MOST_PASSED)
        else:
            self._passing = 1


def asked(tables: Tables, question: Question) -> ProtocolRaised | None:
    """Evaluate a question and record the answer. Returns what the author's Python raised."""
    try:
        tables.ask(question)
    except ProtocolRaised as error:
        return error
    return None


class Round:
    """Questions that are answered together with ``helpers``. ``pace``: the seconds that each may take. Raises OSError
    if the system gives no pipe.
    """

    def __init__(self, tables: Tables, questions: Sequence[Question], helpers: int, pace: float) -> None:
        self.tables = tables
        store = tables.store
        self.grown, self.slots = store.grown, len(store.slots)
        self.values = [len(values) for values in store.values]
        """The number of values of each slot that all processes know."""
        size = min(int(CHUNK / max(pace, CHUNK / len(questions))), -(-len(questions) // (4 * (helpers + 1))))
        size = max(1, size, -(-len(questions) // MOST_CHUNKS))
        self.chunks = [questions[begin : begin + size] for begin in range(0, len(questions), size)]
        self.patience = PATIENCE + SLOWER * pace * size
        self.ready: dict[int, Answers] = {}
        self.is_void = False
        """Whether a universe has grown, so that answers which are not recorded are not right."""
        self.is_useless = False
        """Whether a helper could not be started, or took a chunk and ended: an answer cannot be sent."""
        self.has_new_slots = False
        """Whether a helper has ended because it made a slot."""
        self.helpers: list[Helper] = []
        self.pids: list[int] = []
        # The numbers of all chunks lie in a pipe, so that taking one never waits.
        self.queue, numbers = os.pipe()
        os.write(numbers, b"".join(map(_NUMBER.pack, range(len(self.chunks)))))
        os.close(numbers)
        try:
            for _ in range(helpers):
                self._start()
        except OSError:
            self.is_useless = True
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the helpers."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for helper in self.helpers:
            helper.line.close()
        os.close(self.queue)

    def _start(self) -> None:
        line, its = Pipe(duplex=False)
        pid = forked()
        if not pid:
            with suppress(BaseException):
                self._help(its)
            os._exit(0)
        its.close()
        self.pids.append(pid)
        self.helpers.append(Helper(pid, line, {}))

    def _take(self) -> int | None:
        """The number of a chunk that nobody has taken."""
        taken = os.read(self.queue, _NUMBER.size)
        return _NUMBER.unpack(taken)[0] if taken else None

    # -- in this process ----------------------------------------------------------------------------------------------

    def answers(self) -> Iterator[ProtocolRaised | None]:
        """As :meth:`Evaluators.ask`, until a universe grows."""
        for number, questions in enumerate(self.chunks):
            self._await(number)
            if self.is_void:
                return
            for question, answer in zip(questions, self.ready.pop(number), strict=True):
                if answer is None:
                    yield asked(self.tables, question)
                elif isinstance(answer, RanOtherwise):  # asked again, it might not be repeated
                    answer.state = State(self.tables.store, question.ids)
                    yield answer
                else:
                    self.tables.stepper.evaluations += answer.calls
                    self.tables.record(question, answer.tree)
                    yield None
                if self.tables.store.grown != self.grown:
                    return

    def _await(self, number: int) -> None:
        """Wait for the answers to a chunk. Meanwhile, answer others."""
        late = math.inf
        while number not in self.ready and not self.is_void:
            self.tables.stepper.deadline.check()
            if self._receive(0.0):
                continue
            mine = self._take()
            if mine is not None:
                self._answer(mine)
                continue
            late = min(late, time.monotonic() + self.patience)
            if not self.helpers or time.monotonic() > late:
                self.is_useless = self.is_useless or not (self.helpers or self.has_new_slots)
                self._answer(number)
            else:
                self._receive(TICK)

    def _receive(self, seconds: float) -> bool:
        """Receive answers that arrive within some seconds. Returns whether there were any."""
        by_line = {helper.line: helper for helper in self.helpers}
        arrived = wait(list(by_line), seconds)
        for line in arrived:
            assert isinstance(line, Connection)
            helper = by_line[line]
            try:
                number, answers, values, has_new_slots = pickle.loads(line.recv_bytes())
            except EOFError:
                line.close()
                self.helpers.remove(helper)
                continue
            self.has_new_slots = self.has_new_slots or has_new_slots
            for slot, its, value in values:
                helper.numbers[slot, its] = self.tables.store.intern(slot, value)
            self.ready[number] = [
                Answer(unpacked(each[0], helper.numbers), each[1]) if isinstance(each, tuple) else each
                for each in answers
            ]
        return bool(arrived)

    def _answer(self, number: int) -> None:
        """Answer a chunk here, without recording the answers."""
        answers: Answers = []
        for question in self.chunks[number]:
            answers.append(self._evaluated(question))
            if self.tables.store.grown != self.grown:
                self.is_void = True
                return
        self.ready[number] = answers

    def _evaluated(self, question: Question) -> Answer | RanOtherwise | None:
        stepper = self.tables.stepper
        calls = stepper.evaluations
        try:
            tree = self.tables.evaluated(question)
        except RanOtherwise as error:
            error.state = None  # it is not sent to another process
            return error
        except FencepostError:
            return None
        finally:
            made, stepper.evaluations = stepper.evaluations - calls, calls
        return Answer(tree, made)

    # -- in a helper --------------------------------------------------------------------------------------------------

    def _help(self, line: Connection) -> None:
        """Answer chunks until there are no more, or until a slot is made here, which no other process knows."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the process that ends this one
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        store, stepper = self.tables.store, self.tables.stepper
        relied, sent = stepper.relied, self.values[:]
        while (number := self._take()) is not None:
            signal.alarm(int(self.patience) + 60)  # should the other process be gone, too
            answers: list[Any] = []
            for question in self.chunks[number]:
                stepper.relied = {}
                answer = self._evaluated(question)
                if len(store.slots) != self.slots:
                    answer = None
                    break
                is_new = not _relies_on(stepper.relied.get(question.root, {}), relied.get(question.root, {}))
                if isinstance(answer, Answer):
                    answers.append(None if is_new else (packed(answer.tree), answer.calls))
                else:
                    answers.append(answer)
            answers += [None] * (len(self.chunks[number]) - len(answers))
            values = [
                (slot, its, store.values[slot][its])
                for slot, known in enumerate(sent)
                for its in range(known, len(store.values[slot]))
            ]
            has_new_slots = len(store.slots) != self.slots
            line.send_bytes(pickle.dumps((number, answers, values, has_new_slots), protocol=5))
            if has_new_slots:
                return
            sent = list(map(len, store.values))


def _relies_on(some: dict[int, Reliance], known: dict[int, Reliance]) -> bool:
    """Whether it is known already that a root relies on these universes in this way."""
    for universe, relied in some.items():
        before = known.get(universe)
        if before is None:
            return False
        if before.sieves is not None and (relied.sieves is None or not relied.sieves.keys() <= before.sieves.keys()):
            return False
    return True
