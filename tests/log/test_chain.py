"""The list of the ledgers of a log, positions in it, and their binary and text forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fencepost.errors import OptionError
from fencepost.log.chain import EARLIEST, LARGEST, LATEST, Batch, Chain, Link, Position, bytes_of, chain_of, position_of
from fencepost.log.errors import LogFormatError

NAMES = some.text(max_size=20).filter(lambda text: text.isprintable())
IDS = some.integers(0, LARGEST)


@some.composite
def chains(draw: some.DrawFn) -> Chain:
    ids = draw(some.lists(some.one_of(some.integers(0, 300), IDS), unique=True, max_size=12))
    times = sorted(draw(some.lists(IDS, min_size=len(ids), max_size=len(ids))))
    settings = draw(some.dictionaries(NAMES, some.binary(max_size=20), max_size=4))
    links = tuple(map(Link, ids, times))
    batches = tuple(Batch(*each) for each in draw(some.dictionaries(NAMES, IDS, max_size=3)).items())
    return Chain(
        links, draw(some.integers(0, 1 << 40)), draw(some.booleans()), tuple(sorted(settings.items())), batches
    )


@given(chains())
def test_a_chain_is_what_its_bytes_say(chain: Chain) -> None:
    assert chain_of(bytes_of(chain)) == chain


@given(chains(), some.data())
def test_bytes_that_end_early_or_go_on_are_refused(chain: Chain, data: some.DataObject) -> None:
    whole = bytes_of(chain)
    cut = data.draw(some.integers(0, len(whole) - 1))
    for damaged in (whole[:cut], whole + b"\0"):
        with pytest.raises(LogFormatError):
            chain_of(damaged)


@given(some.one_of(some.binary(max_size=60), some.binary(max_size=60).map(lambda data: b"\1\0" + data)))
def test_any_bytes_are_a_chain_or_one_clear_error(data: bytes) -> None:
    says = ""
    try:
        chain = chain_of(data)
    except LogFormatError as error:
        says = str(error)
    else:
        assert chain_of(bytes_of(chain)) == chain
    assert "\n" not in says and len(says) < 200


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is too short"),
        (b"\2\0\0\0\0", "has the format 2, and only 1 can be read"),
        (b"\1\4\0\0\0", "flags that are not known: 0x04"),
        (b"\1\2\0\0\0", "ends too early"),
        (b"\1\2\0\0\0\0", "announces batches and has none"),
        (b"\1\2\0\0\0\2\1q\0\1q\1", "two batches of one writer"),
        (b"\1\2\0\0\0\1\1q" + b"\xff" * 9 + b"\1", "invalid batch number"),
        (b"\1\2\0\0\0\1\1\xff\0", "has a batch of which the name is not UTF-8"),
        (b"\1\0\0\0\5", "ends too early"),
        (b"\1\0\0\0\x02\2\0\0\0", "a ledger twice"),
        (b"\1\0\0\0\1\1\0", "invalid ledger id or time: -1, 0"),
        (b"\1\0\0\0\2\2\4\2\1", "invalid ledger id or time: 2, 1"),
        (b"\1\0\0\0\0\7", "goes on after its end, with 1 bytes"),
        (b"\1\0" + b"\xff" * 9 + b"\2" + b"\0\0", "more than 64 bits"),
        (b"\1\0" + b"\x80" * 10 + b"\0" + b"\0\0", "more than 64 bits"),
        (b"\1\0\0\2\1a\0\1a\0\0", "settings twice or out of order"),
        (b"\1\0\0\1\1\xff\0\0", "not UTF-8"),
    ],
)
def test_an_error_says_what_is_wrong(data: bytes, says: str) -> None:
    with pytest.raises(LogFormatError, match=says):
        chain_of(data)


def test_ten_thousand_ledgers_take_little_room() -> None:
    hourly = Chain(tuple(Link(5 * n, 1_790_000_000_000 + 3_600_000 * n) for n in range(10_000)))
    assert len(bytes_of(hourly)) < 60_000
    random_ids = Chain(tuple(Link(n * 7_368_787 % (1 << 31), 1_790_000_000_000 + 3_600_000 * n) for n in range(10_000)))
    assert len(bytes_of(random_ids)) < 100_000


def test_a_chain_grows_at_its_end_and_is_trimmed_at_its_front() -> None:
    chain = Chain().appended(7, 1_000).appended(3, 900).appended(9, 2_000)
    assert chain.links == (Link(7, 1_000), Link(3, 1_000), Link(9, 2_000)), "a clock that is behind makes nothing older"
    assert (chain.last, chain.length, Chain().last) == (9, 3, None)
    trimmed = chain.without_first(1)
    assert trimmed.links == chain.links[1:]
    assert (trimmed.trimmed, trimmed.length) == (1, 3)
    assert chain.without_first(9).links == (Link(9, 2_000),), "the last ledger stays"
    assert Chain().without_first(1) == Chain()
    assert chain.as_sealed().sealed and not chain.sealed


def test_positions_are_ordered_by_their_place_in_the_log() -> None:
    chain = Chain().appended(7, 0).appended(3, 0)
    first, second, third = Position(7, 5), Position(3, 0), Position(3, 1)
    places = [chain.place(position) for position in (first, second, third)]
    assert places == [(0, 5), (1, 0), (1, 1)]
    assert chain.without_first(1).place(third) == (1, 1), "which stays the same while the log is trimmed"
    assert chain.place(Position(8, 0)) is None
    with pytest.raises(TypeError):
        assert first < second  # type: ignore[operator]


@given(IDS, IDS)
def test_a_position_is_what_its_text_says(ledger: int, entry: int) -> None:
    assert position_of(str(Position(ledger, entry))) == Position(ledger, entry)


def test_the_ends_of_a_log_have_names() -> None:
    assert (position_of("earliest"), position_of("latest")) == (EARLIEST, LATEST)
    assert (str(EARLIEST), str(LATEST)) == ("earliest", "latest")


@pytest.mark.parametrize(
    "text", ["", "7", "7:", ":3", "-1:0", "7:-1", "07:1", "7:3 ", "٧:٣", "Latest", f"{1 << 63}:0", "0:" + "9" * 19]
)
def test_other_texts_are_no_positions(text: str) -> None:
    with pytest.raises(OptionError, match="give LEDGER:ENTRY"):
        position_of(text)
