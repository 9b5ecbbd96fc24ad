"""Judges the steps of one protocol by those of another one, through a mapping.

A step is judged by its changes of the other protocol's state. A part that is mapped slot by slot changes only if its
slot does. A computed part can change only if its function reads something that has changed. So unchanged parts are not
read, however large the state is. If anything has changed, an action of the other protocol must make exactly these
changes. The search for it is not recorded. When it is found, its reads are recorded as the reason. If no action fits,
the reads of all of them are recorded.

The **change** of a step is known without reading: its action, the slots that differ, and the computed parts that may
therefore differ. Compiled loops know the number of the change of each outcome. The trie of a refinement reads it first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencepost.errors import FencepostError, Misbehaved, OptionError
from fencepost.language import refinement as spec
from fencepost.language.context import (
    FROM_HERE,
    MAX_WAYS,
    Cursor,
    Disabled,
    Event,
    GrowingCursor,
    Sieve,
    Slot,
    current,
)
from fencepost.language.declarations import Declared
from fencepost.language.protocol import Protocol, constants_of
from fencepost.language.seam import Model
from fencepost.language.truths import truth
from fencepost.language.values import NotAValue, Value, encode, freeze, show_call
from fencepost.semantics.choices import next_script
from fencepost.semantics.mapping import Side, StateMapping, wrong
from fencepost.semantics.roots import Root
from fencepost.semantics.state import ValueTable

Row = Mapping[int, int]
"""A state of the other protocol: the number of the value in each slot that does not hold its default."""


class Change(NamedTuple):
    """The part of a step that is known without reading: the number of the action, the slots that differ, and the
    computed parts of the mapping that may differ (numbers of their roots).
    """

    action: int
    slots: frozenset[int]
    parts: frozenset[int]


class Changes:
    """The changes of steps, numbered from 1, and the slots that each computed part of a mapping has read so far, in any
    state.

    A part is computed in every state before the steps from it are judged. So in a known state it reads only these
    slots, and a step that touches none of them leaves the part unchanged.
    """

    def __init__(self) -> None:
        self.known = [Change(-1, frozenset(), frozenset())]
        self.read: dict[int, set[int]] = {}
        self._numbers: dict[Change, int] = {}

    def number(self, action: int, slots: frozenset[int]) -> int:
        """The number of the change of an action that changes these slots, by the reads known so far."""
        change = Change(
            action, slots, frozenset(part for part, read in self.read.items() if not slots.isdisjoint(read))
        )
        number = self._numbers.get(change)
        if number is None:
            number = self._numbers[change] = len(self.known)
            self.known.append(change)
        return number

    def restore(self, known: Iterable[tuple[int, Iterable[int], Iterable[int]]], read: dict[int, set[int]]) -> None:
        """Restore the numbering of changes from elsewhere, and the slots that computed parts had ``read`` there."""
        self.read = read
        self.known = [Change(action, frozenset(slots), frozenset(parts)) for action, slots, parts in known]
        self._numbers = {change: number for number, change in enumerate(self.known) if number}


# -- a refinement with its constants known ----------------------------------------------------------------------------


class Action(NamedTuple):
    """An action of the other protocol with its parameters bound."""

    number: int
    declared: Declared
    parameters: dict[str, Value]

    @property
    def name(self) -> str:
        """The action's name."""
        return str(self.declared.name)

    @property
    def title(self) -> str:
        """The name with its parameters."""
        return show_call(self.name, self.parameters)


@dataclass
class Way:
    """One combination of choices of an action of the other protocol, in a mapped state.

    ``effect``: the numbers of its new values, by slot. It is empty if the action is ``refused`` (not enabled) or
    ``raised`` an exception. ``trial``: its cursor.
    """

    action: Action
    trial: Trial

    effect: dict[int, int]
    refused: Disabled | None = None
    raised: Exception | None = None

    @property
    def choices(self) -> list[tuple[int, int]]:
        """The number of options of each choice, and the one taken."""
        return self.trial.choices

    @property
    def script(self) -> list[int]:
        """The options taken, by number."""
        return [taken for _, taken in self.choices]


