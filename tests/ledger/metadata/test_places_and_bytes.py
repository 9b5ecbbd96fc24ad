"""The paths and bytes of metadata, compared with what BookKeeper 4.17 wrote."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import OptionError
from fencepost.ledger.metadata import registration, serialization
from fencepost.ledger.metadata.address import parse
from fencepost.ledger.metadata.paths import FIRST_LONG_ID, LAST_ID, ledger_of, ledger_path
from fencepost.ledger.metadata.registration import BookieServiceInfo, Endpoint, address_of
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import DigestType, LedgerMetadata, LedgerStatus, may_open

# -- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ledger", "path"),
    [
        (0, "00/0000/L0000"),
        (1234567890, "12/3456/L7890"),
        (FIRST_LONG_ID - 1, "21/4748/L3646"),
        (FIRST_LONG_ID, "000/0000/0021/4748/L3647"),
        (LAST_ID, "922/3372/0368/5477/L5807"),
    ],
)
def test_a_ledger_is_where_bookkeeper_has_it(ledger: int, path: str) -> None:
    assert ledger_path(ledger) == path
    assert ledger_of(path) == ledger


@given(st.integers(0, LAST_ID), st.booleans())
def test_a_path_tells_its_ledger(ledger: int, always_long: bool) -> None:
    assert ledger_of(ledger_path(ledger, always_long)) == ledger


@pytest.mark.parametrize("path", ["idgen", "00/0000/0000", "00/0000/L000", "000/0000/L0000", "available/b:1", ""])
def test_what_is_no_ledger_is_none(path: str) -> None:
    assert ledger_of(path) is None


@pytest.mark.parametrize("ledger", [-1, LAST_ID + 1])
def test_a_number_out_of_range_is_no_ledger(ledger: int) -> None:
    with pytest.raises(ValueError, match="no id of a ledger"):
        ledger_path(ledger)


# -- addresses --------------------------------------------------------------------------------------------------------


def test_addresses_of_both_kinds_are_understood() -> None:
    ours = parse("zk://h:1,i:2/ledgers")
    assert ours.servers == (("h", 1), ("i", 2)) and ours.root == "/ledgers" and ours.layout is None
    theirs = parse("zk+hierarchical://h:1;i/some/where/ledgers")
    assert theirs.servers == (("h", 1), ("i", 2181)) and theirs.root == "/some/where/ledgers"
    assert theirs.layout == "HierarchicalLedgerManagerFactory"
    assert str(theirs) == "zk://h:1,i:2181/some/where/ledgers"
    assert parse("zk://[::1]:2181/ledgers").servers == (("[::1]", 2181),)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "127.0.0.1:2181",
        "etcd://h:1/ledgers",
        "zk://h:1",
        "zk://h:1/",
        "zk://h:x/ledgers",
        "zk://:1/ledgers",
        "zk://h:0/l",
    ],
)
def test_what_is_no_address_is_refused(uri: str) -> None:
    with pytest.raises(OptionError):
        parse(uri)


# -- ledgers ----------------------------------------------------------------------------------------------------------

JAVA = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a7008031003180020ffffffffffffffffff01280132350a0f3132372e302e302e313a3232"
    "3231320a0f3132372e302e302e313a32323231310a0f3132372e302e302e313a323232313310003803420048025a140a06426f6f6b6965120a73696d706c65746573"
    "7460f3c8f9e2dac9faa259"
)
"""The metadata of a ledger that BookKeeper's shell was writing."""


def test_the_bytes_of_java_are_read_and_written_back_to_the_bit() -> None:
    metadata = serialization.from_bytes(JAVA)
    assert metadata == LedgerMetadata(
        3,
        3,
        2,
        (Fragment(0, ("127.0.0.1:22212", "127.0.0.1:22211", "127.0.0.1:22213")),),
        digest_type=DigestType.CRC32C,
        custom_metadata=(("Bookie", b"simpletest"),),
        creation_token=6432805262093870195,
    )
    assert serialization.to_bytes(metadata) == JAVA


ADDRESSES = st.from_regex(r"[a-z0-9.-]{1,12}:[1-9][0-9]{0,3}", fullmatch=True)


