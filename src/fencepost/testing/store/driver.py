"""Drives the roles along steps of the protocol, and compares the states after each."""

from __future__ import annotations

from typing import Any

from fencepost.errors import SystemFailure
from fencepost.ledger.rules.protections import Protections
from fencepost.protocols.store.store import Store as Protocol
from fencepost.semantics import Outcome, Root
from fencepost.testing.store.actions import Taken, drive
from fencepost.testing.store.compare import compare
from fencepost.testing.store.mapping import name
from fencepost.testing.store.system import Settings, System
from fencepost.testing.walk import Difference, NotRealisable, Reading, Row, Steps


class Driver(Steps):
    """Drives the roles along steps of a protocol. ``protections``: the protections of the roles; None: those of the
    protocol."""

    protocol: Protocol

    def __init__(self, protocol: Protocol, protections: Protections | None = None) -> None:
        super().__init__(protocol)
        self.protections = protections or protocol.protections
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
        """The initial state of the protocol, which has one alone, and the roles in it."""
        (initial,) = self.stepper.initial_states()
        bookies = tuple(name(b) for b in self.protocol.bookies)
        return initial.ids, System(self.settings, bookies, self.protections)

    def step(self, system: System, row: Row, root: Root, outcome: Outcome) -> Row:
        """Let the roles of ``system`` take a step from ``row``; the state that it leads to.

        Raises :class:`Difference` if the roles do something else, and :class:`NotRealisable` if they are not expected
        to take the step.
        """
        after = self.stepper.apply(row, outcome)
        store, protocol = self.stepper.store, self.protocol
        before_it: Any = protocol.bound_to(Reading(store, row))
        after_it: Any = protocol.bound_to(Reading(store, after))
        taken = Taken(root.name, root.parameters, outcome.labels, outcome.events, before_it, after_it)
        try:
            drive(system, taken)
            compare(system, taken)
        except (Difference, NotRealisable, SystemFailure):
            raise
        except Exception as error:
            raise Difference("the roles", "they take the step", f"{type(error).__name__}: {error}") from error
        return after
