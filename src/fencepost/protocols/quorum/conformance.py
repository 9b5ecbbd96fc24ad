"""How traces of quorums conform to the protocol: the step of each event of replicas.

The protocol is :class:`fencepost.protocols.quorum.running.RunningQuorum`. Nearly every event is the step of its name.
The protocol orders the steps of several nodes: the facts that a step needs from others stay true, so it is taken as
soon as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from fencepost.language.protocol import Protocol
from fencepost.language.values import ModelValue
from fencepost.protocols.quorum.running import RunningQuorum, Stored
from fencepost.quorum.rules import Error
from fencepost.quorum.traces import SUBJECT
from fencepost.quorum.transitions import State
from fencepost.traces.validation.conformance import Conformance, Event, NotCovered, by_action, known, rounded
from fencepost.traces.validation.steps import Step


class QuorumConformance(Conformance):
    """One quorum in one run."""

    name: ClassVar[str] = "quorum"
    protocol: ClassVar[type[Protocol]] = RunningQuorum
    subjects: ClassVar[str] = f"{SUBJECT}.+"

    def __init__(self, subject: str, events: Sequence[Event]) -> None:
        super().__init__(subject, events)
        self.replicas: dict[str, int] = {}
        self.first: set[tuple[str, int, int]] = set()
        """The events of replicas that start for the first time."""
        self.by: dict[tuple[str, int], str] = {}
        """The replica of each incarnation of a node."""
        self.epochs = 0
        named: set[str] = set()
        for event in events:
            if event.subject is None or event.action not in _STEPS:
                continue
            parameters = event.parameters
            self.epochs = max(self.epochs, parameters.get("epoch", 0))
            if event.action == "restart_with_state":
                self._starts(event, parameters)
            named.update(_named(parameters))
        self.strangers = sorted(named - self.replicas.keys())

    def _starts(self, event: Event, parameters: Mapping[str, Any]) -> None:
        replica = parameters["replica"]
        self.by[event.node, event.incarnation] = replica
        if any(name == replica and node != event.node for (node, _), name in self.by.items()):
            self.moved = replica
        if replica not in self.replicas:
            self.replicas[replica] = len(self.replicas)
            self.first.add(event.place)
            if parameters["epoch"] or any(parameters["end"]):
                self.older = replica

    moved = ""
    """A replica that was on several nodes; empty if there is none."""
    older = ""
    """A replica that is older than the trace; empty if there is none."""

    def constants(self) -> Mapping[str, Any]:
        """See :class:`Conformance`."""
        if self.older:
            raise NotCovered(
                f"the replica {self.older} was there before the trace began: trace a quorum from its first start on"
            )
        if self.moved:
            raise NotCovered(f"the replica {self.moved} was on several nodes, and nothing tells on which one first")
        if self.strangers:
            raise NotCovered(f"the replica {self.strangers[0]} takes part, and has written no trace")
        return {
            "replicas": rounded(max(1, len(self.replicas))),
            "epochs": rounded(self.epochs + 2),
            "is_traced": True,
        }

    def hidden(self, protocol: Protocol) -> Iterable[Step]:
        """Nothing: these traces report every step."""
        return ()

    def bind(self, protocol: Protocol) -> None:
        """See :class:`Conformance`."""
        assert isinstance(protocol, RunningQuorum)
        self.r: dict[str, ModelValue] = {name: protocol.replicas[place] for name, place in self.replicas.items()}

    def names(self) -> Mapping[str, str]:
        """See :class:`Conformance`."""
        return {str(value): name for name, value in self.r.items()}

    def is_untouched(self) -> bool:
        """See :class:`Conformance`."""
        return not self.replicas

    def steps(self, event: Event) -> Iterable[Step]:
        """See :class:`Conformance`."""
        if event.subject is None or event.action not in _STEPS:
            return ()
        if (event.node, event.incarnation) not in self.by:
            raise NotCovered(f"{event.node} {event.incarnation} does not tell which replica it is")
        steps = _STEPS[event.action]
        return steps(self, event) if callable(steps) else self._told(event, *steps)

    def _told(self, event: Event, about: str, picks: str = "", after: str = "") -> Iterator[Step]:
        """The step of the same name. Fields of the event are its parameters, its choices, and the replica's state
        afterwards.
        """
        chosen = [value for _, value in self._values(event, picks)]
        places = [part for value in chosen for part in (value if isinstance(value, list | tuple) else (value,))]
        holds = self._is(event, **dict(self._values(event, after))) + self._voters(event)
        yield Step(event.action, (self._who(event), *self._values(event, about)), tuple(places), after=holds)

    def _values(self, event: Event, names: str) -> Iterator[tuple[str, Any]]:
        """Fields of an event, by their names in the protocol: ``asked=epoch`` is its field ``epoch``."""
        for each in names.split():
            name, _, field = each.rpartition("=")
            value = event.parameters[field]
            if field in ("leader", "voted", "candidate", "asked", "peer"):
                value = self._replica(value)
            elif field == "fetched":
                value = frozenset([self.r[replica] for replica in value])
            yield name or field, known(Error.__members__.__getitem__, event, field) if field == "error" else value

    def _who(self, event: Event) -> tuple[str, ModelValue]:
        return "s", self.r[self.by[event.node, event.incarnation]]

    def _replica(self, name: str | None) -> ModelValue | None:
        if name is None:
            return None
        if name not in self.r:
            raise NotCovered(f"the replica {name} is named, and has written no trace")
        return self.r[name]

    def _is(self, event: Event, **parts: Any) -> tuple[tuple[tuple[Any, ...], Any], ...]:
        """Parts of the state of the replica."""
        return tuple([(("member", self._who(event)[1], name), value) for name, value in parts.items()])

    def _voters(self, event: Event) -> tuple[tuple[tuple[Any, ...], Any], ...]:
        """The configuration that the replica uses afterwards, if the event gives it."""
        voters = event.parameters.get("voters")
        return () if voters is None else self._is(event, voters=frozenset([self.r[voter] for voter in voters]))

    # -- steps that need more than their event -------------------------------------------------------------------------

    def _restarts(self, event: Event) -> Iterator[Step]:
        fields = event.parameters
        after = self._is(event, state=known(State, event, "state")) + self._voters(event)
        if event.place in self.first:
            voters = frozenset([self.r[voter] for voter in fields["voters"]])
            yield Step("start", (self._who(event), ("host", fields["host"])), (voters,), after=after)
            return
        picks = (self._stored(event), *fields["snapshot"], *fields["end"])
        yield Step(event.action, (self._who(event),), picks, after=after)

    def _stores(self, event: Event) -> Iterator[Step]:
        yield Step(event.action, (self._who(event),), (self._stored(event),))

    def _stored(self, event: Event) -> Stored:
        return Stored(**dict(self._values(event, "epoch voted leader")))

    def _installed(self, event: Event) -> Iterator[Step]:
        about = (self._who(event), ("is_whole", event.action == "snapshot_installed"))
        yield Step("snapshot_installed", about, tuple(event.parameters["snapshot"]), after=self._voters(event))


def _named(parameters: Mapping[str, Any]) -> Iterator[str]:
    """The replicas that an event names as having acted."""
    for name in ("voted", "leader", "candidate"):
        if parameters.get(name) is not None:
            yield parameters[name]
    if "peer" in parameters:
        yield parameters["peer"]
    yield from parameters.get("voters", ())


_STEPS: Mapping[str, Callable[[QuorumConformance, Event], Iterable[Step]] | tuple[str, ...]] = by_action(
    {
        "restart_with_state": QuorumConformance._restarts,
        "store_election": QuorumConformance._stores,
        "speak": ("epoch votes", "leader"),
        "sync append_fetched truncate": ("", "end"),
        "send_fetch_request": ("", "end", "epoch"),
        "take_snapshot install_snapshot": ("", "snapshot"),
        "learn_epoch": ("epoch",),
        "follow": ("leader epoch asked",),
        "hear_leader hear_end_of_epoch look_for_leader ask_for_pre_votes return_to_leader": ("",),
        "lose_leader": ("", "", "epoch voted"),
        "handle_vote_request": ("candidate asked epoch pre_vote granted", "end"),
        "get_pre_vote get_vote": ("peer", "", "epoch"),
        "accept_add_voter_request accept_remove_voter_request accept_update_voter_request": ("peer",),
        "send_request_vote check_quorum_resign": ("", "", "epoch"),
        "become_leader": ("renews", "", "epoch"),
        "keep_leading": ("", "fetched"),
        "client_request": ("count", "offset"),
        "accept_fetch_request": ("peer", "end"),
        "refuse_fetch": ("peer asked=epoch error",),
        "commit": ("", "", "high_watermark=offset"),
        "learn_commit": ("", "offset"),
        "snapshot_installed snapshot_damaged": QuorumConformance._installed,
    }
)
"""The step of each kind of event, or its fields: parameters, choices, and conditions on the state afterwards."""