@st.composite
def metadata_of_version(draw: st.DrawFn, version: int) -> LedgerMetadata:
    size = draw(st.integers(1, 4))
    firsts = sorted(draw(st.sets(st.integers(0, 2**40), min_size=1, max_size=4)))
    status = draw(st.sampled_from(LedgerStatus))
    is_closed = status is LedgerStatus.CLOSED
    made = LedgerMetadata(
        size,
        size,
        size,
        tuple(Fragment(first, tuple(draw(st.lists(ADDRESSES, min_size=size, max_size=size)))) for first in firsts),
        status,
        draw(st.integers(-1, 2**62)) if is_closed else -1,
        draw(st.integers(0, 2**62)) if is_closed else 0,
        password=None,
        format_version=version,
    )
    if version == 1:
        return made
    return made.replace(
        ack_quorum=draw(st.integers(1, size)),
        digest_type=draw(st.sampled_from(DigestType)),
        password=draw(st.binary()),
        custom_metadata=tuple(
            sorted(draw(st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3)).items())
        ),
        creation_time=draw(st.none() | st.integers(0, 2**62)),
        creation_token=draw(st.integers(0, 2**63 - 1)) if version == 3 else 0,
    )


@given(st.sampled_from([1, 2, 3]).flatmap(metadata_of_version))
def test_what_is_written_is_read_in_every_version(value: LedgerMetadata) -> None:
    assert serialization.from_bytes(serialization.to_bytes(value)) == value


def test_metadata_without_a_password_are_open_to_all_and_stay_without() -> None:
    value = serialization.from_bytes(b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\ta:1\tb:2\tc:3\n-102\tCLOSED")
    assert value.status is LedgerStatus.IN_RECOVERY and value.password is None
    assert may_open(value, b"anything") and not may_open(value.replace(password=b"x"), b"y")
    assert serialization.from_bytes(serialization.to_bytes(value.replace(format_version=3))).password is None


@given(st.binary(max_size=60), st.sampled_from([b"", b"1\n", b"2\n", b"3\n"]))
def test_bytes_that_are_no_metadata_are_refused_and_nothing_else_happens(data: bytes, version: bytes) -> None:
    with contextlib.suppress(serialization.MetadataFormatError):
        serialization.from_bytes(b"BookieMetadataFormatVersion\t" + version + data)


@given(st.integers(0, len(JAVA) - 1), st.integers(1, 255))
def test_metadata_that_are_cut_short_or_damaged_are_refused_or_read(place: int, change: int) -> None:
    with pytest.raises(serialization.MetadataFormatError):
        serialization.from_bytes(JAVA[:place])
    with contextlib.suppress(serialization.MetadataFormatError):
        serialization.from_bytes(JAVA[:place] + bytes([JAVA[place] ^ change]) + JAVA[place + 1 :])


def test_a_version_to_come_is_refused() -> None:
    with pytest.raises(serialization.MetadataFormatError, match="they have the version 4"):
        serialization.from_bytes(b"BookieMetadataFormatVersion\t4\nx")


# -- registrations ----------------------------------------------------------------------------------------------------


def test_a_registration_is_read_as_it_was_written() -> None:
    info = BookieServiceInfo(
        (
            Endpoint("httpserver", "0.0.0.0", 8080, "http"),
            Endpoint("bookie", "h", 3181, auth=("a",), extensions=("tls",)),
        ),
        (("k", "v"),),
    )
    assert registration.from_bytes(registration.to_bytes(info)) == info
    assert address_of("some-id", info) == ("h", 3181)


def test_the_registration_of_a_bookie_of_java_is_read() -> None:
    data = bytes.fromhex("32230a06626f6f6b696510c3ad011a093132372e302e302e31220a626f6f6b69652d727063")
    info = registration.from_bytes(data)
    assert info.rpc() == Endpoint("bookie", "127.0.0.1", 22211) and registration.to_bytes(info) == data


def test_a_bookie_without_a_registration_is_where_its_id_says() -> None:
    assert address_of("10.0.0.1:3181", None) == ("10.0.0.1", 3181)
    assert address_of("10.0.0.1:3181", BookieServiceInfo()) == ("10.0.0.1", 3181)
    with pytest.raises(ValueError, match="the bookie rack-4 is not registered with an address"):
        address_of("rack-4", None)
    with pytest.raises(ValueError, match="cannot be read"):
        registration.from_bytes(b"\xff\xff")
