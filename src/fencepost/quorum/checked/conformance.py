"""How traces of quorums are held to the protocol: which events of replicas are which steps.

The protocol is :class:`fencepost.quorum.checked.running.RunningQuorum`. Nearly every event is the step of its name. The
order of the steps of several nodes comes of the protocol: what a step needs of others stays true for ever, so it is
taken as soon as that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from fencepost.conform.conformance import Conformance, Event, NotCovered, Step, by_action, rounded
from fencepost.quorum.checked.running import RunningQuorum, Stored
from fencepost.quorum.rules import Error
from fencepost.quorum.traces import SUBJECT
from fencepost.quorum.transitions import State
from fencepost.spec.protocol import Protocol
from fencepost.spec.values import ModelValue


class QuorumConformance(Conformance):
    """One quorum in one run."""

    name: ClassVar[str] = "quorum"
    protocol: ClassVar[type[Protocol]] = RunningQuorum
    subjects: ClassVar[str] = f"{SUBJECT}.+"

    def __init__(self, subject: str, events: Sequence[Event]) -> None:
        super().__init__(subject, events)
        self.replicas: dict[str, int] = {}
        self.first: set[tuple[str, int, int]] = set()
        """The events that tell that a replica starts for the first time."""
        self.by: dict[tuple[str, int], str] = {}
        """The replica that an incarnation of a node is."""
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
    """A replica of several nodes; empty if there is none."""
    older = ""
    """A replica that was there before the trace; empty if there is none."""

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
        steps = _STEPS.get(event.action) if event.subject is not None else None
        if steps is None:
            return ()
        if (event.node, event.incarnation) not in self.by:
            raise NotCovered(f"{event.node} {event.incarnation} does not tell which replica it is")
        return steps(self, event)

    def _who(self, event: Event) -> tuple[str, ModelValue]:
        return "s", self.r[self.by[event.node, event.incarnation]]

    def _replica(self, name: str | None) -> ModelValue | None:
        return None if name is None else self.r[name]

    def _is(self, event: Event, **parts: Any) -> tuple[tuple[tuple[Any, ...], Any], ...]:
        """Parts of the state of the replica."""
        return tuple([(("member", self._who(event)[1], name), value) for name, value in parts.items()])

    def _voters(self, event: Event) -> tuple[tuple[tuple[Any, ...], Any], ...]:
        """The configuration that the replica goes by then, if the event gives it."""
        voters = event.parameters.get("voters")
        return () if voters is None else self._is(event, voters=frozenset([self.r[voter] for voter in voters]))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _alone(self, event: Event) -> Iterator[Step]:
        yield Step(event.action, (self._who(event),), after=self._voters(event))

    def _in_epoch(self, event: Event) -> Iterator[Step]:
        epoch = event.parameters["epoch"]
        yield Step(event.action, (self._who(event),), after=self._is(event, epoch=epoch))

    def _of_peer(self, event: Event) -> Iterator[Step]:
        yield Step(event.action, (self._who(event), ("peer", self.r[event.parameters["peer"]])))

    def _to_place(self, event: Event) -> Iterator[Step]:
        """Up to a place in the log, whose epoch the event gives too."""
        place = event.parameters["end"] if "end" in event.parameters else event.parameters["snapshot"]
        yield Step(event.action, (self._who(event),), tuple(place), after=self._voters(event))

    def _restarts(self, event: Event) -> Iterator[Step]:
        fields = event.parameters
        after = self._is(event, state=State(fields["state"])) + self._voters(event)
        if event.place in self.first:
            voters = frozenset([self.r[voter] for voter in fields["voters"]])
            yield Step("start", (self._who(event), ("host", fields["host"])), (voters,), after=after)
            return
        stored = Stored(fields["epoch"], self._replica(fields["voted"]), self._replica(fields["leader"]))
        yield Step(event.action, (self._who(event),), (stored, fields["snapshot"][0], *fields["end"]), after=after)

    def _stores(self, event: Event) -> Iterator[Step]:
        fields = event.parameters
        stored = Stored(fields["epoch"], self._replica(fields["voted"]), self._replica(fields["leader"]))
        yield Step(event.action, (self._who(event),), (stored,))

    def _speaks(self, event: Event) -> Iterator[Step]:
        fields = event.parameters
        about = (("epoch", fields["epoch"]), ("votes", fields["votes"]))
        yield Step(event.action, (self._who(event), *about), (self._replica(fields["leader"]),))

    def _learns_epoch(self, event: Event) -> Iterator[Step]:
        yield Step(event.action, (self._who(event), ("epoch", event.parameters["epoch"])))

    def _follows(self, event: Event) -> Iterator[Step]:
        fields = event.parameters
        about = (
            ("leader", self.r[fields["leader"]]),
            ("epoch", fields["epoch"]),
            ("asked", self._replica(fields["asked"])),
        )
        yield Step(event.action, (self._who(event), *about))

    def _loses_leader(self, event: Event) -> Iterator[Step]:
        voted = self._replica(event.parameters["voted"])
        yield Step(event.action, (self._who(event),), after=self._is(event, voted=voted))

    def _is_asked(self, event: Event) -> Iterator[Step]:
        fields = event.parameters
        about = (
            ("candidate", self.r[fields["candidate"]]),
            ("asked", self.r[fields["asked"]]),
            ("epoch", fields["epoch"]),
            ("pre_vote", fields["pre_vote"]),
            ("granted", fields["granted"]),
        )
        yield Step(event.action, (self._who(event), *about), tuple(fields["end"]))

    def _leads(self, event: Event) -> Iterator[Step]:
        about = ("renews", event.parameters["renews"])
        yield Step(event.action, (self._who(event), about), after=self._is(event, epoch=event.parameters["epoch"]))

    def _keeps_leading(self, event: Event) -> Iterator[Step]:
        fetched = frozenset([self.r[each] for each in event.parameters["fetched"]])
        yield Step(event.action, (self._who(event),), (fetched,))

    def _is_written_to(self, event: Event) -> Iterator[Step]:
        fields = event.parameters
        yield Step(event.action, (self._who(event), ("count", fields["count"])), (fields["offset"],))

    def _is_fetched_from(self, event: Event) -> Iterator[Step]:
        peer = ("peer", self.r[event.parameters["peer"]])
        yield Step(event.action, (self._who(event), peer), tuple(event.parameters["end"]))

    def _refuses_fetch(self, event: Event) -> Iterator[Step]:
        fields = event.parameters
        about = (("peer", self.r[fields["peer"]]), ("asked", fields["epoch"]), ("error", Error[fields["error"]]))
        yield Step(event.action, (self._who(event), *about))

    def _commits(self, event: Event) -> Iterator[Step]:
        yield Step(event.action, (self._who(event),), after=self._is(event, high_watermark=event.parameters["offset"]))

    def _learns_commit(self, event: Event) -> Iterator[Step]:
        yield Step(event.action, (self._who(event),), (event.parameters["offset"],))

    def _installed(self, event: Event) -> Iterator[Step]:
        is_whole = event.action == "snapshot_installed"
        after = self._voters(event)
        if is_whole:
            after += self._is(event, snapshot=event.parameters["snapshot"][0])
        yield Step("snapshot_installed", (self._who(event), ("is_whole", is_whole)), after=after)


def _named(parameters: Mapping[str, Any]) -> Iterator[str]:
    """The replicas of which an event tells that they have done something."""
    for name in ("voted", "leader", "candidate"):
        if parameters.get(name) is not None:
            yield parameters[name]
    if "peer" in parameters:
        yield parameters["peer"]
    yield from parameters.get("voters", ())


_STEPS: Mapping[str, Callable[[QuorumConformance, Event], Iterable[Step]]] = by_action(
    {
        "restart_with_state": QuorumConformance._restarts,
        "store_election": QuorumConformance._stores,
        "speak": QuorumConformance._speaks,
        "sync send_fetch_request append_fetched truncate take_snapshot install_snapshot": QuorumConformance._to_place,
        "learn_epoch": QuorumConformance._learns_epoch,
        "follow": QuorumConformance._follows,
        "hear_leader hear_end_of_epoch look_for_leader ask_for_pre_votes return_to_leader": QuorumConformance._alone,
        "lose_leader": QuorumConformance._loses_leader,
        "handle_vote_request": QuorumConformance._is_asked,
        "get_pre_vote get_vote accept_add_voter_request accept_remove_voter_request "
        "accept_update_voter_request": QuorumConformance._of_peer,
        "send_request_vote check_quorum_resign": QuorumConformance._in_epoch,
        "become_leader": QuorumConformance._leads,
        "keep_leading": QuorumConformance._keeps_leading,
        "client_request": QuorumConformance._is_written_to,
        "accept_fetch_request": QuorumConformance._is_fetched_from,
        "refuse_fetch": QuorumConformance._refuses_fetch,
        "commit": QuorumConformance._commits,
        "learn_commit": QuorumConformance._learns_commit,
        "snapshot_installed snapshot_damaged": QuorumConformance._installed,
    }
)
