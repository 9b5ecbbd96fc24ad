"""A client's process: carries out what its roles want, over connections to bookies and a session with the metadata
service.

It is the asyncio twin of the simulator's client. A role at work is an :class:`Actor`; all actors of a client share the
connections, the session and one view of the bookies.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Sequence
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
from fencepost.ledger.messages import Request, Response
from fencepost.ledger.metadata.client import Bookies, LedgerInService, MetadataClient, Session
from fencepost.ledger.metadata.registration import address_of
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
from fencepost.ledger.rules.ensembles import preferred
from fencepost.traces import TraceWriter

_log = logging.getLogger("fencepost.ledgers")

FORKED = "this client belongs to the process from which this one was forked: connect anew after a fork"

_CLIENT = ("fencepost.ledger.client.", "fencepost.log.")
"""The modules of what runs on a driver."""

_OUTCOMES: dict[type[StoreError], Outcome] = {
    NoSuchLedgerError: Outcome.NO_LEDGER,
    LedgerExistsError: Outcome.EXISTS,
    BadVersionError: Outcome.BAD_VERSION,
    OutcomeUnknownError: Outcome.UNKNOWN,
}
"""The outcomes that errors of the metadata client are. After any other, trying again would end alike: the role cannot
go on.
"""


class Driver:
    """The process of one client. Make it with :meth:`start`; it ends its session and its connections with
    :meth:`close`.

    ``trace`` is written to by all that it does, and closed with it.
    """

    def __init__(self, metadata: MetadataClient, settings: ClientSettings, trace: TraceWriter | None = None) -> None:
        self.metadata = metadata
        self.settings = settings
        self.trace = trace
        self._actors_of: dict[str, int] = {}
        """How many actors with a name a trace has had."""
        self.loop = asyncio.get_running_loop()
        self.connections: dict[str, Connection] = {}
        self.actors: dict[Actor, None] = {}
        """The roles at work. They hear of what concerns all of them in the order in which they began."""
        self.bookies = Bookies()
        self.failed_until: dict[str, float] = {}
        """Bookies that have failed, and until when each is chosen last."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.unreachable_since: float | None = None
        """Since when the metadata service cannot be reached; None while it can."""
        self._patient: set[asyncio.Future[Any]] = set()
        """The futures that are waited for and may need the metadata service."""
        self.impatient: dict[Callable[[StoreError], None], None] = {}
        """Functions that are called once the metadata service is out of reach for too long."""
        self._losing_patience: asyncio.TimerHandle | None = None
        self._stops: list[Callable[[], None]] = []
        self.dependents: dict[Callable[[StoreError], None], None] = {}
        """Functions that are called with the error when the driver does nothing more."""
        self.failure: Exception | None = None
        """What went wrong in the driver that must not, if something did."""
        self._process = os.getpid()
        _watch_over(self)

    @classmethod
    async def start(
        cls, metadata: MetadataClient, settings: ClientSettings, trace: TraceWriter | None = None
    ) -> Driver:
        """A driver that knows which bookies there are."""
        driver = cls(metadata, settings, trace)
        driver._stops.append(metadata.listen(driver._session_changed))
        driver._stops.append(await metadata.watch_bookies(driver._bookies_changed))
        return driver

    async def close(self) -> None:
        """End everything. Calls that are under way fail, and what comes of them is not known."""
        for stop in self._stops:
            stop()
        self._stops.clear()
        self._end(IllegalOperationError("the store was closed meanwhile"))
        await self.metadata.close()
        if self.trace is not None:
            await asyncio.to_thread(self.trace.close)

    def _end(self, error: StoreError) -> None:
        """Do nothing more: all that is under way fails."""
        self._be_patient()
        for report in [*(actor.fail for actor in self.actors), *self.dependents]:
            try:
                report(error)
            except Exception as another:  # the others are told all the same
                _log.error("a client of %s fails to end", self.metadata.address, exc_info=another)
        for future in [*self._patient]:
            if not future.done():
                future.set_exception(error)
        for task in [*self.tasks]:
            task.cancel()
        for connection in self.connections.values():
            connection.close()

    # -- what must not be ----------------------------------------------------------------------------------------------

    def give_up(self, error: Exception) -> None:
        """Something went wrong that nobody foresaw, so that nothing is certain any more: all calls that are under way
        fail, and all later ones at once.
        """
        if self.failure is None:
            self.failure = error
            _log.error("a client of %s gives up", self.metadata.address, exc_info=error)
            self._end(self._failed())

    def must_work(self) -> None:
        """Raises :class:`ClientFailedError` if the driver has given up, or is that of the process from which this one
        was forked.
        """
        if self.failure is not None:
            raise self._failed() from self.failure
        if os.getpid() != self._process:
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
        """Give a role the event of a timer when its time has come, a random part of its jitter later."""
        delay = timer.delay + random.random() * timer.jitter if timer.jitter else timer.delay
        self.loop.call_later(delay / 1_000_000, deliver, TimerFired(timer.key))

    # -- bookies -------------------------------------------------------------------------------------------------------

    def connection(self, bookie: str) -> Connection:
        """The connection to a bookie."""
        found = self.connections.get(bookie)
        if found is None:
            found = self.connections[bookie] = Connection(bookie, self, self.settings, self.trace)
        return found

    async def ask(self, bookie: str, request: Request) -> Response | None:
        """Send a request of nobody's role to a bookie; gives its answer, None if there is none."""
        self.must_work()
        question = _Question(self.loop.create_future())
        self.connection(bookie).send(question, 0, request)
        return await question.answer

    async def address_of(self, bookie: str) -> tuple[str, int]:
        """Host and port of a bookie, as it has registered them now."""
        return address_of(bookie, await self.metadata.bookie_info(bookie))

    def failed(self, bookie: str) -> None:
        """Choose a bookie last for a while."""
        is_news = bookie not in self._quarantined()
        self.failed_until[bookie] = self.loop.time() + self.settings.quarantine
        if is_news:
            self._announce_bookies()

    def disconnected(self, bookie: str) -> None:
        """Tell all roles that the connection to a bookie is gone."""
        for actor in [*self.actors]:
            actor.deliver(Disconnected(bookie))

    def candidates(self) -> BookiesChanged:
        """The bookies that can be written to, in an order in which to choose among them: any, but those that have
        failed lately last.
        """
        mixed = random.sample(self.bookies.writable, len(self.bookies.writable))
        return BookiesChanged(tuple(preferred(mixed, self._quarantined())))

    def _quarantined(self) -> set[str]:
        now = self.loop.time()
        return {bookie for bookie, until in self.failed_until.items() if until > now}

    def _bookies_changed(self, bookies: Bookies) -> None:
        for bookie in set(bookies.writable) - set(self.bookies.writable):
            self.failed_until.pop(bookie, None)  # it is registered anew, so it works again
        self.bookies = bookies
        self._announce_bookies()

    def _announce_bookies(self) -> None:
        for actor in [*self.actors]:
            actor.deliver(self.candidates())

    def name_in_trace(self, name: str) -> str:
        """How a trace calls what has a name: as nobody before."""
        number = self._actors_of[name] = self._actors_of.get(name, 0) + 1
        return name if number == 1 else f"{name} attempt {number}"

    # -- the metadata service ------------------------------------------------------------------------------------------

    def spawn(self, coroutine: Any) -> asyncio.Task[None]:
        """Run a coroutine until the driver is closed. It handles its errors itself."""
        task = self.loop.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.give_up(error)

    async def patiently(self, future: asyncio.Future[Any]) -> Any:
        """Wait for what may need the metadata service. Raises :class:`MetadataServiceError` once that is out of reach
        for too long.
        """
        if future.done():
            return future.result()
        if (
            self.unreachable_since is not None
            and self.unreachable_since + self.settings.metadata_timeout <= self.loop.time()
        ):
            future.cancel()
            raise self._unreachable()
        self._patient.add(future)
        try:
            return await future
        finally:
            self._patient.discard(future)

    def _unreachable(self) -> MetadataServiceError:
        limit = self.settings.metadata_timeout
        return MetadataServiceError(
            f"the metadata service at {self.metadata.address.hosts} cannot be reached for {limit:g} s"
        )

    def _lose_patience(self) -> None:
        """The metadata service is out of reach for too long: nobody waits any more for what may need it."""
        for future in [*self._patient]:
            if not future.done():
                future.set_exception(self._unreachable())
        for report in [*self.impatient]:
            report(self._unreachable())

    def _be_patient(self) -> None:
        if self._losing_patience is not None:
            self._losing_patience.cancel()
            self._losing_patience = None

    def _session_changed(self, session: Session) -> None:
        if session is Session.CONNECTED:
            self.unreachable_since = None
            self._be_patient()
        elif self.unreachable_since is None:
            self.unreachable_since = self.loop.time()
            self._losing_patience = self.loop.call_later(self.settings.metadata_timeout, self._lose_patience)
        if session is Session.EXPIRED and self.trace is not None:
            self.trace.emit("expired")
        if session is Session.EXPIRED:
            for actor in [*self.actors]:
                actor.deliver(SessionExpired())


