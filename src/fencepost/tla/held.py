"""The values of TLA+ as the engine holds them: in the slots of a state, as parameters, as choices.

Compiled code works on plain values, and never sees a :class:`Held`. A lazy set or function is worked out when it
becomes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from fencepost.language.contents import Permutation
from fencepost.language.decoding import decode
from fencepost.language.values import Foreign, Map, ModelValue, framed
from fencepost.language.values import Set as PythonSet
from fencepost.text.plain import printable
from fencepost.tla.values import (
    Function,
    Sequence,
    Set,
    Value,
    code,
    function,
    settled,
    show,
    total_key,
)

_ALIKE = (int, ModelValue)
"""The kinds of values that Python shows and encodes as TLA+ does."""


class Held(Foreign):
    """A finished value of TLA+. Raises :class:`fencepost.tla.values.EvaluationError` if it cannot be enumerated."""

    def __init__(self, value: Value) -> None:
        self.value = settled(value)
        self.code = code(self.value)

    def encoded(self) -> bytes:
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        return framed(self.code)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Held) and self.code == other.code)

    def __hash__(self) -> int:
        return hash(self.code)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Held, (self.value,))

    def order(self) -> Any:
        return total_key(self.value)

    def shown(self) -> str:
        return printable(show(self.value))

    def permuted(self, swap: Mapping[ModelValue, ModelValue]) -> Held:
        return Held(permuted(self.value, swap, swap.images if isinstance(swap, Permutation) else {}))

    def python(self) -> Any:
        value = self.value
        if isinstance(value, Set):
            return PythonSet(map(part, value.items))
        if isinstance(value, Sequence):
            return tuple(map(part, value.values))
        if isinstance(value, Function):
            items = [(each, part(of)) for each, of in value.items()]
            return dict(items) if value.is_record() else Map((part(each), of) for each, of in items)
        return value

    def bracketed(self) -> tuple[str, str, list[tuple[str, Any]]] | None:
        value = self.value
        if isinstance(value, Set) and value.size():
            return "{", "}", _unlabelled(value.in_order())
        if isinstance(value, Sequence) and value.size():
            return "<<", ">>", _unlabelled(value.values)
        if isinstance(value, Function):
            is_record = value.is_record()
            names = [each if is_record else f"{show(each)} :>" for each, _ in value.items()]
            labels = [f"{each} |-> " if is_record else f"{each} " for each in names]
            parts = [part(of) for _, of in value.items()]
            return ("[", "]", list(zip(labels, parts, strict=True)))
        return None


def part(value: Value) -> Any:
    """A part of a value, for people and for formats: itself if Python shows it as TLA+ does."""
    return value if type(value) in _ALIKE else Held(value)


def _unlabelled(values: Iterable[Value]) -> list[tuple[str, Any]]:
    return [("", part(each)) for each in values]


MOST_IMAGES = 100_000
"""The most images of values that are kept for one permutation."""


def permuted(value: Value, swap: Mapping[ModelValue, ModelValue], known: dict[bytes, Value]) -> Value:
    """A settled value with model values exchanged throughout. ``known``: the images of parts so far, by their code.
    Parts that many values share have one image, which keeps its own code.
    """
    if type(value) is ModelValue:
        return swap.get(value, value)
    if not isinstance(value, Set | Sequence | Function):
        return value
    image = known.get(value.code())
    if image is None:
        if len(known) >= MOST_IMAGES:
            known.clear()
        image = known[value.code()] = _image(value, swap, known)
    return image


def _image(value: Set | Sequence | Function, swap: Mapping[ModelValue, ModelValue], known: dict[bytes, Value]) -> Value:
    if isinstance(value, Set):
        return Set.of(frozenset(permuted(each, swap, known) for each in value.items), value)
    if isinstance(value, Sequence):
        return Sequence([permuted(each, swap, known) for each in value.values])
    return function({permuted(each, swap, known): permuted(of, swap, known) for each, of in value.mapping.items()})


def decoded(content: bytes, named: Callable[[str, str], Any]) -> Held:
    """The value with this code. ``named`` as for :func:`fencepost.language.decoding.decode`. Raises ValueError if there
    is none.
    """
    return Held(_of_python(decode(content, named)))


def _of_python(value: Any) -> Value:
    if isinstance(value, frozenset):
        return Set([_of_python(each) for each in value])
    if isinstance(value, tuple):
        return Sequence([_of_python(each) for each in value])
    if isinstance(value, Map):
        return function({_of_python(each): _of_python(of) for each, of in value.items()})
    return value
