"""Roles connected in memory: a ledger is written, its bookies crash, it is recovered and read."""

from __future__ import annotations

from typing import Any

from ledger.roles.connected import Cluster

from fencepost.ledger.messages import AddEntryResponse
from fencepost.ledger.roles.interface import Call, Error
from fencepost.ledger.roles.reader import Reader, ReaderSettings
from fencepost.ledger.roles.recoverer import Recoverer, RecovererSettings
from fencepost.ledger.roles.writer import Writer, WriterSettings
from fencepost.ledger.rules.metadata import LedgerStatus


def written(bookies: str = "abcde", entries: int = 4, **settings: Any) -> tuple[Cluster, Writer]:
    """A cluster with ledger 1, and its writer."""
    cluster = Cluster(bookies)
    writer = cluster.add(Writer(1, WriterSettings(**settings)))
    cluster.value(writer, "create")
    for n in range(entries):
        assert cluster.appended(writer, b"%d" % n) == range(n, n + 1)
    return cluster, writer


def content(cluster: Cluster) -> list[bytes]:
    """The entries of the ledger, read to its end."""
    reader = cluster.add(Reader(1, ReaderSettings()))
    end = cluster.value(reader, "open")
    together = [cluster.data_of(reader, entry_id) for entry_id in range(end + 1)]
    assert [cluster.data_of(reader, entry_id, singly=True) for entry_id in range(end + 1)] == together
    return together


def test_a_ledger_is_written_closed_and_read() -> None:
    cluster, writer = written()
    assert cluster.value(writer, "close") == 3
    assert content(cluster) == [b"0", b"1", b"2", b"3"]
    assert cluster.metadata[1][0].length == 4


def test_a_reader_sees_an_open_ledger_up_to_its_lac() -> None:
    cluster, _ = written()
    assert content(cluster) == [b"0", b"1", b"2"]


def test_a_ledger_whose_writer_is_gone_is_recovered() -> None:
    cluster, _ = written()
    recoverer = cluster.add(Recoverer(1, RecovererSettings()))
    end = cluster.value(recoverer, "recover")
    assert (end.status, end.last_entry, end.length) == (LedgerStatus.CLOSED, 3, 4)
    assert content(cluster) == [b"0", b"1", b"2", b"3"]
    assert cluster.value(recoverer, "recover") == end


def test_a_writer_that_is_alive_is_fenced_off() -> None:
    cluster, writer = written()
    cluster.value(cluster.add(Recoverer(1, RecovererSettings())), "recover")
    assert cluster.error(cluster.append(writer, b"late")) == Error.LEDGER_FENCED
    assert cluster.error(cluster.call(writer, "close")) == Error.LEDGER_FENCED
    assert content(cluster) == [b"0", b"1", b"2", b"3"]


def test_two_bookies_crash_while_entries_are_in_flight() -> None:
    cluster, writer = written()
    cluster.down |= {"a", "c"}
    for n in range(4, 8):
        cluster.append(writer, b"%d" % n)
    assert cluster.confirmed[-1] == 7
    assert cluster.metadata[1][0].fragments[-1].ensemble == ("d", "b", "e")
    assert cluster.value(writer, "close") == 7
    cluster.restart("a")
    cluster.restart("c")
    assert content(cluster) == [b"%d" % n for n in range(8)]


def test_bookies_crash_and_come_back_with_what_is_in_their_journals() -> None:
    cluster, _ = written()
    for name in "abc":
        cluster.crash(name)
    recoverer = cluster.add(Recoverer(1, RecovererSettings()))
    assert cluster.error(cluster.call(recoverer, "recover")) == Error.RECOVERY_FAILED
    for name in "abc":
        cluster.restart(name)
    assert cluster.value(recoverer, "recover").last_entry == 3
    assert content(cluster) == [b"0", b"1", b"2", b"3"]


def test_a_fenced_bookie_is_fenced_after_a_crash() -> None:
    cluster, writer = written("abc")
    cluster.drop = lambda source, target, message: source == "c" or target == "c"
    cluster.value(cluster.add(Recoverer(1, RecovererSettings())), "recover")
    for name in "ab":
        cluster.crash(name)
        cluster.restart(name)
    cluster.drop = lambda source, target, message: False
    assert cluster.error(cluster.append(writer, b"late")) == Error.LEDGER_FENCED


