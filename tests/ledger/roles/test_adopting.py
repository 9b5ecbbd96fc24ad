"""A reserved ledger is adopted once. A client that comes second, too late or with another password gets an error that
says so.
"""

from __future__ import annotations

import pytest
from ledger.roles.connected import Cluster

from fencepost.ledger.roles.interface import Error
from fencepost.ledger.roles.reader import Reader, ReaderSettings
from fencepost.ledger.roles.recoverer import Recoverer, RecovererSettings
from fencepost.ledger.roles.writer import Writer, WriterSettings
from fencepost.ledger.rules.metadata import RESERVED, LedgerMetadata, LedgerStatus, Next, adopted, reserved, to_adopt


def writer(token: int, password: bytes = b"p", reserves: bool = False) -> Writer:
    settings = WriterSettings(
        3, 3, 2, password, custom_metadata=(("k", b"v"),), creation_token=token, reserves=reserves
    )
    return Writer(1, settings)


@pytest.fixture
def cluster() -> Cluster:
    """With ledger 1, which is reserved."""
    cluster = Cluster("abcd")
    cluster.value(cluster.add(writer(1, reserves=True)), "create")
    return cluster


def test_the_first_who_adopts_a_ledger_writes_it(cluster: Cluster) -> None:
    first, second = cluster.add(writer(2)), cluster.add(writer(3))
    assert RESERVED in cluster.metadata[1][0].custom_metadata
    assert cluster.value(first, "adopt") == 1
    assert cluster.error(cluster.call(second, "adopt")) is Error.LEDGER_EXISTS
    assert cluster.error(cluster.append(second, b"no")) is Error.LEDGER_EXISTS
    assert [*cluster.appended(first, b"a", b"b")] == [0, 1]
    assert cluster.value(first, "close") == 1
    metadata = cluster.metadata[1][0]
    assert metadata.custom_metadata == (("k", b"v"),) and metadata.creation_token == 2
    reader = cluster.add(Reader(1, ReaderSettings(b"p")))
    cluster.value(reader, "open")
    assert cluster.data_of(reader, 1) == b"b"


def test_an_adoption_whose_answer_is_lost_is_found_again(cluster: Cluster) -> None:
    cluster.lose_metadata_answers = 1
    assert cluster.value(cluster.add(writer(2)), "adopt") == 1


@pytest.mark.parametrize("lost", [0, 1])
def test_of_two_at_once_one_adopts(cluster: Cluster, lost: int) -> None:
    cluster.lose_metadata_answers = lost
    rivals = [cluster.add(writer(token)) for token in (2, 3)]
    tokens = [cluster.call(rival, "adopt") for rival in rivals]
    while not all(token in cluster.results for token in tokens):
        cluster.wait()
    assert sorted(cluster.results[token].error for token in tokens) == [Error.NONE, Error.LEDGER_EXISTS]


def test_what_is_recovered_is_not_adopted(cluster: Cluster) -> None:
    cluster.value(cluster.add(Recoverer(1, RecovererSettings(b"p"))), "recover")
    assert cluster.error(cluster.call(cluster.add(writer(2)), "adopt")) is Error.LEDGER_CLOSED


def test_another_password_or_no_ledger(cluster: Cluster) -> None:
    assert cluster.error(cluster.call(cluster.add(writer(2, b"q")), "adopt")) is Error.UNAUTHORIZED
    gone = cluster.add(Writer(9, WriterSettings(password=b"p")))
    assert cluster.error(cluster.call(gone, "adopt")) is Error.NO_LEDGER


def test_a_ledger_that_is_not_reserved_or_not_open_is_nobodys_to_adopt() -> None:
    plain = LedgerMetadata(1, 1, 1, (), creation_token=1)
    kept = reserved(plain)
    assert to_adopt(plain, 2) is Next.GIVE_UP and to_adopt(kept, 2) is Next.WRITE
    assert to_adopt(adopted(kept, 2), 2) is Next.DONE and to_adopt(adopted(kept, 2), 3) is Next.GIVE_UP
    for status in (LedgerStatus.IN_RECOVERY, LedgerStatus.CLOSED):
        assert to_adopt(kept.replace(status=status), 2) is Next.GIVE_UP
