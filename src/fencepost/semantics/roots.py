"""The roots of a protocol: its actions and properties with their parameters bound. They are evaluated in every
state.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.errors import NotAProtocol
from fencepost.language.declarations import INITIALLY, Declared
from fencepost.language.seam import Model
from fencepost.language.values import Value
from fencepost.semantics.authors import brief
from fencepost.semantics.deadline import Deadline

PROPERTIES = ("constraint", "invariant", "sometimes")
STEP_PROPERTIES = ("step_constraint", "step_invariant", "refinement")
START_PROPERTIES = (INITIALLY, "refinement")
"""The kinds of what is judged in initial states, besides the properties of every state."""
PREDICATE, STEP_PREDICATE = "predicate", "step_predicate"
"""The kinds of what temporal formulas and fairness conditions are made of: truths of a state, and of a step."""
START = "start"
"""The kind of conditions on combinations of values: an initial state is one of which they are true."""
MAPPING = "mapping"
"""The kind of the computed parts of a refinement's mapping. They are evaluated in every state, and always hold."""


@dataclass(frozen=True)
class Root:
    """An action or a property with its parameters bound, evaluated in every state.

    ``index`` orders roots: constraints, invariants, ``sometimes`` properties, computed parts of refinements, step
    constraints, step invariants, refinements, actions, temporal properties, conditions on initial states, predicates,
    then what tells initial states among combinations, each in order of declaration.
    ``part``: the index of this root in the pair of a leads-to property.
    """

    index: int
    declared: Declared
    parameters: dict[str, Value]
    part: int = 0

    @property
    def kind(self) -> str:
        """``action``, ``invariant``, ``sometimes``, ``constraint``, ``step_invariant``, ``step_constraint``,
        ``refinement``, ``mapping``, ``initially``, ``predicate``, ``step_predicate``, ``start`` or a temporal kind.
        """
        return self.declared.kind

    @property
    def reads_step(self) -> bool:
        """Whether it is evaluated for a step, so that its reads are numbered as :mod:`.slots` says."""
        return self.kind in STEP_PROPERTIES or self.kind == STEP_PREDICATE

    @property
    def name(self) -> str:
        """The action's or property's name."""
        return self.declared.name

    @property
    def reported(self) -> str:
        """The name in a violation or a witness. It is the root's name, or the title for a ``sometimes`` property, since
        each binding has its own witness.
        """
        return self.title if self.kind == "sometimes" else self.name

    @property
    def title(self) -> str:
        """The name with its parameters: ``bookie_confirms_add(b=b1)``."""
        return self.declared.title(self.parameters)

    def __str__(self) -> str:
        kind = {"action": "action", "initial": "initial state"}.get(self.kind, self.kind.replace("_", " "))
        return f"{kind} {self.title}"


def bindings(declared: Declared, protocol: Model, deadline: Deadline) -> list[dict[str, Value]]:
    """Every binding of the parameters of an action or property, after a check that it can be called with them."""
    if declared.kind == "refinement":
        return [{}]
    kind = declared.kind.replace("_", " ")
    try:
        with deadline.evaluating(f"what the domains of {kind} {declared.name} are drawn from"):
            bindings = declared.parameters(protocol)
    except NotAProtocol:
        raise
    except Exception as error:
        raise NotAProtocol(
            f"the parameters of {kind} {declared.name} have no usable domains: {brief(error)}"
        ) from error
    try:
        declared.check_call(2 if declared.kind in STEP_PROPERTIES else 1)
    except TypeError as error:
        hint = "; it takes the state and its successor, def f(self, after)" if declared.kind in STEP_PROPERTIES else ""
        raise NotAProtocol(
            f"{kind} {declared.name}: {error}{hint}; give every parameter its domain by name, as in @action(b=bookies)"
        ) from None
    return bindings
