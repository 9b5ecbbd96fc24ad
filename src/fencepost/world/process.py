"""What a process of a world has around it: a loop, and a program that runs on it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from fencepost.simulation.streams import ProcessLoop, Streams


class World(Protocol):
    """The world, as processes see it."""

    events: int
    streams: Streams
    sessions: dict[int, str]
    """Whose each session with the metadata service is."""

    def trace_of(self, node: str, kind: str) -> Any:
        """The trace of a process that begins; None if nobody reads it."""

    def happened(self, who: str, what: str) -> None:
        """Something happens that the story tells."""

    def raised(self, who: str, error: BaseException) -> None:
        """A process has raised an error that nothing foresees, or a promise was seen to be broken."""

    def answered_by_metadata(self, zxid: int) -> None:
        """A client has an answer of the metadata service, from a state after a change."""


class WorldLoop(ProcessLoop):
    """The loop of a process of a world."""

    def __init__(self, world: World, name: str, lost_power: Callable[[], None] = lambda: None) -> None:
        super().__init__(world.streams, name)
        self.world = world
        self._lost_power = lost_power
        self._held: list[tuple[Callable[..., object], tuple[Any, ...]]] | None = None
        """What is to be done when the process goes on; None while it is not stopped."""

    def stop(self, until: int) -> None:
        """The process does nothing up to a time, as one that is not scheduled, or collects garbage."""
        if self._held is None:
            self._held = []
            self.schedule.at(until, self._go_on)

    def _go_on(self) -> None:
        held, self._held = self._held or [], None
        for call, arguments in held:
            self.does(call, *arguments)

    def does(self, call: Callable[..., object], *arguments: Any) -> None:
        """See :class:`.SimLoop`. What comes while the process is stopped is done afterwards, in its order."""
        if self._held is None:
            super().does(call, *arguments)
        else:
            self._held.append((call, arguments))

    def abandon(self) -> None:
        """See :class:`.SimLoop`. A process that was stopped for longer than the run goes on for that."""
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
    """A process that runs a program from its start to its end. A crash ends it in the middle, and it may be started
    again.
    """

    def __init__(self, world: World, name: str, program: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.world = world
        self.name = name
        self.program = program
        self.loop: WorldLoop | None = None
        self.is_done = False
        """Whether the program has come to its end."""

    @property
    def alive(self) -> bool:
        """Whether there is a process."""
        return self.loop is not None and not self.loop.has_ended

    def start(self) -> None:
        """Begin with the program, if there is no process and it is not done."""
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
        """The process is gone: it is killed, or (``power``) its machine loses power."""
        if self.loop is not None and self.alive:
            self.world.happened(self.name, "loses power" if power else "is killed")
            self.loop.end(noticed=not power)