def test_what_was_not_synced_was_not_confirmed() -> None:
    cluster, writer = written()
    cluster.syncs = False
    cluster.append(writer, b"4")
    assert cluster.confirmed[-1] == 3
    for name in "abc":
        cluster.crash(name)
        cluster.restart(name)
    cluster.syncs = True
    assert cluster.value(cluster.add(Recoverer(1, RecovererSettings())), "recover").last_entry == 3


def test_answers_of_the_metadata_service_are_lost() -> None:
    cluster = Cluster("abcd")
    cluster.lose_metadata_answers = 1
    writer = cluster.add(Writer(1, WriterSettings(creation_token=7)))
    assert cluster.value(writer, "create") == 1
    cluster.down.add("b")
    cluster.lose_metadata_answers = 1
    assert cluster.appended(writer, b"0") == range(1)
    cluster.lose_metadata_answers = 1
    assert cluster.value(writer, "close") == 0
    assert cluster.metadata[1][1] == 2, "each was done once"
    assert content(cluster) == [b"0"]


def test_answers_of_the_metadata_service_are_lost_to_a_recovery() -> None:
    cluster, _ = written()
    recoverer = cluster.add(Recoverer(1, RecovererSettings()))
    cluster.lose_metadata_answers = 2
    assert cluster.value(recoverer, "recover").last_entry == 3
    assert cluster.metadata[1][0].status is LedgerStatus.CLOSED


def test_two_recoveries_race_and_end_alike() -> None:
    cluster, _ = written()
    one, other = (cluster.add(Recoverer(1, RecovererSettings())) for _ in range(2))
    tokens = []
    for recoverer in (one, other):
        token = next(cluster.tokens)
        cluster.events.append((recoverer, Call(token, "recover")))
        tokens.append(token)
    cluster.run()
    while not all(token in cluster.results for token in tokens):
        cluster.wait()
    first, second = (cluster.results[token].value for token in tokens)
    assert first == second == cluster.metadata[1][0]
    assert content(cluster) == [b"0", b"1", b"2", b"3"]


def test_an_entry_that_one_bookie_alone_has_is_written_back() -> None:
    cluster, writer = written("abc")
    cluster.drop = lambda source, target, message: (
        target in "ab" or (source == "c" and type(message) is AddEntryResponse)
    )
    assert cluster.error(cluster.append(writer, b"4")) == Error.NOT_ENOUGH_BOOKIES
    assert [name for name in "abc" if (1, 4) in cluster.entries[name]] == ["c"]
    cluster.drop = lambda source, target, message: target == "a"
    recoverer = cluster.add(Recoverer(1, RecovererSettings()))
    assert cluster.value(recoverer, "recover").last_entry == 4, (
        "a cannot be asked, and there is none for it: b and c are enough"
    )
    assert [name for name in "abc" if (1, 4) in cluster.entries[name]] == ["b", "c"]


def test_entries_are_striped() -> None:
    cluster, writer = written(ensemble_size=5, write_quorum=3, ack_quorum=2)
    cluster.down.add("c")
    recovered = cluster.value(cluster.add(Recoverer(1, RecovererSettings())), "recover")
    assert recovered.last_entry == 3
    assert content(cluster) == [b"0", b"1", b"2", b"3"]
    assert cluster.error(cluster.append(writer, b"late")) == Error.LEDGER_FENCED


def test_a_reader_follows_a_ledger_through_a_change_of_ensemble_to_its_end() -> None:
    cluster, writer = written(explicit_lac_interval=1000)
    reader = cluster.add(Reader(1, ReaderSettings(poll_wait=5000)))
    cluster.value(reader, "open")
    tails = [cluster.call(reader, "tail", entry_id) for entry_id in range(9)]
    cluster.crash("b")
    for n in range(4, 8):
        cluster.appended(writer, b"%d" % n)
    while tails[7] not in cluster.results:
        cluster.wait()
    assert tails[8] not in cluster.results
    cluster.value(writer, "close")
    told = [cluster.results[token].value for token in tails]
    assert told[8] is None and all(each in (True, b"%d" % n) for n, each in enumerate(told[:8]))
    assert [cluster.data_of(reader, n) for n in range(8)] == [b"%d" % n for n in range(8)]


def test_with_deferred_sync_entries_are_confirmed_before_they_are_durable() -> None:
    cluster, writer = written(entries=0, deferred_sync=True)
    cluster.syncs = False
    assert cluster.appended(writer, b"0") == range(1)
    token = cluster.call(writer, "force")
    assert token not in cluster.results and writer.lac == -1
    cluster.syncs = True
    assert cluster.appended(writer, b"1") == range(1, 2)
    assert cluster.results[token].value == 0 == writer.lac
