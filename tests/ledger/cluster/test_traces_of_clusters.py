"""Traces of real processes: the records at both ends of a message fit together, even if one end is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ledger.processes import Process

import fencepost
from fencepost.traces import TraceEvent, pack, read, table

ENTRIES = 300


def runs_of(event: TraceEvent) -> set[int]:
    return {entry for first, last in event.parameter_values()["entries"] for entry in range(first, last + 1)}


async def _use(uri: str, traces: Path, bookies: dict[str, Process]) -> tuple[int, str]:
    """Write, recover and read ledgers, and kill a bookie meanwhile. Returns the ledger that used it, and the bookie."""
    async with fencepost.connect(uri, trace=traces) as store:
        async with store.create_ledger(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
            await asyncio.gather(*(ledger.append(b"entry") for _ in range(ENTRIES)))
            killed = ledger.metadata.fragments[0].ensemble[0]
            bookies[killed].kill()
            await asyncio.gather(*(ledger.append(b"entry") for _ in range(ENTRIES)))
        left = await store.create_ledger(ensemble=3, write_quorum=3, ack_quorum=2)
        await left.append(b"left open")
        assert (await store.recover_ledger(left.id)).last_entry == 0
        async with store.open_ledger(ledger.id) as reader:
            assert len([entry async for entry in reader.read()]) == 2 * ENTRIES
        return ledger.id, killed


def test_what_both_ends_say_fits_together(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    options = ("--trace", str(traces))
    metadata = Process(tmp_path, "metadata", str(tmp_path / "metadata"), "--port", "0", *options)
    uri = metadata.told.split()[2] + "/ledgers"
    bookies = [
        Process(tmp_path, "bookie", str(tmp_path / f"bookie{number}"), "--metadata", uri, "--port", "0", *options)
        for number in range(4)
    ]
    try:
        number, killed = asyncio.run(_use(uri, traces, {process.told.split()[1]: process for process in bookies}))
    finally:
        for process in (*bookies, metadata):
            process.end()
    assert len([*(traces / "_spool").iterdir()]) == 1 == pack(traces)
    events = [*read(traces)]
    assert table(traces).num_rows == len(events)
    of_nodes: dict[str, list[TraceEvent]] = {}
    for event in events:
        of_nodes.setdefault(event.node, []).append(event)
    for node, of_node in of_nodes.items():
        assert (of_node[0].action, of_node[-1].action == "ended") == ("started", node != killed), node
    (client,) = (node for node in of_nodes if node.startswith("client-"))
    connections = {
        e.parameter_values()["connection"]: e.parameter_values()["bookie"]
        for e in of_nodes[client]
        if e.action == "connected"
    }

    sent: dict[str, set[int]] = {}  # by bookie, the entries whose adds it confirms, once that is durable
    for node in (process.told.split()[1] for process in bookies):
        waiting: list[tuple[int, set[int]]] = []
        for event in of_nodes[node]:
            values = event.parameter_values()
            if "connection" in values and values["connection"] in connections:
                assert connections[values["connection"]] == node
            if event.action == "bookie_sends_add_confirmed_response" and event.subject == str(number):
                assert values["connection"] in connections
                waiting.append((values["position"], runs_of(event)))
            if event.action == "journal_synced":
                for position, entries in waiting:
                    if position <= values["position"]:
                        sent.setdefault(node, set()).update(entries)
    confirmed: dict[str, set[int]] = {}
    for event in of_nodes[client]:
        if event.action == "client_receives_add_confirmed_response" and event.subject == str(number):
            assert event.actor == f"writer {number}"
            confirmed.setdefault(event.parameter_values()["bookie"], set()).update(runs_of(event))
    assert set().union(*confirmed.values()) == {*range(2 * ENTRIES)}
    for bookie, entries in confirmed.items():
        assert entries <= sent[bookie], bookie

    actions = [event.action for event in of_nodes[client] if event.subject == str(number)]
    assert (
        actions[0] == "client_creates_ledger"
        and "client_changes_ensemble" in actions
        and "client_closes_ledger" in actions
    )
    offered = [
        e
        for e in of_nodes[client]
        if e.action in ("client_creates_ledger", "client_changes_ensemble", "client_closes_ledger")
    ]
    written = [e for e in of_nodes["metadata-1"] if e.action == "metadata_written" and e.subject == str(number)]
    assert [e.parameter_values()["version"] for e in written] == [
        e.parameter_values()["version"] + 1 for e in offered if e.subject == str(number)
    ]
    zxids = [e.parameter_values()["zxid"] for e in of_nodes["metadata-1"] if e.action == "metadata_written"]
    assert zxids == sorted(zxids)
    recovered = {event.action for event in events if event.actor.startswith("recoverer ")}
    assert {
        "client_starts_recovery",
        "client_receives_fencing_read_lac_response",
        "recovery_client_closes_ledger",
        "client_ends",
    } <= recovered
    assert {"bookie_is_fenced", "bookie_sends_fencing_read_lac_response"} <= {event.action for event in events}
