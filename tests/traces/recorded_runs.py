"""Runs of the simulator as a recorder would see them: its proxy stands before the network, and its watch on the
metadata is late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from random import Random
from typing import Any

import msgspec

from fencepost.ledger.messages import Request, Response
from fencepost.ledger.recording import observer
from fencepost.ledger.recording.observer import ObservedMessage
from fencepost.ledger.rules.protections import ALL, Protections
from fencepost.ledger.simulation import network as sim_network
from fencepost.ledger.simulation.case import Case, drawn
from fencepost.ledger.simulation.cluster import Cluster, Outcome
from fencepost.ledger.simulation.network import Connection, SimNetwork
from fencepost.ledger.simulation.workload import Workload
from fencepost.ledger.wire import v2, v3
from fencepost.ledger.wire.frames import LENGTH_SIZE
from fencepost.protocols.store.recorded_conformance import RecordedConformance
from fencepost.simulation.trace import SimTrace
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

LEDGER = "7"
VALIDATOR = Validator(RecordedConformance)


class Recording:
    """The trace of a recorder, kept in memory."""

    def __init__(self, seed: int, bookies: int) -> None:
        self.events: list[Event] = []
        self.random = Random(seed)
        self.asked: dict[tuple[Any, ...], list[ObservedMessage]] = {}
        self.written: tuple[int, Any] | None = None
        self.read: tuple[int, Any] | None = None
        self.recorded_version = -1
        listed = [{"bookie": f"b{number + 1}"} for number in range(bookies)]
        self.emit("started", None, {"kind": "record", "bookies": listed, "faults": [], "seed": None})

    def emit(self, action: str, subject: str | None, parameters: Any) -> None:
        plain = msgspec.json.decode(msgspec.json.encode(parameters))
        self.events.append(Event("proxy", 1, len(self.events) + 1, action, subject, plain))

    def passed(self, direction: str, bookie: str, connection: str, payload: bytes) -> None:
        """Record a message as the Link of the proxy does."""
        message = observer.request_of(payload) if direction == "request" else observer.response_of(payload)
        self.look()
        key = (connection, *message.key)
        parameters: dict[str, Any] = {
            "kind": message.kind,
            "bookie": bookie,
            "connection": connection,
            "protocol": message.protocol,
            "number": message.number,
        }
        if direction == "request":
            self.asked.setdefault(key, []).append(message)
        else:
            waiting = self.asked.get(key)
            if waiting:
                asked = waiting.pop(0)
                message = message._replace(
                    ledger=asked.ledger,
                    flags=asked.flags,
                    entry=asked.entry if message.ledger is None else message.entry,
                )
            else:
                parameters["unasked"] = True
            parameters |= {"code": message.code, **message.flags}
        if message.entry is not None:
            parameters["entry"] = message.entry
        parameters |= message.fields
        self.emit(f"{direction}_passed", None if message.ledger is None else str(message.ledger), parameters)

    # -- metadata: one reading at a time, each of which takes as long as it takes
    # ------------------------------------------

    def look(self) -> None:
        if self.read is not None and self.random.random() < 0.2:
            version, metadata = self.read
            if version > self.recorded_version + 1:
                self.emit("metadata_missed", LEDGER, {"first": self.recorded_version + 1, "last": version - 1})
            if version > self.recorded_version:
                self.emit("metadata_seen", LEDGER, {"version": version, "metadata": metadata, "new": True})
            self.recorded_version, self.read = version, None
        if (
            self.read is None
            and self.written is not None
            and self.written[0] > self.recorded_version
            and self.random.random() < 0.3
        ):
            self.read = self.written

    def close(self) -> None:
        while self.written is not None and self.recorded_version < self.written[0]:
            self.look()
        self.emit("ended", None, {})


class Watched(SimNetwork):
    """A network watched by a recorder."""

    recording: Recording

    def request(self, client: Any, server_name: str, txn: int, request: Request) -> None:
        super().request(client, server_name, txn, request)
        connection = client.connections[server_name]
        if connection.open:
            codec = connection.wire.codec_of(request)
            self.recording.passed(
                "request", server_name, self.label(connection.number), codec.encode_request(txn, request)[LENGTH_SIZE:]
            )

    def respond(self, number: int, txn: int, response: Response) -> None:
        connection = self.connections.get(number)
        if connection is not None and connection.open:
            codec = v2 if txn in connection.wire._asked_in_2 else v3
            payload = codec.encode_response(txn, response)[LENGTH_SIZE:]
            self.recording.passed("response", connection.server.name, self.label(number), payload)
        super().respond(number, txn, response)

    def _connect(self, client: Any, server: Any) -> Connection:
        connection = super()._connect(client, server)
        if connection.open:
            fields = {"bookie": server.name, "connection": self.label(connection.number), "onward": "", "process": None}
            self.recording.emit("connected", None, fields)
        return connection


@contextmanager
def _watched(recording: Recording) -> Iterator[None]:
    plain, Watched.recording = sim_network.SimNetwork, recording
    sim_network.SimNetwork = Watched  # type: ignore[misc]
    try:
        yield
    finally:
        sim_network.SimNetwork = plain  # type: ignore[misc]


def record(case: Case) -> tuple[Outcome, list[Event]]:
    """Run a case. Returns its outcome and what a recorder would have recorded."""
    recording = Recording(case.seed, case.bookies)

    def emit(node: str, incarnation: int, seq: int, action: str, subject: str | None, parameters: Any) -> None:
        if action == "metadata_written":
            recording.written = parameters["version"], parameters["metadata"]

    with _watched(recording):
        cluster = Cluster(case, None, SimTrace(emit))
        outcome = cluster.run(Workload(cluster).finished)
    recording.close()
    return outcome, recording.events


@cache
def recorded(seed: int, profile: str, protections: Protections = ALL) -> tuple[Outcome, list[Event]]:
    """The outcome of a seed, and its recording. Shared: do not change it."""
    return record(drawn(seed, profile, protections))


def validate(events: Sequence[Event], shuffle: int | None = None) -> Verdict:
    """Validate a recording against the protocol."""
    return VALIDATOR.validate(LEDGER, events, shuffle)


def said(verdict: Verdict) -> str:
    """The complaints about a recording that is not accepted."""
    return verdict.problem or "; ".join(
        f"{each.event.seq} {each.event.action} [{each.step.title}]: {each.why}" for each in verdict.refusals
    )