class Refinement:
    """A refinement of ``protocol``, whose value table is ``store``. ``mapping`` maps its states to states of the
    ``other`` protocol.

    Raises :class:`fencepost.NotAProtocol` if the mapping does not fit the two protocols, and
    :class:`fencepost.OptionError` if the constants do not fit.
    """

    def __init__(self, declared: spec.Refinement, protocol: Model, store: ValueTable) -> None:
        self.name = declared.name
        self.protocol = protocol
        self.store = store
        self.other = self._configured(declared)
        self.others = ValueTable(self.other)
        self.mapping = StateMapping(declared, protocol, store, self.other, self.others)
        self.actions = [
            Action(number, action, parameters)
            for number, (action, parameters) in enumerate(
                (action, parameters)
                for action in self.other.declared("action")
                for parameters in self._bindings(action)
            )
        ]
        self._orders: dict[tuple[str, frozenset[tuple[str, bytes]]], list[Action]] = {}
        self._decided: dict[tuple[Any, ...], tuple[int, list[int]] | None] = {}
        self._starts: set[tuple[tuple[int, int], ...]] | None = None

    # -- setting up ---------------------------------------------------------------------------------------------------

    def _configured(self, declared: spec.Refinement) -> Protocol:
        """The other protocol, with its constants set."""
        constants: dict[str, Any] = {}
        for name, value in declared.constants.items():
            here = getattr(value, "__constant_name__", None)
            try:
                constants[name] = (
                    self.protocol.constants[here] if here else value(self.protocol) if callable(value) else value
                )
            except Exception as error:
                raise wrong(
                    self.name, f"has no constant {name} for {declared.other.name}: {type(error).__name__}: {error}"
                ) from error
        for name in constants_of(declared.other):
            if name not in constants and name in self.protocol.constants:
                constants[name] = self.protocol.constants[name]
        try:
            other = declared.other(**constants)
        except OptionError as error:
            raise OptionError(f"refinement {self.name}: {error}") from None
        for assumption in other.declared("assumption"):
            try:
                holds = truth(assumption.function(other))
            except Misbehaved as error:
                raise wrong(self.name, f"needs assumption {assumption.name} of {other.name}, which {error}") from error
            except Exception as error:
                raise wrong(
                    self.name,
                    f"cannot tell whether {assumption.name} of {other.name} holds: {type(error).__name__}: {error}",
                ) from error
            if not holds:
                raise OptionError(
                    f"refinement {self.name}: with its constants, assumption {assumption.name} of {other.name} is false"
                )
        return other

    def _bindings(self, action: Declared) -> list[dict[str, Value]]:
        try:
            return action.parameters(self.other)
        except FencepostError:
            raise
        except Exception as error:
            raise wrong(
                self.name, f"cannot tell the parameters of {action.name} of {self.other.name}: {error}"
            ) from error

    # -- judging ------------------------------------------------------------------------------------------------------

    @property
    def decided(self) -> list[Any]:
        """The decisions by the reads that led to them, as plain data."""
        return [
            [[list(read[1:]) for read in trail], None if what is None else list(what)]
            for trail, what in self._decided.items()
        ]

    @decided.setter
    def decided(self, kept: list[Any]) -> None:
        self._decided = {
            tuple(("read", slot, number) for slot, number in trail): None if what is None else (what[0], list(what[1]))
            for trail, what in kept
        }

    def starts(self, cursor: Cursor, ids: Sequence[int]) -> bool:
        """Whether a state is an initial state of the other protocol."""
        if self._starts is None:
            self._starts = {_key(row) for row in self.initial()}
        return _key(dict(enumerate(Side(self.mapping, cursor).row(ids)))) in self._starts

    def initial(self) -> Iterator[Row]:
        """The initial states of the other protocol."""
        setups = self.other.declared("initial")
        declared = setups[0] if setups else Declared("initial", lambda protocol: None, name="as declared")
        for way in self.ways(Action(-1, declared, {}), _Blank()):
            if way.raised is not None:
                raise Misbehaved(
                    f"asks for the initial state of {self.other.name}, which raised {type(way.raised).__name__}:"
                    f" {way.raised}"
                )
            if way.refused is None:
                yield way.effect

    def allows(
        self,
        step: Steps,
        change: Change,
        trail: Sequence[Any] | None,
        peek: Callable[[], Steps],
        taken: Root | Action | None = None,
    ) -> bool:
        """Whether a step is a step of the other protocol, or changes nothing of its state. ``taken``: the action of the
        step, if known.

        ``trail`` holds the reads so far, if they are recorded. The next read must then depend only on them. ``peek``
        returns the step without recording reads.
        """
        wanted = step.difference(change)
        if not wanted:
            return True
        order = self.in_order(taken)
        if trail is None:
            return self._find(step.before, wanted, order) is not None
        while True:
            at = tuple(trail)
            if at not in self._decided:
                self._decided[at] = self._find(peek().before, wanted, order)
            decided = self._decided[at]
            if decided is None:
                return self._find(step.before, wanted, order) is not None
            number, script = decided
            way = self.way(self.actions[number], step.before, script)
            if way.refused is None and way.raised is None and way.effect == wanted:
                return True

    def in_order(self, taken: Root | Action | None) -> list[Action]:
        """The actions of the other protocol, starting with those that have the name and the parameters of ``taken``."""
        if taken is None:
            return self.actions
        mine = _bound(taken.parameters)
        order = self._orders.get((taken.name, mine))
        if order is None:
            order = sorted(self.actions, key=lambda a: (a.name != taken.name, _bound(a.parameters) != mine))
            self._orders[taken.name, mine] = order
        return order

    def _find(self, before: Side, wanted: Row, order: Sequence[Action]) -> tuple[int, list[int]] | None:
        """An action of the other protocol with exactly this effect, and its choices. If there is none but some action
        raised, raises :class:`Misbehaved`.
        """
        raised: tuple[int, Action, Exception] | None = None
        for action in order:
            for way in self.ways(action, before):
                if way.raised is not None:
                    if raised is None or action.number < raised[0]:
                        raised = action.number, action, way.raised
                elif way.refused is None and way.effect == wanted:
                    return action.number, way.script
        if raised is not None:
            _, action, error = raised
            raise Misbehaved(
                f"asks for action {action.title} of {self.other.name}, which raised {type(error).__name__}: {error}"
            ) from error
        return None

    def ways(self, action: Action, before: Side | _Blank, trial: type[Trial] | None = None) -> Iterator[Way]:
        """Every combination of choices of an action, each with its own cursor, a ``trial``."""
        script: list[int] = []
        for _ in range(MAX_WAYS):
            way = self.way(action, before, script, trial)
            yield way
            following = next_script(way.choices)
            if following is None:
                return
            script = following
        raise Misbehaved(
            f"asks for action {action.title} of {self.other.name}, which has more than {MAX_WAYS:,} ways through its"
            " choices"
        )

    def way(
        self, action: Action, before: Side | _Blank, script: Sequence[int], trial: type[Trial] | None = None
    ) -> Way:
        """An action of the other protocol with these choices, in a mapped state."""
        cursor = (trial or Trial)(self.others, before, script)
        refused: Disabled | None = None
        raised: Exception | None = None
        token = current.set(cursor)
        try:
            action.declared.function(self.other.bound_to(cursor), **action.parameters)
        except Disabled as error:
            refused = error
        except _Mapping as error:
            raise error.error from None
        except (Exception, SystemExit) as error:
            raised = error if isinstance(error, Exception) else RuntimeError("SystemExit")
        finally:
            current.reset(token)
        if refused is None and cursor.disabled:
            refused = Disabled()
        effect = (
            {}
            if refused or raised
            else {index: new for index, new in cursor.writes.items() if new != cursor.held(index)}
        )
        return Way(action, cursor, effect, refused, raised)


