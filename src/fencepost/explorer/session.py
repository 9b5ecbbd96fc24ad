"""Walking through a protocol: the tree of visited states, what can happen in each, and what is true there.

This module does no I/O and does not depend on the page. A :class:`Node` is one state of a walk, with the steps that
lead to it. The nodes from the root of the tree to a node are its *line*. Nodes are kept forever, so a step taken back
can be taken again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache

from fencepost.behaviours import Evaluated, Expression, Step, Trace
from fencepost.behaviours.evidence import looked_at
from fencepost.behaviours.path import Move, Path, check_of, move_of
from fencepost.behaviours.replay import actor, taken
from fencepost.errors import FencepostError, OptionError, ProtocolRaised
from fencepost.language.declarations import INITIALLY, Declared
from fencepost.language.seam import Model
from fencepost.language.values import Foreign
from fencepost.semantics import STEP_PROPERTIES, LimitReached, Outcome, Root, State, Stepper

PATIENCE = 10.0
"""Seconds for one action or property in one state. One that never returns must not block the page forever."""

MAX_NODES = 200_000
"""The most states of one session."""

MAX_ENABLED = 100
"""The most states whose enabled actions are cached: those requested last."""

MAX_EXPRESSIONS = 100
"""The most parsed expressions to cache, and the most values of expressions in one node."""

MAX_TEXT = 2_000
"""The most characters shown of an expression's value."""


@dataclass(frozen=True)
class Evaluation:
    """The value of an expression in one state as text, and whether it is ``false``."""

    text: str
    false: bool = False


@dataclass(eq=False)
class Node:
    """A state in the tree. ``step`` and ``move`` lead to it from ``parent``; the first node of a line has neither.

    ``stays`` marks the end of a behaviour that stays in this state forever. ``next``: the child visited last.
    """

    number: int
    state: State
    parent: Node | None = None
    step: Step | None = None
    move: Move = (0, ())
    depth: int = 0
    stays: bool = False
    children: dict[Move, Node] = field(default_factory=dict)
    next: Node | None = None
    evaluations: dict[str, Evaluation] = field(default_factory=dict)

    @property
    def line(self) -> list[Node]:
        """The nodes that lead here, from an initial state to this node."""
        found = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]

    @property
    def end(self) -> Node:
        """The end of the line that was walked last through this node."""
        node = self
        while node.next is not None:
            node = node.next
        return node

    @property
    def repeats(self) -> int | None:
        """The number of the first state of the line that equals this one, if there is an earlier one."""
        node, found = self.parent, None
        while node is not None:
            if node.state == self.state:
                found = node.depth
            node = node.parent
        return found


@dataclass(frozen=True)
class Offer:
    """A step that can be taken, with its move. ``cut``: the constraint that keeps the checker from taking it."""

    move: Move
    step: Step
    cut: str | None = None


@dataclass(frozen=True)
class Action:
    """An enabled action with its parameters bound: who acts, its possible steps, or the ``error`` that it raised
    instead.
    """

    title: str
    by: str | None
    doc: str
    offers: tuple[Offer, ...]
    error: str | None = None


@dataclass(frozen=True)
class Judgement:
    """The result of one invariant, step invariant or refinement at a node: whether it ``holds``, or the ``error`` that
    it raised.

    ``bindings``: the parameters for which it does not hold.
    """

    name: str
    kind: str
    doc: str
    bindings: tuple[str, ...] = ()
    error: str | None = None

    @property
    def holds(self) -> bool:
        """Whether it is true here, for every binding of its parameters."""
        return not self.bindings and self.error is None


@dataclass(frozen=True)
class Sought:
    """A ``sometimes`` property. ``bindings``: the parameters for which it is true at a node. One empty text stands for
    a property without parameters.
    """

    name: str
    doc: str
    bindings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Temporal:
    """A temporal property. ``when``: how the current lasso violates it, in words. None if it does not, or without a
    lasso.
    """

    name: str
    doc: str
    when: str | None = None


