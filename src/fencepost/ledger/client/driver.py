"""A client's process: carries out the effects of its roles, over connections to bookies and a session with the metadata
service.

This is the asyncio counterpart of the simulator's client. A running role is an :class:`Actor`. All actors of a client
share the connections, the session and one list of bookies.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from fencepost.ledger.client.connection import Connection
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.errors import (
    BadVersionError,
    ClientFailedError,
    IllegalOperationError,
    LedgerExistsError,
    MetadataServiceError,
    NoSuchLedgerError,
    OutcomeUnknownError,
    StoreError,
)
from fencepost.ledger.messages import GetBookieInfo, GetBookieInfoResponse, Request, Response
from fencepost.ledger.metadata.client import Bookies, LedgerInService, MetadataClient
from fencepost.ledger.metadata.registration import address_of
from fencepost.ledger.metadata.session import Session
from fencepost.ledger.roles.interface import (
    AddsAnswered,
    Append,
    BookiesChanged,
    Call,
    Confirmed,
    CreateMetadata,
    Disconnected,
    Effect,
    Event,
    MetadataAnswer,
    MetadataChanged,
    Outcome,
    ReadMetadata,
    Received,
    Result,
    Role,
    Send,
    SendAdds,
    SessionExpired,
    SetTimer,
    TimerFired,
    Trace,
    Unanswered,
    WriteMetadata,
)
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.placement import Placement, weights
from fencepost.traces import TraceWriter

_log = logging.getLogger("fencepost.ledgers")

FORKED = "this client belongs to the process from which this one was forked: connect anew after a fork"

_process = os.getpid()
"""This process. Asking the system before each append would cost more than being notified of forks."""


def _forked() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_forked)

_CLIENT = ("fencepost.ledger.client.", "fencepost.log.")
"""The modules of code that runs on a driver."""

_OUTCOMES: dict[type[StoreError], Outcome] = {
    NoSuchLedgerError: Outcome.NO_LEDGER,
    LedgerExistsError: Outcome.EXISTS,
    BadVersionError: Outcome.BAD_VERSION,
    OutcomeUnknownError: Outcome.UNKNOWN,
}
"""The outcomes for errors of the metadata client. Any other error would repeat on a retry, so the role fails."""


class Driver:
    """The process of one client. Create it with :meth:`start`. :meth:`close` ends its session and its connections.

    All its actors write to ``trace``, which is closed with the driver.
    """

    def __init__(self, metadata: MetadataClient, settings: ClientSettings, trace: TraceWriter | None = None) -> None:
        self.metadata = metadata
        self.settings = settings
        self.trace = trace
        self._actors_of: dict[str, int] = {}
        """How many actors of each name the trace has."""
        self.loop = asyncio.get_running_loop()
        self.connections: dict[str, Connection] = {}
        self.actors: dict[Actor, None] = {}
        """The running roles. Events for all of them arrive in the order in which they started."""
        self.bookies = Bookies()
        self.failed_until: dict[str, float] = {}
        """Until when each failed bookie is chosen last."""
        self.free: dict[str, int] = {}
        """The free space of bookies in bytes, as far as they have said so; none unless new ensembles regard it."""
        self._has_come = asyncio.Event()
        """Set when bookies have registered, and their free space is not asked for yet."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.unreachable_since: float | None = None
        """Since when the metadata service has been unreachable; None while it is reachable."""
        self._needing_metadata: set[asyncio.Future[Any]] = set()
        """Awaited futures that may need the metadata service."""
        self.on_unreachable: dict[Callable[[StoreError], None], None] = {}
        """Callbacks for when the metadata service was unreachable for too long."""
        self._unreachable_timer: asyncio.TimerHandle | None = None
        self._together: dict[tuple[int, int], list[tuple[Callable[[TimerFired], None], TimerFired]]] = {}
        """The timers that fire together, by their slack and its multiple."""
        self._stops: list[Callable[[], None]] = []
        self.dependents: dict[Callable[[StoreError], None], None] = {}
        """Callbacks, run with the error when the driver stops."""
        self.failure: Exception | None = None
        """The unexpected error that stopped the driver, if there was one."""
        self._process = _process
        _watch_over(self)

    @classmethod
    async def start(
        cls, metadata: MetadataClient, settings: ClientSettings, trace: TraceWriter | None = None
    ) -> Driver:
        """A driver that has read the list of bookies."""
        driver = cls(metadata, settings, trace)
        driver._stops.append(metadata.listen(driver._session_changed))
        driver._stops.append(await metadata.watch_bookies(driver._bookies_changed))
        if settings.placement.disk_weight_based_placement_enabled:
            has_asked = asyncio.Event()
            driver.spawn(driver._ask_for_space(has_asked))
            with suppress(TimeoutError):  # a bookie that does not answer must not hold up the client
                async with asyncio.timeout(settings.request_timeout):
                    await has_asked.wait()
        return driver

    async def close(self) -> None:
        """Stop everything. Calls in progress fail with an unknown outcome."""
        for stop in self._stops:
            stop()
        self._stops.clear()
        self._end(IllegalOperationError("the store was closed meanwhile"))
        await self.metadata.close()
        if self.trace is not None:
            await asyncio.to_thread(self.trace.close)

    def _end(self, error: StoreError) -> None:
        """Stop: everything in progress fails."""
        self._cancel_unreachable_timer()
        for report in [*(actor.fail for actor in self.actors), *self.dependents]:
            try:
                report(error)
            except Exception as another:  # report to the others anyway
                _log.error("a client of %s fails to end", self.metadata.address, exc_info=another)
        for future in [*self._needing_metadata]:
            if not future.done():
                future.set_exception(error)
        for task in [*self.tasks]:
            task.cancel()
        for connection in self.connections.values():
            connection.close()

    # -- what must not be ----------------------------------------------------------------------------------------------

    def give_up(self, error: Exception) -> None:
        """Stop after an unexpected error, when no state can be trusted. All calls in progress and all later ones
        fail.
        """
        if self.failure is None:
            self.failure = error
            _log.error("a client of %s gives up", self.metadata.address, exc_info=error)
            self._end(self._failed())

    def must_work(self) -> None:
        """Raise :class:`ClientFailedError` if the driver has given up, or belongs to the parent of this forked
        process.
        """
        if self.failure is not None:
            raise self._failed() from self.failure
        if self._process != _process:
            raise ClientFailedError(FORKED)

    def _failed(self) -> ClientFailedError:
        failure = self.failure
        made = ClientFailedError(
            f"a fault in Fencepost, after which this client does nothing more: {type(failure).__name__}: {failure};"
            " connect anew; whether what was under way was done is not known"
        )
        made.__cause__ = failure
        return made

    def set_timer(self, timer: SetTimer, deliver: Callable[[TimerFired], None]) -> None:
        """Deliver a timer's event to a role after its delay, plus a random part of its jitter. One with slack fires at
        a multiple of it, together with others.
        """
        delay, fired = timer.delay, TimerFired(timer.key)
        if timer.slack:
            turn = (int(self.loop.time() * 1_000_000) + delay) // timer.slack + 1
            together = self._together.setdefault((timer.slack, turn), [])
            if not together:
                at = turn * timer.slack / 1_000_000
                self.loop.call_at(at, self._fire_together, (timer.slack, turn))
            together.append((deliver, fired))
            return
        if timer.jitter:
            delay += int(random.random() * timer.jitter)
        self.loop.call_later(delay / 1_000_000, deliver, fired)

    def _fire_together(self, turn: tuple[int, int]) -> None:
        for deliver, fired in self._together.pop(turn):
            deliver(fired)

    # -- bookies -------------------------------------------------------------------------------------------------------

    def connection(self, bookie: str) -> Connection:
        """The connection to a bookie."""
        connection = self.connections.get(bookie)
        if connection is None:
            connection = self.connections[bookie] = Connection(bookie, self, self.settings, self.trace)
        return connection

    async def ask(self, bookie: str, request: Request) -> Response | None:
        """Send a request that belongs to no role to a bookie. Gives the answer, None if there is none."""
        return (await self.ask_all((bookie,), request)).get(bookie)

    async def ask_all(
        self, bookies: Sequence[str], request: Request, patience: float | None = None
    ) -> dict[str, Response]:
        """Send a request that belongs to no role to different bookies. Gives the answers, by bookie, that come within
        ``patience`` seconds.
        """
        self.must_work()
        question = _Question(self.loop.create_future(), len(bookies))
        for bookie in bookies:
            self.connection(bookie).send(question, 0, request)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await question.over
        return question.answers

    async def address_of(self, bookie: str) -> tuple[str, int]:
        """Host and port of a bookie, as currently registered."""
        return address_of(bookie, await self.metadata.bookie_info(bookie))

    def failed(self, bookie: str) -> None:
        """Choose a bookie only if others do not do, for a while."""
        is_news = bookie not in self._quarantined()
        self.failed_until[bookie] = self.loop.time() + self.settings.quarantine
        if is_news:
            self._announce_bookies()

    def disconnected(self, bookie: str) -> None:
        """Notify all roles that the connection to a bookie was lost."""
        for actor in [*self.actors]:
            actor.deliver(Disconnected(bookie))

    def candidates(self) -> BookiesChanged:
        """The writable bookies in random order, and those among them that have recently failed."""
        mixed = self.mixed(self.bookies.writable)
        return BookiesChanged(tuple(mixed), frozenset(self._quarantined()), self.placement)

    def mixed(self, bookies: Sequence[str]) -> list[str]:
        """Bookies in random order; if the settings say so, those with more free space sooner."""
        policy = self.settings.placement
        if not policy.disk_weight_based_placement_enabled:
            return random.sample(bookies, len(bookies))
        return drawn(bookies, weights(self.free, bookies, policy.bookie_max_multiple_for_weight_based_placement))

    async def _ask_for_space(self, has_asked: asyncio.Event) -> None:
        """Ask the writable bookies for their free space: all of them in each interval, those that have come at once,
        and those that did not answer after a shorter time. ``has_asked``: set after the first time.
        """
        policy, due = self.settings.placement, -math.inf
        while True:
            self._has_come.clear()
            is_due = due <= self.loop.time()
            some = [each for each in self.bookies.writable if is_due or each not in self.free]
            if is_due:
                due = self.loop.time() + policy.get_bookie_info_interval_seconds
            answers = await asyncio.gather(*(self.ask(each, GetBookieInfo(total=False)) for each in some))
            for bookie, answer in zip(some, answers, strict=True):
                self.free.pop(bookie, None)
                if isinstance(answer, GetBookieInfoResponse) and answer.free is not None:
                    self.free[bookie] = answer.free
            self._announce_bookies()
            has_asked.set()
            wait = due - self.loop.time()
            if any(each not in self.free for each in self.bookies.writable):
                wait = min(wait, policy.get_bookie_info_retry_interval_seconds)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._has_come.wait()

    @property
    def placement(self) -> Placement:
        """Where entries are placed: the policy of the settings, and the racks and groups of bookies."""
        return self.bookies.placement(self.settings.placement)

    def _quarantined(self) -> set[str]:
        now = self.loop.time()
        return {bookie for bookie, until in self.failed_until.items() if until > now}

    def _bookies_changed(self, bookies: Bookies) -> None:
        for bookie in set(bookies.writable) - set(self.bookies.writable):
            self.failed_until.pop(bookie, None)  # it registered again, so it works again
            self.free.pop(bookie, None)
            self._has_come.set()
        self.bookies = bookies
        self._announce_bookies()

    def _announce_bookies(self) -> None:
        for actor in [*self.actors]:
            actor.deliver(self.candidates())

    def name_in_trace(self, name: str) -> str:
        """A name in the trace that no earlier actor has."""
        number = self._actors_of[name] = self._actors_of.get(name, 0) + 1
        return name if number == 1 else f"{name} attempt {number}"

    # -- the metadata service ------------------------------------------------------------------------------------------

    def spawn(self, coroutine: Any) -> asyncio.Task[None]:
        """Run a coroutine until the driver closes. The coroutine handles its own errors."""
        task = self.loop.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.give_up(error)

    async def patiently(self, future: asyncio.Future[Any]) -> Any:
        """Wait for a future that may need the metadata service. Raises :class:`MetadataServiceError` once the service
        was unreachable for too long.
        """
        if future.done():
            return future.result()
        if (
            self.unreachable_since is not None
            and self.unreachable_since + self.settings.metadata_timeout <= self.loop.time()
        ):
            future.cancel()
            raise self._unreachable()
        self._needing_metadata.add(future)
        try:
            return await future
        finally:
            self._needing_metadata.discard(future)

    def _unreachable(self) -> MetadataServiceError:
        limit = self.settings.metadata_timeout
        return MetadataServiceError(
            f"the metadata service at {self.metadata.address.hosts} cannot be reached for {limit:g} s"
        )

    def _give_up_on_metadata(self) -> None:
        """The metadata service was unreachable for too long: fail everything that may wait for it."""
        for future in [*self._needing_metadata]:
            if not future.done():
                future.set_exception(self._unreachable())
        for report in [*self.on_unreachable]:
            report(self._unreachable())

    def _cancel_unreachable_timer(self) -> None:
        if self._unreachable_timer is not None:
            self._unreachable_timer.cancel()
            self._unreachable_timer = None

    def _session_changed(self, session: Session) -> None:
        if session is Session.CONNECTED:
            self.unreachable_since = None
            self._cancel_unreachable_timer()
        elif self.unreachable_since is None:
            self.unreachable_since = self.loop.time()
            self._unreachable_timer = self.loop.call_later(self.settings.metadata_timeout, self._give_up_on_metadata)
        if session is Session.EXPIRED and self.trace is not None:
            self.trace.emit("expired")
        if session is Session.EXPIRED:
            for actor in [*self.actors]:
                actor.deliver(SessionExpired())


