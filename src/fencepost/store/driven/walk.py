"""Goes along behaviours of the protocol with the roles, and compares them after each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.errors import SystemFailure
from fencepost.spec.context import Slot
from fencepost.spec.values import Value
from fencepost.states.columns import parameters_text
from fencepost.step import Outcome, Root, Stepper
from fencepost.step.state import LOW
from fencepost.store.checked.store import Store as Protocol
from fencepost.store.driven.actions import NotRealisable, Taken, drive
from fencepost.store.driven.compare import compare
from fencepost.store.driven.mapping import name
from fencepost.store.driven.system import Difference, Settings, System
from fencepost.store.rules.protections import Protections

Row = tuple[int, ...]


class Reading:
    """A state to read from, and nothing else."""

    __slots__ = ("disabled", "ids", "store")

    def __init__(self, store: Any, ids: Sequence[int]) -> None:
        self.store = store
        self.ids = ids
        self.disabled = False

    def read(self, slot: Slot) -> Value:
        """The value of a slot."""
        index = self.store.slot(slot)
        return self.store.values[index][self.ids[index] if index < len(self.ids) else 0]


class Driver:
    """Drives the roles along steps of a protocol. ``protections``: those that the roles have, if they are not the protocol's."""

    def __init__(self, protocol: Protocol, protections: Protections | None = None) -> None:
        self.protocol = protocol
        self.protections = protections or protocol.protections
        self.stepper = Stepper(protocol)
        self.actions: dict[tuple[str, str], Root] = {
            (root.name, parameters_text(root.parameters)): root for root in self.stepper.of_kind("action")
        }
        quorums = (protocol.bookies_of_an_ensemble, protocol.write_quorum, protocol.ack_quorum)
        self.settings = Settings(
            quorums,
            protocol.inflight_limit,
            protocol.reads_in_flight,
            protocol.readable_ids[-1] + 1,
            protocol.message_loss,
            protocol.protections,
        )

    def begin(self) -> tuple[Row, System]:
        """The initial state, of which there is one, and the roles in it."""
        (initial,) = self.stepper.initial_states()
        bookies = tuple(name(b) for b in self.protocol.bookies)
        return initial.ids, System(self.settings, bookies, self.protections)

    def fingerprint(self, row: Sequence[int]) -> int:
        """The fingerprint of a state as tables have it: 64 bits, read as a signed number."""
        low = self.stepper.store.fingerprint(row) & LOW
        return low - (1 << 64) if low >> 63 else low

    def outcomes(self, root: Root, row: Row) -> dict[int, Outcome]:
        """Where an action leads from a state, by fingerprints. Of several ways to one state, it is the first."""
        found: dict[int, Outcome] = {}
        for outcome in self.stepper.outcomes(root, row):
            if outcome.writes:
                found.setdefault(self.fingerprint(self.stepper.apply(row, outcome)), outcome)
        return found

    def step(self, system: System, row: Row, root: Root, outcome: Outcome) -> Row:
        """Let the roles of ``system`` take a step from ``row``; the state that it leads to.

        Raises :class:`Difference` if they do something else, and :class:`NotRealisable` if they are not expected to take it.
        """
        after = self.stepper.apply(row, outcome)
        store, protocol = self.stepper.store, self.protocol
        before_it: Any = protocol.bound_to(Reading(store, row))  # type: ignore[arg-type]
        after_it: Any = protocol.bound_to(Reading(store, after))  # type: ignore[arg-type]
        taken = Taken(root.name, root.parameters, outcome.events, before_it, after_it)
        try:
            drive(system, taken)
            compare(system, taken)
        except (Difference, NotRealisable, SystemFailure):
            raise
        except Exception as error:
            raise Difference("the roles", "they take the step", f"{type(error).__name__}: {error}") from error
        return after