class Session:
    """One walk through ``protocol``.

    Raises :class:`fencepost.ProtocolRaised` or :class:`fencepost.NotAProtocol` if it has no usable initial state. Later
    errors are shown at the node where they happen.
    """

    def __init__(self, protocol: Model) -> None:
        self.protocol = protocol
        self.stepper = Stepper(protocol)
        self.actions = self.stepper.of_kind("action")
        self._constraints = self.stepper.of_kind("constraint")
        self._step_constraints = self.stepper.of_kind("step_constraint")
        self._enabled: dict[int, list[Action]] = {}
        self.nodes: list[Node] = []
        self.starts = [self._grow(Node(len(self.nodes), state)) for state in self.stepper.initial_states()]
        if not self.starts:
            raise OptionError(
                f"{protocol.name} has no initial state with these constants, so there is nothing to walk through"
            )
        self.judge, self.sought = cache(self._judge), cache(self._sought)
        self._expression = lru_cache(MAX_EXPRESSIONS)(lambda text: Expression(text, protocol))
        self._temporal: dict[int, list[Temporal]] = {}

    def node(self, number: int) -> Node:
        """The node of this number. Raises :class:`OptionError` if there is none."""
        if not 0 <= number < len(self.nodes):
            raise OptionError(
                f"this session has no state number {number}: it was started anew; open a link or a file instead"
            )
        return self.nodes[number]

    def _grow(self, node: Node) -> Node:
        if len(self.nodes) >= MAX_NODES:
            raise OptionError(
                f"this session has {MAX_NODES:,} states, which is the most it keeps: start a new one from a link"
            )
        self.nodes.append(node)
        return node

    # -- walking ------------------------------------------------------------------------------------------------------

    def enabled(self, node: Node) -> list[Action]:
        """The actions enabled at a node, in the order of the protocol, including those that raise."""
        found = self._enabled.pop(node.number, None) or self._all_enabled(node)
        self._enabled[node.number] = found
        while len(self._enabled) > MAX_ENABLED:
            del self._enabled[next(iter(self._enabled))]
        return found

    def _all_enabled(self, node: Node) -> list[Action]:
        found = []
        for number, root in enumerate(self.actions):
            by, doc = actor(root.declared.by, root.parameters), root.declared.doc.split("\n\n")[0]
            try:
                offers = tuple(self._offer(node, number, root, o) for o in self._outcomes(root, node.state.ids))
            except FencepostError as error:
                found.append(Action(root.title, by, doc, (), str(error)))
                continue
            if offers:
                found.append(Action(root.title, by, doc, offers))
        return found

    def _outcomes(self, root: Root, ids: Sequence[int], after: Sequence[int] | None = None) -> list[Outcome]:
        """As the stepper's. Also raises :class:`ProtocolRaised` if the author's Python does not return."""
        deadline = self.stepper.deadline
        deadline.restart()
        try:
            with deadline.limits(lambda: "time" if deadline.expired(PATIENCE) else None):
                return self.stepper.outcomes(root, ids, after)
        except LimitReached:
            message = f"{root} had not returned after {PATIENCE:g} seconds"
            raise ProtocolRaised(message, where=root.title, state=State(self.stepper.store, ids)) from None

    def _offer(self, node: Node, number: int, root: Root, outcome: Outcome) -> Offer:
        step = taken(self.stepper, node.state, root, outcome)
        return Offer((number, outcome.choices), step, self._cut(node.state, step.state))

    def _cut(self, before: State, after: State) -> str | None:
        """The constraint that keeps the checker from taking this step, or from continuing after it."""
        for root in self._step_constraints:
            if self._outcomes(root, before.ids, after.ids):
                return root.title
        for root in self._constraints:
            if self._outcomes(root, after.ids):
                return root.title
        return None

    def take(self, node: Node, move: Move) -> Node:
        """The node that a step leads to, which is the same every time, and make its line the current one.

        Raises :class:`OptionError` if the step cannot be taken there, and :class:`fencepost.ProtocolRaised` if the
        protocol raises.
        """
        known = self.child(node, move)
        self.visit(known)
        return known

    def child(self, node: Node, move: Move) -> Node:
        """The node that a step leads to, without changing the current line. Raises as :meth:`take`."""
        known = node.children.get(move)
        if known is None:
            step = self._offered(node, move) or self._taken(node, move)
            known = self._grow(Node(len(self.nodes), step.state, node, step, move, node.depth + 1))
            node.children[move] = known
        return known

    def _offered(self, node: Node, move: Move) -> Step | None:
        actions = self._enabled.get(node.number, ())
        return next((offer.step for action in actions for offer in action.offers if offer.move == move), None)

    def _taken(self, node: Node, move: Move) -> Step:
        number, choices = move
        if not 0 <= number < len(self.actions):
            raise OptionError(f"{self.protocol.name} has no action number {number}")
        root = self.actions[number]
        outcome = self.stepper.outcome(root, node.state.ids, choices)
        if outcome is None:
            raise OptionError(f"{root.title} cannot be taken like this after step {node.depth}")
        return taken(self.stepper, node.state, root, outcome)

    def visit(self, node: Node) -> None:
        """Make the line through ``node`` the current one."""
        for child in node.line[1:]:
            assert child.parent is not None
            child.parent.next = child

    def trace(self, tip: Node, first: int = 0, last: int | None = None) -> Trace:
        """The behaviour that leads to ``tip``, or its states from number ``first`` to ``last``. It is a lasso if the
        last state equals an earlier one.
        """
        line = tip.line
        last = tip.depth if last is None else last
        steps = [node.step for node in line[first + 1 : last + 1] if node.step is not None]
        loop = self.loop(tip) if last == tip.depth else None
        return Trace(self.protocol, line[first].state, tuple(steps), None if loop is None else loop - first)

    def loop(self, tip: Node) -> int | None:
        """The number of the state from which the line of ``tip`` repeats, or None. A step that changes nothing is no
        loop.
        """
        if tip.stays:
            return tip.depth
        repeats = tip.repeats
        return repeats if repeats is not None and tip.step is not None and tip.step.changes else None

    def graft(self, trace: Trace) -> Node:
        """Walk along a behaviour of the same protocol, whatever found it. Returns the node at its end.

        Raises :class:`OptionError` if this protocol does not have one of its steps.
        """
        node = next((n for n in self.starts if n.state.variables() == trace.initial.variables()), None)
        if node is None:
            raise OptionError(f"{self.protocol.name} does not start there")
        node = self.along(node, trace.steps)
        node.stays = node.stays or trace.loop == len(trace.steps)
        return node

    def along(self, node: Node, steps: Sequence[Step]) -> Node:
        """Walk from ``node`` along steps of the same protocol. Returns the last node. Raises as :meth:`graft`."""
        for step in steps:
            move, _ = move_of(self.stepper, self.actions, node.state, step)
            node = self.child(node, move)
        self.visit(node)
        return node

    # -- judging ------------------------------------------------------------------------------------------------------

    def _judge(self, node: Node) -> list[Judgement]:
        """Every invariant at a node, and every step invariant and refinement for the step that leads to it. Properties
        that are off by default are left out.
        """
        false: dict[str, list[str]] = {}
        errors: dict[str, str] = {}
        for root in self._properties:
            stepwise = root.kind in STEP_PROPERTIES
            if root.kind == ("step_invariant" if node.parent is None else INITIALLY):
                continue
            # without a step, a refinement is judged as for an initial state
            before = node.parent if stepwise else None
            try:
                broken = (
                    self._outcomes(root, before.state.ids, node.state.ids)
                    if before is not None
                    else self._outcomes(root, node.state.ids)
                )
            except ProtocolRaised as error:
                errors.setdefault(root.name, str(error))
                continue
            if broken:
                false.setdefault(root.name, []).append(root.title.removeprefix(root.name))
        return [
            Judgement(name, root.kind, root.declared.doc.split("\n\n")[0], tuple(false.get(name, ())), errors.get(name))
            for name, root in self._named.items()
        ]

    @cached_property
    def _properties(self) -> list[Root]:
        return self.stepper.of_kind("invariant", INITIALLY, "step_invariant", "refinement")

    @cached_property
    def _named(self) -> dict[str, Root]:
        found: dict[str, Root] = {}
        for root in self._properties:
            found.setdefault(root.name, root)
        return found

    def _sought(self, node: Node) -> list[Sought]:
        """The ``sometimes`` properties, with the bindings for which they are true at a node. One that raises counts as
        not true. Properties that are off by default are left out.
        """
        true: dict[str, tuple[str, ...]] = {}
        docs: dict[str, str] = {}
        for root in self.stepper.of_kind("sometimes"):
            docs.setdefault(root.name, root.declared.doc.split("\n\n")[0])
            with suppress(ProtocolRaised):
                if self.stepper.outcomes(root, node.state.ids):
                    true[root.name] = (*true.get(root.name, ()), root.title.removeprefix(root.name))
        return [Sought(name, doc, true.get(name, ())) for name, doc in docs.items()]

    def temporal(self, tip: Node) -> list[Temporal]:
        """The temporal properties, each judged if the line of ``tip`` is a lasso. Properties that are off by default
        are left out.
        """
        found = self._temporal.get(tip.number)
        if found is None:
            trace = self.trace(tip) if self.loop(tip) is not None else None
            declared = {promise.name: promise.declared for promise in self.stepper.promises}
            found = [self._temporal_of(one, trace) for one in declared.values()]
            if trace is not None:
                self._temporal = {tip.number: found}
        return found

    def _temporal_of(self, declared: Declared, trace: Trace | None) -> Temporal:
        broken = looked_at(trace, declared.kind, declared.name) if trace is not None else None
        return Temporal(declared.name, declared.doc.split("\n\n")[0], None if broken is None else broken.when)

    def broken(self, node: Node) -> list[str]:
        """The invariants that do not hold at a node, but did, as far as is known, before the step to it."""
        before = set() if node.parent is None else {j.name for j in self.judge(node.parent) if not j.holds}
        return [j.name for j in self.judge(node) if not j.holds and j.name not in before]

    def watch(self, text: str, nodes: Sequence[Node]) -> list[Evaluation]:
        """The values of an expression at these nodes. This may take arbitrarily long, which
        :class:`fencepost.explorer.watch.Watcher` limits.

        Raises :class:`OptionError` if the expression cannot be parsed.
        """
        expression = self._expression(text)
        return [_evaluation(expression.at(node.state)) for node in nodes]

    # -- saving -------------------------------------------------------------------------------------------------------

    def path(self, node: Node) -> str:
        """The path to a node as text for a link."""
        first, *rest = node.line
        moves = tuple(n.move for n in rest)
        return str(Path(self.starts.index(first), moves, check_of(node.state), node.stays))

    def follow(self, text: str) -> Node:
        """The node that a path leads to. Raises :class:`OptionError` if it leads nowhere, or to another state than when
        the link was made.
        """
        path = Path.read(text)
        other = "the link was made with another version of the protocol, or with other constants"
        if not 0 <= path.start < len(self.starts):
            raise OptionError(f"{self.protocol.name} has no initial state number {path.start}: {other}")
        node = self.starts[path.start]
        for move in path.moves:
            try:
                node = self.child(node, move)
            except OptionError as error:
                raise OptionError(f"{error}: {other}") from None
        self.visit(node)
        if path.check and path.check != check_of(node.state):
            raise OptionError(f"the steps of the link lead to another state than they did: {other}")
        node.stays = node.stays or path.stays
        return node


def _evaluation(found: Evaluated) -> Evaluation:
    try:
        text = str(found)
    except (ValueError, RecursionError, MemoryError) as error:  # for example a number with thousands of digits
        return Evaluation(f"(it cannot be written: {str(error).partition(';')[0] or 'it is too large'})")
    value = found.value.python() if isinstance(found.value, Foreign) else found.value
    return Evaluation(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…", found.error is None and value is False)