_DRIVERS: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[Driver]] = WeakKeyDictionary()
"""The drivers on each loop that has some."""


def _watch_over(driver: Driver) -> None:
    """Have a driver give up when one of its callbacks raises: the loop would only log that, and somebody might wait for
    ever.
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
        else:  # such as that of a process of the store, which ends then
            before(loop, context)

    loop.set_exception_handler(handle)


def _is_of_client(traceback: TracebackType | None) -> bool:
    """Whether an error came out of the code of a client."""
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__", "").startswith(_CLIENT):
            return True
        traceback = traceback.tb_next
    return False


class _Question:
    """A request that is asked for itself."""

    def __init__(self, answer: asyncio.Future[Response | None]) -> None:
        self.answer = answer

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        """The bookie answered."""
        if not self.answer.done():
            self.answer.set_result(response)

    def unanswered(self, txn: int, bookie: str) -> None:
        """It did not."""
        if not self.answer.done():
            self.answer.set_result(None)


class Actor:
    """A role at work: its events go in one after another, and its effects are carried out.

    ``confirmed`` takes the last confirmed entry of those that were appended together.
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
        self.carry: dict[type[Effect], Callable[[Any], None]] = {
            Send: self._send,
            SendAdds: self._send_adds,
            SetTimer: self._set_timer,
            Result: self._result,
            CreateMetadata: self._metadata,
            ReadMetadata: self._metadata,
            WriteMetadata: self._metadata,
        }
        if confirmed is not None:
            self.carry[Confirmed] = confirmed
        if driver.trace is not None:
            ledger = getattr(role, "ledger", "")
            self._name, self._emit = driver.name_in_trace(f"{type(role).__name__.lower()} {ledger}"), driver.trace.emit
            self.carry[Trace] = self.trace_effect
        driver.must_work()
        driver.actors[self] = None
        self.deliver(driver.candidates())

    def _result(self, result: Result) -> None:
        """Take the result of a call."""
        raise NotImplementedError

    def _failed(self, error: StoreError) -> None:
        """Take, once, the error of the calls that are under way."""
        raise NotImplementedError

    def call(self, operation: str, *arguments: Any) -> None:
        """Ask the role for something, under the number that is ``calls`` then. The result may come before this
        returns.
        """
        self.calls += 1
        self.deliver(Call(self.calls, operation, arguments))

    def append(self, entries: Sequence[bytes]) -> None:
        """Append entries, under the number that is ``calls`` then."""
        self.calls += 1
        self.deliver(Append(self.calls, entries))

    def leave(self) -> None:
        """The role is gone. What it has sent is on its way."""
        self.is_closed = True
        self.driver.actors.pop(self, None)

    def fail(self, error: StoreError) -> None:
        """The role cannot go on."""
        if not self.is_closed:
            self.leave()
            self._failed(error)

    # -- events -------------------------------------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Give the role an event, and do what it wants."""
        if self.is_closed:
            return
        carry = self.carry
        try:
            for effect in self._receive(event, int(self._time() * 1_000_000)):
                carry[type(effect)](effect)
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
        """Write what the role says it does; only if there is a trace."""
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
        """A bookie answered adds alike, or did not answer."""
        self._deliver(AddsAnswered(bookie, entry_ids, code, self.attempt))
