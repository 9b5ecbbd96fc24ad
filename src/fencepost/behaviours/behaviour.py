"""A behaviour of a protocol: an initial state and the steps from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from fencepost.language.context import Event, Slot
from fencepost.language.seam import Model
from fencepost.language.values import Value, show_call
from fencepost.semantics.state import State
from fencepost.text.notebook import framed


@dataclass(frozen=True)
class Step:
    """One step: its action and parameters, its actor, its choices, its events, and the state after it.

    ``by`` is the actor's name or None. ``choices`` are the options taken, in order. ``changes`` are (slot, old, new).
    ``title`` is the action with its parameters, ``bookie_confirms_add(b=b1)``. ``place`` is where the action stands in
    its source, ``Spec.tla:112``, or "" if its name says enough.
    """

    action: str
    parameters: Mapping[str, Value]
    by: str | None
    choices: tuple[Value, ...]
    events: tuple[Event, ...]
    state: State
    changes: list[tuple[Slot, Value, Value]]
    title: str = ""
    place: str = ""

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", show_call(self.action, self.parameters))


@dataclass(frozen=True)
class Trace:
    """A behaviour: ``initial``, then ``steps``. ``len(trace)`` counts states, the initial one included, as TLC does.

    A **lasso** is an endless behaviour: the last state is ``states[loop]`` again, and the steps after that state repeat
    forever. If ``loop`` is the index of the last state, the behaviour stays there. For other behaviours ``loop`` is
    None.
    """

    protocol: Model
    initial: State
    steps: tuple[Step, ...]
    loop: int | None = None

    _page: ClassVar[Callable[[Trace], str] | None] = None
    """Renders a behaviour as a page. :mod:`fencepost.api.result` sets it, since this package cannot import it."""

    def _repr_html_(self) -> str | None:
        """In a notebook: the story and the sequence diagram."""
        return None if Trace._page is None else framed(Trace._page(self))

    def __len__(self) -> int:
        return 1 + len(self.steps)

    @property
    def states(self) -> list[State]:
        """Every state, the initial one first."""
        return [self.initial, *(step.state for step in self.steps)]
