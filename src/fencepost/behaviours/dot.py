"""A small state space as a Graphviz graph.

Engines do not store the steps between states. So this explores the protocol again, in plain Python, up to the size of a
readable picture.
"""

from __future__ import annotations

import itertools

from fencepost.behaviours.behaviour import Trace
from fencepost.behaviours.formatting import abridged, channel_lines, held, kind_of, wrap
from fencepost.errors import OptionError
from fencepost.language.network import Channel
from fencepost.language.seam import Model
from fencepost.language.values import Value, show
from fencepost.semantics import State, Stepper
from fencepost.text.plain import printable

MOST_STATES = 1_000

LINE = 60
"""The most characters in a line of a label."""


def to_dot(protocol: Model, trace: Trace | None = None, *, limit: int = MOST_STATES) -> str:
    """Every reachable state of ``protocol`` and every step between them, for ``dot -Tsvg``.

    A state is labelled with its differences from the first initial state, a step with its action. A state outside a
    constraint, which is not explored further, is dashed. The steps and the last state of ``trace``, a behaviour of the
    same protocol, are red. If it stays there forever, a step "nothing more happens" leads from that state to itself.

    Raises :class:`fencepost.OptionError` if there are more than ``limit`` states, and :class:`fencepost.ProtocolRaised`
    if the author's Python raises.
    """
    return Graph(protocol, limit).text(trace)


class Graph:
    """Every reachable state of a protocol and every step between them. See :func:`to_dot`."""

    def __init__(self, protocol: Model, limit: int = MOST_STATES) -> None:
        self.stepper = Stepper(protocol)
        self.limit = limit
        self.states: dict[int, State] = {}
        self.outside: set[int] = set()
        self.edges: dict[tuple[int, int], dict[str, None]] = {}
        self.initial = [self._add(state) for state in self.stepper.initial_states()]
        waiting = list(self.initial)
        while waiting:
            level, waiting = sorted(set(waiting)), []
            for number in level:
                waiting += self._expand(number)

    def _add(self, state: State) -> int:
        fingerprint = state.fingerprint
        if fingerprint not in self.states:
            if len(self.states) >= self.limit:
                raise OptionError(
                    f"{self.stepper.protocol.name} has more than {self.limit:,} states with these constants, too many"
                    " for a graph: choose smaller constants"
                )
            self.states[fingerprint] = state
            if any(self.stepper.outcomes(c, state.ids) for c in self.stepper.of_kind("constraint")):
                self.outside.add(fingerprint)
        return fingerprint

    def _expand(self, fingerprint: int) -> list[int]:
        """The new states reached from this one."""
        if fingerprint in self.outside:
            return []
        new, ids = [], self.states[fingerprint].ids
        for root in self.stepper.of_kind("action"):
            for outcome in self.stepper.outcomes(root, ids):
                after = self.stepper.apply(ids, outcome)
                if any(self.stepper.outcomes(c, ids, after) for c in self.stepper.of_kind("step_constraint")):
                    continue
                known = len(self.states)
                reached = self._add(State(self.stepper.store, after))
                if len(self.states) > known:
                    new.append(reached)
                self.edges.setdefault((fingerprint, reached), {}).setdefault(root.title)
        return new

    def text(self, trace: Trace | None) -> str:
        """The graph for Graphviz, with the steps of ``trace`` in red."""
        path = [state.fingerprint for state in trace.states] if trace is not None else []
        steps = trace.steps if trace is not None else ()
        taken: dict[tuple[int, int], set[str]] = {}
        for (before, after), step in zip(itertools.pairwise(path), steps, strict=True):
            taken.setdefault((before, after), set()).add(step.title)
            self.edges.setdefault((before, after), {}).setdefault(step.title)
        if trace is not None and trace.loop == len(trace.steps):
            taken.setdefault((path[-1], path[-1]), set()).add("nothing more happens")
            self.edges.setdefault((path[-1], path[-1]), {}).setdefault("nothing more happens")
        number = {fingerprint: place for place, fingerprint in enumerate(self.states)}
        lines = [
            f'digraph "{_escaped(self.stepper.protocol.name)}" {{',
            '  node [shape=box, style="rounded", fontname="monospace", fontsize=10];',
            '  edge [fontname="sans-serif", fontsize=9];',
        ]
        for fingerprint, state in self.states.items():
            label = "\\n".join(map(_escaped, self._label(state)))
            style = ["rounded"] + ["dashed"] * (fingerprint in self.outside) + ["filled"] * (path[-1:] == [fingerprint])
            extra = ", color=red" if fingerprint in path else ""
            extra += ', fillcolor="#ffe0dc"' if path[-1:] == [fingerprint] else ""
            wide = ", penwidth=2" if fingerprint in self.initial else ""
            lines.append(f'  s{number[fingerprint]} [label="{label}", style="{",".join(style)}"{extra}{wide}];')
        for (before, after), titles in self.edges.items():
            for red in (False, True):
                those = [t for t in titles if (t in taken.get((before, after), set())) == red]
                if those and before in number and after in number:
                    label = "\\n".join(map(_escaped, those))
                    colour = ", color=red, fontcolor=red, penwidth=2" if red else ""
                    lines.append(f'  s{number[before]} -> s{number[after]} [label="{label}"{colour}];')
        return "\n".join([*lines, "}"]) + "\n"

    def _label(self, state: State) -> list[str]:
        if state.fingerprint in self.initial[:1]:
            return ["initial state"]
        lines = []
        for slot, _, new in state.changes(self.states[self.initial[0]]):
            kind = kind_of(self.stepper.protocol, slot)
            if kind not in ("keys", "topics", "view"):
                lines += wrap(abridged(f"{slot.name} = {_held(kind, new)}"), LINE)
        return lines or ["looks like the initial state"]


def _held(kind: str, value: Value) -> str:
    shown = held(kind, value)
    if isinstance(shown, Channel):
        return ", ".join(messages for _, these in channel_lines(shown) for messages in these) or "nothing"
    if kind == "connected":
        return "connected" if value else "cut"
    return show(shown)


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
