"""How the variables of a specification are laid out in the slots of a state, and the states that formulas see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fencepost.language.context import UNSET, Cursor, Slot
from fencepost.language.fields import Shape
from fencepost.tla.held import Held
from fencepost.tla.values import EvaluationError, Value


class Whole(Shape):
    """A variable in one slot."""

    def __init__(self, name: str) -> None:
        self._slot = Slot((name,), UNSET)

    def slots(self, path: tuple[Any, ...]) -> Iterator[Slot]:
        yield self._slot

    def get(self, cursor: Cursor, path: tuple[Any, ...] = ()) -> Value:
        """The value for compiled formulas."""
        return cursor.read(self._slot).value

    def set(self, cursor: Cursor, path: tuple[Any, ...], value: Value) -> None:
        cursor.write(self._slot, Held(value))

    def reset(self, cursor: Cursor, path: tuple[Any, ...]) -> None:
        cursor.write(self._slot, UNSET)

    def value(self, read: Callable[[Slot], Any], path: tuple[Any, ...]) -> Any:
        return read(self._slot)


class Reader:
    """The variables of one state, by number."""

    __slots__ = ("_cursor", "_shapes")

    def __init__(self, shapes: Sequence[Whole], cursor: Cursor) -> None:
        self._shapes = shapes
        self._cursor = cursor

    def __getitem__(self, variable: int) -> Value:
        return self._shapes[variable].get(self._cursor)


class Writer:
    """The state that an action makes: its variables get their values one by one. ``prime`` follows their names in
    errors. The cursor gets them all in :meth:`finish`.
    """

    def __init__(self, shapes: Sequence[Whole], cursor: Cursor, prime: str) -> None:
        self._shapes = shapes
        self._cursor = cursor
        self._prime = prime
        self._values: dict[int, Value] = {}

    def __getitem__(self, variable: int) -> Value:
        try:
            return self._values[variable]
        except KeyError:
            name = next(self._shapes[variable].slots(())).name
            raise EvaluationError(f"{name}{self._prime} is used before it has a value") from None

    def assign(self, variable: int, value: Value) -> None:
        self._values[variable] = value

    def is_assigned(self, variable: int) -> bool:
        return variable in self._values

    def finish(self) -> None:
        """Give the values to the cursor."""
        for variable, value in self._values.items():
            self._shapes[variable].set(self._cursor, (), value)
