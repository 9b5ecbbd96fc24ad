"""Messages of every kind, as Hypothesis strategies."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from fencepost.ledger import messages as m
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import v2

IDS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
LACS = st.one_of(st.just(-1), IDS)
TXNS = st.one_of(st.integers(0, 70_000), st.integers(0, 2**63 - 1))
KEYS = st.binary(min_size=v2.KEY_SIZE, max_size=v2.KEY_SIZE)
BYTES = st.one_of(st.binary(max_size=60), st.integers(100, 20_000).map(bytes))
CODES = st.sampled_from(Code)
FAILURES = st.sampled_from([code for code in Code if code is not Code.OK])
RUNS = st.lists(st.integers(1, 9), max_size=30).map(
    lambda steps: tuple((sum(steps[: 2 * n + 1]), sum(steps[: 2 * n + 2]) - 1) for n in range(len(steps) // 2))
)
"""Runs of entries, ascending and separate. Each step is the number of ids missing, then the number present."""


def _add(ledger: int, entry_id: int, lac: int, rest: bytes, key: bytes, recovery: bool, deferred: bool) -> m.AddEntry:
    return m.AddEntry(ledger, entry_id, lac, struct.pack(">qqq", ledger, entry_id, lac) + rest, key, recovery, deferred)


ADDS = st.builds(_add, IDS, IDS, LACS, BYTES, KEYS, st.booleans(), st.booleans())
PLAIN_READS = st.builds(m.ReadEntry, IDS, LACS)
FENCING_READS = st.builds(m.ReadEntry, IDS, LACS, st.just(True), st.one_of(st.none(), KEYS))
WAITS = st.integers(0, 2**40).map(lambda milliseconds: milliseconds * 1000)
POLLS = st.one_of(
    st.builds(m.ReadEntry, IDS, st.just(-1), previous_lac=LACS, wait=WAITS),
    st.builds(m.ReadEntry, IDS, LACS, previous_lac=LACS, wait=WAITS, piggyback=st.just(False)),
)
BATCH_READS = st.builds(
    m.BatchRead, IDS, IDS, st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
) | st.builds(m.BatchRead, IDS, IDS, st.just(3), st.just(4), st.just(True), st.one_of(st.none(), KEYS))
AUTHS = st.builds(m.Auth, st.text(max_size=9), BYTES)

REQUESTS_OF_3 = st.one_of(
    ADDS,
    PLAIN_READS,
    FENCING_READS,
    POLLS,
    st.builds(m.ReadLac, IDS),
    st.builds(m.WriteLac, IDS, LACS, BYTES, st.binary(min_size=1, max_size=30)),
    st.builds(m.ForceLedger, IDS),
    st.builds(m.ListEntries, IDS),
    st.builds(m.GetBookieInfo, st.booleans(), st.booleans()),
    AUTHS,
    st.just(m.StartTls()),
)
REQUESTS_OF_2 = st.one_of(
    ADDS.filter(lambda add: not add.deferred_sync), PLAIN_READS, FENCING_READS, BATCH_READS, AUTHS
)

READ_RESPONSES = st.builds(m.ReadEntryResponse, IDS, LACS, st.just(Code.OK), LACS, BYTES)
RESPONSES_OF_3 = st.one_of(
    st.builds(m.AddEntryResponse, IDS, IDS, CODES),
    READ_RESPONSES,
    st.builds(m.ReadEntryResponse, IDS, LACS, CODES, LACS),
    st.builds(m.ReadLacResponse, IDS, st.just(Code.OK), st.one_of(st.none(), BYTES), st.one_of(st.none(), BYTES)),
    st.builds(m.ReadLacResponse, IDS, FAILURES),
    st.builds(m.WriteLacResponse, IDS, CODES),
    st.builds(m.ForceLedgerResponse, IDS, CODES),
    st.builds(m.ListEntriesResponse, IDS, st.just(Code.OK), RUNS),
    st.builds(m.ListEntriesResponse, IDS, FAILURES),
    st.builds(m.GetBookieInfoResponse, CODES, st.one_of(st.none(), IDS), st.one_of(st.none(), IDS)),
    st.builds(m.AuthResponse, st.just(Code.OK), st.text(max_size=9), BYTES),
    st.builds(m.StartTlsResponse, CODES),
)
CODES_OF_2 = CODES.filter(lambda code: code is not Code.UNKNOWN_LEDGER_STATE)
RESPONSES_OF_2 = st.one_of(
    st.builds(m.AddEntryResponse, IDS, IDS, CODES_OF_2),
    st.builds(m.ReadEntryResponse, IDS, LACS, st.just(Code.OK), st.just(-1), BYTES),
    st.builds(m.ReadEntryResponse, IDS, LACS, CODES_OF_2.filter(lambda code: code is not Code.OK)),
    st.builds(m.BatchReadResponse, IDS, IDS, st.just(Code.OK), st.lists(BYTES, max_size=4).map(tuple)),
    st.builds(m.BatchReadResponse, IDS, IDS, CODES_OF_2),
    st.builds(m.AuthResponse, st.just(Code.OK), st.text(max_size=9), BYTES),
)
