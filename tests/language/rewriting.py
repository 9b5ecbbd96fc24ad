"""A modelling language in a few lines: words that rules rewrite.

    start: aabb
    swap: ab -> ba
    never: bbaa

The letters are model values. A rule may be applied wherever its left side stands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fencepost.language.constants import Symmetric
from fencepost.language.context import UNSET, Cursor, Disabled, Slot
from fencepost.language.declarations import Declared
from fencepost.language.fields import Shape
from fencepost.language.seam import Language, Model
from fencepost.language.values import Foreign, ModelValue, framed


class Word(Foreign):
    """A value of the language."""

    def __init__(self, letters: tuple[ModelValue, ...]) -> None:
        self.letters = letters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Word) and self.letters == other.letters

    def __hash__(self) -> int:
        return hash(self.letters)

    def encoded(self) -> bytes:
        return framed(self.shown().encode())

    def order(self) -> str:
        return self.shown()

    def shown(self) -> str:
        return "".join(letter.name for letter in self.letters)

    def permuted(self, swap: Mapping[ModelValue, ModelValue]) -> Word:
        return Word(tuple(swap.get(letter, letter) for letter in self.letters))

    def python(self) -> tuple[ModelValue, ...]:
        return self.letters


def word(text: str) -> Word:
    return Word(tuple(ModelValue(letter, ord(letter)) for letter in text))


class Place(Shape):
    """The only variable, in one slot."""

    slot = Slot(("word",), UNSET)

    def slots(self, path: tuple[Any, ...]) -> Iterator[Slot]:
        yield self.slot

    def value(self, read: Callable[[Slot], Any], path: tuple[Any, ...]) -> Any:
        return read(self.slot)


class Rule(Declared):
    """A rule, with the number of its line."""

    def __init__(self, name: str, words: str, line: int) -> None:
        super().__init__("action", self._run, name=name)
        self.left, self.right = (word(each).letters for each in words.split(" -> "))
        self.line = line

    @property
    def place(self) -> str:
        return f"rules:{self.line}"

    def check_call(self, states: int) -> None:
        return None

    def shown(self, parameters: Mapping[str, Any]) -> str:
        return " ".join(map(str, parameters.values()))

    def parameters(self, protocol: Any) -> list[dict[str, Any]]:
        return [{"at": at} for at in range(len(protocol.start.letters))]

    def _run(self, cursor: Cursor, at: int) -> None:
        letters, end = cursor.read(Place.slot).letters, at + len(self.left)
        if letters[at:end] != self.left:
            raise Disabled
        cursor.write(Place.slot, Word(letters[:at] + self.right + letters[end:]))


class Rewriting(Model):
    """A text in the language."""

    name = "rewriting"
    __language__ = "language.rewriting:LANGUAGE"

    def __init__(self, text: str) -> None:
        self.text = text
        lines = [line.partition(": ")[::2] for line in text.splitlines()]
        self.start = word(dict(lines)["start"])
        self.rules: list[Declared] = [
            Rule(name, words, number) for number, (name, words) in enumerate(lines, 1) if name not in ("start", "never")
        ]
        self.rules.append(Declared("initial", lambda cursor: cursor.write(Place.slot, self.start), name="start"))
        for name, words in lines:
            if name == "never":
                never = word(words)
                self.rules.append(
                    Declared("invariant", lambda cursor: cursor.read(Place.slot) != never, name=f"never {words}")
                )

    @property
    def constants(self) -> Mapping[str, Any]:
        return {"start": self.start}

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {"word": Place()}

    def declared(self, kind: str, /) -> list[Declared]:
        return [each for each in self.rules if each.kind == kind]

    def bound_to(self, cursor: Cursor) -> Cursor:
        return cursor


class RewritingLanguage(Language):
    has_trusted_symmetry = True

    def declarations(self, model: Rewriting) -> Mapping[str, Declared]:
        return {each.name: each for each in model.rules}

    def digest(self, model: Rewriting) -> str:
        return model.text

    def home(self, model: Rewriting) -> str:
        return ""

    def arguments(self, model: Rewriting) -> list[str]:
        return ["rules"]

    def packed(self, model: Rewriting) -> bytes:
        return json.dumps(model.text).encode()

    def unpacked(self, content: bytes) -> Rewriting:
        return Rewriting(json.loads(content))

    def symmetric(self, model: Rewriting) -> Mapping[str, Symmetric]:
        return {"letters": True}

    def members(self, model: Rewriting, constant: str) -> tuple[ModelValue, ...]:
        return tuple(dict.fromkeys(model.start.letters))

    def decoded(self, content: bytes, named: Callable[[str, str], Any]) -> Any:
        return word(content.decode()) if content else UNSET

    def extended(
        self, model: Rewriting, name: str, holds: Callable[[Any], bool], begin: Callable[[Any], None] | None
    ) -> Rewriting:
        made = Rewriting(model.text)
        made.rules.append(Declared("invariant", holds, name=name))
        return made

    def expression(self, text: str, model: Rewriting) -> Callable[[Any], Any]:
        return lambda cursor: cursor.read(Place.slot).shown().count(text)


LANGUAGE = RewritingLanguage()