_DRIVERS: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[Driver]] = WeakKeyDictionary()
"""The drivers of each loop."""


def _watch_over(driver: Driver) -> None:
    """Make a driver give up when one of its callbacks raises. The loop would only log the error, and a caller might
    wait forever.
    """
    loop = driver.loop
    if loop in _DRIVERS:
        _DRIVERS[loop].add(driver)
        return
    drivers = _DRIVERS[loop] = WeakSet([driver])
    before = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, is_callback = context.get("exception"), not {"handle", "protocol"}.isdisjoint(context)
        if is_callback and isinstance(error, Exception) and _is_of_client(error.__traceback__):
            for each in [*drivers]:
                each.give_up(error)
        if before is None:
            loop.default_exception_handler(context)
        else:  # for example a store process's, which then exits
            before(loop, context)

    loop.set_exception_handler(handle)


def _is_of_client(traceback: TracebackType | None) -> bool:
    """Whether an error was raised in a client's code."""
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__", "").startswith(_CLIENT):
            return True
        traceback = traceback.tb_next
    return False


def drawn(bookies: Sequence[str], likely: Sequence[float]) -> list[str]:
    """Bookies in an order in which each next one is drawn, among those that are left, with the likelihood of its
    weight: that of alarms that go off at these rates.
    """
    alarms = [random.expovariate(weight) for weight in likely]
    return [bookies[place] for place in sorted(range(len(bookies)), key=alarms.__getitem__)]


