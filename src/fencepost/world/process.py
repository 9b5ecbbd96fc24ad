"""A process of a world: an event loop, and a program that runs on it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from fencepost.simulation.streams import ProcessLoop, Streams


class World(Protocol):
    """The world, as processes see it."""

    events: int
    streams: Streams
    sessions: dict[int, str]
    """The process of each session with the metadata service."""

    def trace_of(self, node: str, kind: str) -> Any:
        """The trace of a starting process; None if traces are not read."""

    def happened(self, who: str, what: str) -> None:
        """Record a step of the run."""

    def raised(self, who: str, error: BaseException) -> None:
        """A process raised an unexpected error, or found a broken promise."""

    def answered_by_metadata(self, zxid: int) -> None:
        """A client received an answer of the metadata service that reflects the change ``zxid``."""


class WorldLoop(ProcessLoop):
    """The loop of a process of a world."""

    def __init__(self, world: World, name: str, lost_power: Callable[[], None] = lambda: None) -> None:
        super().__init__(world.streams, name)
        self.world = world
        self._lost_power = lost_power
        self._held: list[tuple[Callable[..., object], tuple[Any, ...]]] | None = None
        """Calls held until the process resumes; None while it is not paused."""

    def stop(self, until: int) -> None:
        """Pause the process until a time, as if it were not scheduled or collecting garbage."""
        if self._held is None:
            self._held = []
            self.schedule.at(until, self._go_on)

    def _go_on(self) -> None:
        held, self._held = self._held or [], None
        for call, arguments in held:
            self.does(call, *arguments)

    def does(self, call: Callable[..., object], *arguments: Any) -> None:
        """See :class:`.SimLoop`. Calls during a pause are made afterwards, in order."""
        if self._held is None:
            super().does(call, *arguments)
        else:
            self._held.append((call, arguments))

    def abandon(self) -> None:
        """See :class:`.SimLoop`. Also ends a pause that outlasts the run."""
        self._held = None
        super().abandon()

    def did(self) -> None:
        """See :class:`.SimLoop`."""
        self.world.events += 1

    def lost_power(self) -> None:
        """See :class:`.SimLoop`."""
        self._lost_power()

    def raised(self, error: Exception) -> None:
        """See :class:`.SimLoop`."""
        self.world.raised(self.name, error)


class Process:
    """A process that runs a program to its end. After a crash it can be started again."""

    def __init__(self, world: World, name: str, program: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.world = world
        self.name = name
        self.program = program
        self.loop: WorldLoop | None = None
        self.is_done = False
        """Whether the program has finished."""

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self.loop is not None and not self.loop.has_ended

    def start(self) -> None:
        """Start the program, unless it is running or finished."""
        if not self.alive and not self.is_done:
            self.world.happened(self.name, "starts")
            self.loop = WorldLoop(self.world, self.name)
            self.loop.does(self._begin, self.loop)

    def _begin(self, loop: WorldLoop) -> None:
        loop.create_task(self.program()).add_done_callback(self._ended)

    def _ended(self, task: Any) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.raised(self.name, error)
        self.is_done = True

    def crash(self, power: bool) -> None:
        """Kill the process, or (``power``) cut its machine's power."""
        if self.loop is not None and self.alive:
            self.world.happened(self.name, "loses power" if power else "is killed")
            self.loop.end(noticed=not power)
