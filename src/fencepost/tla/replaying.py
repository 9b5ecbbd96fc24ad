"""Replays the steps of a trace against a specification in TLA+.

A conformance says values as Python and JSON have them. A number, a truth value and a text are themselves; a text is
also the model value of this name. A list is a sequence, a mapping a record or a function, and a set a set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from fencepost.behaviours.evidence import StateReader
from fencepost.errors import OptionError
from fencepost.language import loading
from fencepost.language.context import Slot
from fencepost.language.declarations import Declared
from fencepost.language.seam import language_of
from fencepost.language.values import ModelValue
from fencepost.semantics import State
from fencepost.tla.configured import configuration_of
from fencepost.tla.errors import text_of
from fencepost.tla.held import Held, part
from fencepost.tla.protocol import SpecificationFile, TlaAction, TlaModel
from fencepost.tla.values import Function, Sequence, Set, Value
from fencepost.traces.validation.replay import Evaluated, Refused, Replayer
from fencepost.traces.validation.steps import ANY, Matcher, Parameters, Pick, Step


@dataclass(frozen=True, eq=False)
class Alike(Matcher):
    """Matches the values of TLA+ that are like a value of Python."""

    value: Any

    def matches(self, value: Any) -> bool:
        """Whether a value of TLA+ is like this one."""
        return _is_alike(value.value if isinstance(value, Held) else value, self.value)

    @property
    def code(self) -> bytes:
        return repr(self.value).encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike) and self.code == other.code

    def __hash__(self) -> int:
        return hash(self.code)

    def __str__(self) -> str:
        return self.value if isinstance(self.value, str) else repr(self.value)


def _is_alike(found: Value, wanted: Any) -> bool:
    if isinstance(wanted, Matcher):
        return wanted.matches(part(found))
    if isinstance(wanted, str):
        return found.name == wanted if isinstance(found, ModelValue) else type(found) is str and found == wanted
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(found, Sequence)
            and found.size() == len(wanted)
            and all(map(_is_alike, found.values, wanted))
        )  # fmt: skip
    if isinstance(wanted, Mapping):
        return (
            isinstance(found, Sequence | Function)
            and found.size() == len(wanted)
            and all(
                any(_is_alike(key, wanted_key) and _is_alike(of, wanted_of) for key, of in found.items())
                for wanted_key, wanted_of in wanted.items()
            )
        )  # fmt: skip
    if isinstance(wanted, (set, frozenset)):
        return (
            isinstance(found, Set)
            and found.size() == len(wanted)
            and all(any(_is_alike(member, each) for member in found.members()) for each in wanted)
        )  # fmt: skip
    return type(found) is type(wanted) and found == wanted


class Specification(Replayer):
    """Replays traces against a specification with its constants.

    A step names an action as ``fencepost describe`` does, or as it is defined: then any of its parts. It says
    parameters by the names in the definition, and leaves out those that it does not know. Choices that it does not say
    are open.
    """

    def __init__(self, model: TlaModel, cache_limit: int) -> None:
        super().__init__(cast(Any, model), cache_limit=cache_limit)
        self.model = model

    def adapted(self, step: Step) -> Step:
        """The step with values that match those of TLA+."""
        changed: dict[str, Any] = {
            "parameters": tuple((name, _alike(value)) for name, value in step.parameters),
            "after": tuple((path, _alike(value)) for path, value in step.after),
            "before": tuple((path, _alike(value)) for path, value in step.before),
            "picks": tuple(pick if pick is ... else _alike(pick) for pick in step.picks),
        }
        if step.action is not None:
            if not step.picks or step.picks[-1] is not ...:
                changed["picks"] = (*changed["picks"], ...)
            if step.action in self.actions:
                changed["parameters"] = self.complete(step.action, changed["parameters"])
        return replace(step, **changed)

    def unknown(self, step: Step) -> str:
        """Nothing: values of TLA+ have any fields."""
        return ""

    def names(self, action: str) -> tuple[str, ...]:
        """The names of an action's parameters in its definition."""
        declared = self.actions.get(action)
        return declared.names if isinstance(declared, TlaAction) else ()

    def alternatives(self, action: str) -> list[str]:
        """The parts of an action, where it has several."""
        if action in self.actions:
            return []
        return [each for each in self.actions if each.startswith((f"{action}:", f"{action}#"))]

    def evaluate(
        self, declared: Declared, row: list[int], parameters: dict[str, Any], picks: tuple[Pick, ...]
    ) -> Evaluated:
        """See :meth:`Replayer.evaluate`."""
        with language_of(self.model).running(self.model):
            found = super().evaluate(declared, row, parameters, picks)
            if not isinstance(found, Refused) or not isinstance(declared, TlaAction):
                return found
            bound = self.model.bound_to(StateReader(State(self.store, row)))
            at = declared.refuses(bound, parameters, self.model.setup.compiler)
        if at is None:
            return Refused(f"{found.reason} ({declared.place})" if declared.place else found.reason)
        return Refused(found.reason, f"{Path(at.file).name}:{at.line}", text_of(at))

    def value(self, row: list[int], path: tuple[Any, ...]) -> Any:
        """The value of a variable, or of what the rest of the path leads to: an argument of a function, the name of a
        field, or a place in a sequence. Raises ``KeyError`` if there is none.
        """
        found = super().value(row, path[:1]).value
        for key in path[1:]:
            if not isinstance(found, Sequence | Function):
                raise KeyError(path)
            found = next((of for each, of in found.items() if _is_alike(each, key)), None)
            if found is None:
                raise KeyError(path)
        return part(found)

    def place(self, path: tuple[Any, ...]) -> int:
        """The slot of a variable."""
        return super().place(path[:1])

    def _slot(self, path: tuple[Any, ...]) -> Slot:
        return next(iter(self.model.shapes[path[0]].slots(path)))

    def _bindings(self, declared: Declared, parameters: Parameters) -> Iterator[Parameters]:
        given, names = dict(parameters), self.names(declared.name)
        for bound in declared.parameters(self.model):
            if all(
                given[name] is ANY or given[name].matches(each)
                for name, each in zip(names, bound.values(), strict=True)
            ):
                yield tuple(zip(names, bound.values(), strict=True))


def _alike(value: Any) -> Any:
    return value if value is ANY or isinstance(value, Matcher) else Alike(value)


_files: dict[str, SpecificationFile] = {}
"""The specifications that this process has read."""


def replayer(path: str, configuration: str | None, constants: Mapping[str, Any], cache_limit: int) -> Specification:
    """A replayer for the specification in a file, with its configuration and other values for some constants.

    Raises :class:`fencepost.OptionError` if there is no configuration, and
    :class:`fencepost.tla.errors.SpecificationError` if something is wrong with the specification.
    """
    texts = {name: _text(name, value) for name, value in constants.items()}
    model = loading.set_up(_specification(path), configuration, texts)
    assert isinstance(model, TlaModel)
    return Specification(model, cache_limit)


def look(path: str, configuration: str | None) -> None:
    """Raises as :func:`replayer` does if there is no such specification, or no configuration."""
    _specification(path)
    configuration_of(path, configuration)


def _specification(path: str) -> SpecificationFile:
    if path not in _files:
        _files[path] = cast(SpecificationFile, loading.find(path))
    return _files[path]


def _text(name: str, value: Any) -> str:
    """A constant's value as TLA+."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (str, int, Path)):
        return str(value)
    if isinstance(value, Iterable):
        return f"{{{', '.join(_text(name, each) for each in value)}}}"
    raise OptionError(f"constant {name} is {value!r}: give a number, the text of a value, or several of them")