class _Question:
    """A request to some bookies that belongs to no role."""

    def __init__(self, over: asyncio.Future[None], missing: int) -> None:
        self.over = over
        """Done once none of them is awaited any more."""
        self.answers: dict[str, Response] = {}
        self._missing = missing

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        """The bookie answered."""
        self.answers[bookie] = response
        self.unanswered(txn, bookie)

    def unanswered(self, txn: int, bookie: str) -> None:
        """The bookie is not awaited any more."""
        self._missing -= 1
        if not self._missing and not self.over.done():
            self.over.set_result(None)


class Actor:
    """A running role: delivers its events one at a time and carries out their effects.

    ``confirmed`` takes the last confirmed entry of those appended together.
    """

    def __init__(self, driver: Driver, role: Role, confirmed: Callable[[Confirmed], None] | None = None) -> None:
        self.driver = driver
        self.role = role
        self.calls = 0
        self._time = driver.loop.time
        self._receive = role.receive
        self._connections = driver.connections
        self.is_closed = False
        self._adding = _Adding(self, 0)
        self.handlers: dict[type[Effect], Callable[[Any], None]] = {
            Send: self._send,
            SendAdds: self._send_adds,
            SetTimer: self._set_timer,
            Result: self._result,
            CreateMetadata: self._metadata,
            ReadMetadata: self._metadata,
            WriteMetadata: self._metadata,
        }
        if confirmed is not None:
            self.handlers[Confirmed] = confirmed
        if driver.trace is not None:
            ledger = getattr(role, "ledger", "")
            self._name, self._emit = driver.name_in_trace(f"{type(role).__name__.lower()} {ledger}"), driver.trace.emit
            self.handlers[Trace] = self.trace_effect
        driver.must_work()
        driver.actors[self] = None
        self.deliver(driver.candidates())

    def _result(self, result: Result) -> None:
        """Take the result of a call."""
        raise NotImplementedError

    def _failed(self, error: StoreError) -> None:
        """Take the error of the calls in progress. Called once."""
        raise NotImplementedError

    def call(self, operation: str, *arguments: Any) -> None:
        """Call an operation of the role. The call's number is the new value of ``calls``. The result may come before
        this method returns.
        """
        self.calls += 1
        self.deliver(Call(self.calls, operation, arguments))

    def append(self, entries: Sequence[bytes]) -> None:
        """Append entries. Their call's number is the new value of ``calls``."""
        self.calls += 1
        self.deliver(Append(self.calls, entries))

    def leave(self) -> None:
        """Stop the role. Messages it has sent are still delivered."""
        self.is_closed = True
        self.driver.actors.pop(self, None)

    def fail(self, error: StoreError) -> None:
        """Stop the role with an error."""
        if not self.is_closed:
            self.leave()
            self._failed(error)

    # -- events -------------------------------------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Deliver an event to the role and carry out the effects."""
        if self.is_closed:
            return
        handlers = self.handlers
        try:
            for effect in self._receive(event, int(self._time() * 1_000_000)):
                handlers[type(effect)](effect)
        except Exception as error:
            self.driver.give_up(error)

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        """A bookie answered."""
        self.deliver(Received(txn, bookie, response))

    def unanswered(self, txn: int, bookie: str) -> None:
        """A bookie did not answer."""
        self.deliver(Unanswered(txn, bookie))

    def _metadata_changed(self, ledger: int) -> None:
        self.deliver(MetadataChanged(ledger))

    # -- what the role wants ------------------------------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        connection = self._connections.get(send.bookie) or self.driver.connection(send.bookie)
        connection.send(self, send.txn, send.request)

    def _send_adds(self, send: SendAdds) -> None:
        connection = self._connections.get(send.bookie) or self.driver.connection(send.bookie)
        if send.attempt != self._adding.attempt:
            self._adding = _Adding(self, send.attempt)
        connection.send_adds(self._adding, send)

    def trace_effect(self, effect: Trace) -> None:
        """Write a role's action to the trace. Only called if there is a trace."""
        self._emit(effect.action, effect.ledger, effect.fields, actor=self._name)

    def _set_timer(self, timer: SetTimer) -> None:
        self.driver.set_timer(timer, self.deliver)

    def _metadata(self, operation: CreateMetadata | ReadMetadata | WriteMetadata) -> None:
        self.driver.spawn(self._operate(operation))

    async def _operate(self, operation: CreateMetadata | ReadMetadata | WriteMetadata) -> None:
        service, txn, ledger = self.driver.metadata, operation.txn, operation.ledger
        try:
            if type(operation) is ReadMetadata:
                watch = self._metadata_changed if operation.watch else None
                seen: LedgerInService = await service.read_ledger(ledger, watch)
                answer = MetadataAnswer(txn, Outcome.OK, seen.version, seen.metadata)
            elif type(operation) is CreateMetadata:
                answer = MetadataAnswer(txn, Outcome.OK, await service.create_ledger(ledger, operation.metadata))
            else:
                assert type(operation) is WriteMetadata
                version = await service.write_ledger(ledger, operation.metadata, operation.version)
                answer = MetadataAnswer(txn, Outcome.OK, version)
        except StoreError as error:
            outcome = _OUTCOMES.get(type(error))
            if outcome is None:
                self.fail(error)
                return
            answer = MetadataAnswer(txn, outcome)
        self.deliver(answer)


class _Adding:
    """The adds of one attempt of a role."""

    def __init__(self, actor: Actor, attempt: int) -> None:
        self.attempt = attempt
        self._deliver = actor.deliver

    def adds_answered(self, bookie: str, entry_ids: Sequence[int], code: Code | None) -> None:
        """A bookie gave these adds the same answer, or (None) did not answer."""
        self._deliver(AddsAnswered(bookie, entry_ids, code, self.attempt))