class _Mapping(BaseException):
    """The mapping raised ``error`` while an action of the other protocol read through it. It is a BaseException, so
    that the action does not catch it.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Trial:
    """The cursor of an action of the other protocol in a mapped state. Reads go through the mapping. Writes are only
    collected.
    """

    def __init__(self, others: ValueTable, before: Side | _Blank, script: Sequence[int]) -> None:
        self.others = others
        self.before = before
        self.script = script
        self.writes: dict[int, int] = {}
        self.choices: list[tuple[int, int]] = []
        self.disabled = False

    def held(self, index: int) -> int:
        try:
            return self.before.number(index)
        except BaseException as error:
            raise _Mapping(error) from None

    def read(self, slot: Slot) -> Value:
        index = self.others.slot(slot)
        number = self.writes.get(index)
        return self.others.values[index][self.held(index) if number is None else number]

    def write(self, slot: Slot, value: Value) -> None:
        index = self.others.slot(slot)
        self.held(index)
        self.writes[index] = self.others.intern(index, freeze(value))

    def choose(self, options: Sequence[Value]) -> Value:
        at = len(self.choices)
        taken = self.script[at] if at < len(self.script) else 0
        if taken >= len(options):
            raise Disabled
        self.choices.append((len(options), taken))
        return options[taken]

    def emit(self, event: Event) -> None:
        pass


class _Blank:
    """The state before initialisation: every slot holds its default."""

    def number(self, index: int) -> int:
        return 0


class Steps(NamedTuple):
    """The two mapped states of a step."""

    before: Side
    after: Side

    def difference(self, change: Change) -> dict[int, int]:
        """The effect of the step: the numbers of new values, by slot of the other protocol."""
        mapping = self.before.mapping
        slots = {index: None for own in sorted(change.slots) for index in mapping.touched(own)}
        for part in mapping.parts:
            if mapping.numbers[part] in change.parts:
                slots |= dict.fromkeys(self.before.part(part))
                slots |= dict.fromkeys(self.after.part(part))
        news = {index: self.after.number(index) for index in slots}
        return {index: new for index, new in news.items() if new != self.before.number(index)}


class After:
    """The cursor over the state after a step. Unchanged slots are read in the state before it."""

    disabled = False

    def __init__(self, store: ValueTable, change: Change, before: GrowingCursor, after: Cursor) -> None:
        self._store = store
        self._change = change
        self._before = before
        self._after = after

    def slots_changed(self, before: Cursor | None, path: tuple[Any, ...]) -> Sequence[Slot] | None:
        """As :func:`fencepost.language.context.slots_changed`."""
        if before is not None and before is not self._before:
            return None
        slots = (self._store.slots[number] for number in sorted(self._change.slots))
        return [slot for slot in slots if slot.path[: len(path)] == path]

    def universe(self, path: tuple[Any, ...], sieve: Sieve | None = None, place: int = FROM_HERE) -> Sequence[Slot]:
        # What appears later is in no slot that the step changes, so it holds after the step what it does before.
        return self._before.universe(path, sieve, place)

    def read(self, slot: Slot) -> Value:
        return (self._after if self._store.slot(slot) in self._change.slots else self._before).read(slot)

    def write(self, slot: Slot, value: Value) -> None:
        self._before.write(slot, value)

    def choose(self, options: Sequence[Value]) -> Value:
        return self._before.choose(options)

    def emit(self, event: Event) -> None:
        raise NotAValue("a mapping cannot send")


# -- helpers ----------------------------------------------------------------------------------------------------------


def _key(row: Row) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((index, number) for index, number in row.items() if number))


def _bound(parameters: Mapping[str, Value]) -> frozenset[tuple[str, bytes]]:
    return frozenset((name, encode(value)) for name, value in parameters.items())
