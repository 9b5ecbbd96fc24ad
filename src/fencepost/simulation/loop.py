"""The event loop of one simulated process: the parts of an asyncio loop that its code uses, on virtual time.

Tasks and futures hash by number and not by address, so that a set of them has the same order in every run.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from itertools import count
from typing import Any, cast

from fencepost.simulation.disk import PowerLoss
from fencepost.simulation.schedule import Schedule


class SimHandle:
    """A scheduled call."""

    __slots__ = ("arguments", "call", "context")

    def __init__(self, call: Callable[..., object] | None, arguments: tuple[Any, ...], context: Context | None) -> None:
        self.call = call
        self.arguments = arguments
        self.context = context

    def cancel(self) -> None:
        """Cancel the call."""
        self.call = None

    def cancelled(self) -> bool:
        """Whether the call is cancelled."""
        return self.call is None


class SimFuture(asyncio.Future[Any]):
    """A future that hashes by its number."""

    def __init__(self, number: int, loop: Any) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class SimTask(asyncio.Task[Any]):
    """A task that hashes by its number."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class SimLoop:
    """A loop. ``rate``: microseconds of virtual time per second of its clock. ``has_ended``: its process is gone, and
    no pending call is made.
    """

    def __init__(self, schedule: Schedule, rate: float = 1_000_000) -> None:
        self.schedule = schedule
        self.rate = rate
        self.has_ended = False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """The unfinished tasks, referenced here because nobody else may."""
        self._numbers = count(1)
        self._handler: Callable[[Any, dict[str, Any]], object] | None = None

    # -- hooks for the process -----------------------------------------------------------------------------------------

    def lost_power(self) -> None:
        """The process died in the middle of a call."""
        raise NotImplementedError

    def did(self) -> None:
        """The process is about to make a call."""

    def raised(self, error: Exception) -> None:
        """A callback raised an error."""
        raise error

    def does(self, call: Callable[..., object], *arguments: Any) -> None:
        """Make a call as the process, unless it has ended. The process may end during the call."""
        if self.has_ended:
            return
        self.did()
        before, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        asyncio._set_running_loop(cast(Any, self))
        sys.set_asyncgen_hooks(finalizer=self._finalize)
        try:
            call(*arguments)
        except PowerLoss:
            self.lost_power()
        except Exception as error:
            self.raised(error)
        finally:
            asyncio._set_running_loop(before)
            sys.set_asyncgen_hooks(*hooks)

    def _finalize(self, generator: AsyncGenerator[Any, None]) -> None:
        """Close an asynchronous generator that was dropped before its end."""
        self.call_soon(lambda: self.create_task(cast(Any, generator.aclose())))

    def abandon(self) -> None:
        """The run is over: cancel its tasks, so that asyncio does not warn about them."""
        self.has_ended = False  # otherwise nothing could be closed
        self.does(self._close_all)
        self.has_ended = True

    def _close_all(self) -> None:
        self.has_ended = True
        while self.tasks:
            coroutine: Any = self.tasks.popitem()[0].get_coro()
            with suppress(BaseException):
                while True:  # also cancel what it awaits while it is cancelled
                    coroutine.throw(asyncio.CancelledError())

    # -- the interface of asyncio loops --------------------------------------------------------------------------------

    def time(self) -> float:
        """See :class:`asyncio.AbstractEventLoop`, as for all below."""
        return self.schedule.now / self.rate

    def call_soon(self, callback: Callable[..., object], *arguments: Any, context: Context | None = None) -> SimHandle:
        handle = SimHandle(callback, arguments, context)
        if not self.has_ended:
            self.schedule.after(0, self._call, handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> SimHandle:
        return self.call_at(self.time() + delay, callback, *arguments, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> SimHandle:
        handle = SimHandle(callback, arguments, context)
        if not self.has_ended:
            self.schedule.at(max(self.schedule.now, round(when * self.rate)), self._call, handle)
        return handle

    def _call(self, handle: SimHandle) -> None:
        if handle.call is None:
            return
        if handle.context is None:
            self.does(handle.call, *handle.arguments)
        else:
            self.does(handle.context.run, handle.call, *handle.arguments)

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(next(self._numbers), self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = SimTask(next(self._numbers), coro, loop=self, name=name, context=context)
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))
        return task

    def run_in_executor(self, executor: object, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call at once: there are no threads."""
        future = self.create_future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return self.has_ended

    def get_exception_handler(self) -> Callable[[Any, dict[str, Any]], object] | None:
        return self._handler

    def set_exception_handler(self, handler: Callable[[Any, dict[str, Any]], object] | None) -> None:
        self._handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._handler is not None and not self.has_ended:
            self._handler(self, context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore results that nobody retrieved, which are no fault here."""
