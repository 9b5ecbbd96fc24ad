"""Rules of faults: their notation, their effects, and how a seed draws them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import OptionError
from fencepost.ledger import messages as m
from fencepost.ledger.recording.faults import ACTIONS, ANY, BY, DIRECTIONS, Faults, Rule, drawn, parse
from fencepost.ledger.recording.observer import ObservedMessage, request_of, response_of
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import v3

BOOKIES = ["127.0.0.1:3181", "b2", "b3"]


def asked(request: m.Request) -> ObservedMessage:
    return request_of(v3.encode_request(1, request)[4:])


def answered(response: m.Response) -> ObservedMessage:
    return response_of(v3.encode_response(1, response)[4:])


def add(entry: int = 0, ledger: int = 7, recovery: bool = False) -> ObservedMessage:
    body = b"".join(number.to_bytes(8, "big", signed=True) for number in (ledger, entry, entry - 1, 100)) + b"data"
    return asked(m.AddEntry(ledger, entry, entry - 1, body, b"k" * 20, recovery))


def test_a_rule_as_it_is_typed() -> None:
    assert parse("drop response add bookie=2 after=10 count=1", BOOKIES) == Rule(
        "drop", "response", "add", "b2", after=10
    )
    assert parse("cut request", BOOKIES) == Rule("cut", "request")
    assert parse(
        "delay  request read fence=yes by=1.5s count=all bookie=127.0.0.1:3181 ledger=7 entry=-1", BOOKIES
    ) == Rule("delay", "request", "read", "127.0.0.1:3181", 7, (-1, -1), fence=True, count=None, by=1.5)
    assert parse("drop response any code=no_entry entry=3..9", BOOKIES) == Rule(
        "drop", "response", ANY, entries=(3, 9), code="NO_ENTRY"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "say what is done (drop, delay or cut) and to what (request or response)"),
        ("drop", "say what is done"),
        ("lose response", "there is no 'lose': write drop, delay or cut"),
        ("drop respose add", "did you mean response?"),
        ("drop response append", "there is no 'append'"),
        ("drop response add 3", "3 is one word too many: a condition is written with ="),
        ("bookie=1 drop response", "first come what is done"),
        ("drop response add bookie=9", "there is no bookie 9: there is 1 (127.0.0.1:3181), 2 (b2), 3 (b3)"),
        ("drop response add bookie=0", "there is no bookie 0"),
        ("drop response add bokie=1", "there is no 'bokie': did you mean bookie?"),
        ("drop response add ledger=x", "'x' is no number from 0 on"),
        ("drop response add ledger=-1", "'-1' is no number from 0 on"),
        ("drop response add entry=9..3", "give the smaller one first"),
        ("drop response add count=0", "'0' is no number from 1 on"),
        ("drop response add count=1 count=2", "count is given twice"),
        ("drop response add recovery=maybe", "'maybe' is neither yes nor no"),
        ("drop response add code=FENCES", "did you mean FENCED?"),
        ("drop request add code=OK", "a request has no code"),
        ("drop request read recovery=yes", "recovery= is for adds, and this is for read"),
        ("drop request add fence=yes", "fence= is for reads, and this is for add"),
        ("drop request force entry=3", "entry= is for adds and reads, and this is for force"),
        ("drop request add by=1s", "by= is for delays, and this is to drop"),
        ("delay request add by=1", "by=1 is no time: write 200ms or 1.5s"),
        ("delay request add by=0ms", "is no time"),
        ("delay request add by=99999s", "at most 3600s"),
        ("drop request start_tls", "there is no 'start_tls'"),
    ],
)
def test_a_rule_that_is_wrong_is_told_why(text: str, reason: str) -> None:
    with pytest.raises(OptionError) as error:
        parse(text, BOOKIES)
    assert reason in str(error.value) and str(error.value).startswith(f"fault {text!r}: ")


@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_told_why_not(text: str) -> None:
    try:
        parse(text, BOOKIES)
    except OptionError:
        pass


@given(st.integers(0, 1 << 32), st.integers(1, 30))
def test_what_a_seed_draws_can_be_typed(seed: int, number: int) -> None:
    rules = drawn(number, seed, BOOKIES)
    assert rules == drawn(number, seed, BOOKIES) and len(rules) == number
    assert [parse(str(rule), BOOKIES) for rule in rules] == rules


def test_a_seed_draws_the_same_on_every_version_of_python() -> None:
    assert [str(rule) for rule in drawn(3, 46, BOOKIES)] == [
        "cut request read bookie=b3 after=22 count=1",
        "delay response add bookie=127.0.0.1:3181 after=32 count=1 by=792ms",
        "cut request any bookie=b2 after=96 count=1",
    ]
    many = drawn(400, 1, BOOKIES)
    assert {rule.action for rule in many} == set(ACTIONS) and {rule.direction for rule in many} == set(DIRECTIONS)
    assert all(rule.by == BY or (rule.action == "delay" and 0.01 <= rule.by <= 2) for rule in many)


def test_the_first_pass_and_the_next_suffer() -> None:
    faults = Faults([parse("drop request add bookie=b2 after=2 count=2", BOOKIES)])
    assert [faults.due("request", "b2", add(entry)) for entry in range(6)] == [None, None, 0, 0, None, None]
    assert faults.due("request", "b3", add(7)) is None and faults.due("response", "b2", add(7)) is None
    assert faults.acted == [2] and faults.fitted == [6]


def test_the_first_rule_that_is_due_acts_and_all_count() -> None:
    faults = Faults([parse("drop request add after=1", BOOKIES), parse("cut request any count=all", BOOKIES)])
    assert [faults.due("request", "b2", add(entry)) for entry in range(3)] == [1, 0, 1]
    assert faults.fitted == [2 + 1, 3] and faults.acted == [1, 2]


@pytest.mark.parametrize(
    ("condition", "fits", "does_not"),
    [
        ("ledger=7", add(ledger=7), add(ledger=8)),
        ("entry=2..4", add(3), add(5)),
        ("recovery=yes", add(recovery=True), add()),
        ("recovery=no", add(), add(recovery=True)),
    ],
)
def test_conditions_on_adds(condition: str, fits: ObservedMessage, does_not: ObservedMessage) -> None:
    faults = Faults([parse(f"drop request add count=all {condition}", BOOKIES)])
    assert (faults.due("request", "b2", fits), faults.due("request", "b2", does_not)) == (0, None)


def test_conditions_on_reads_and_codes() -> None:
    fencing = Faults([parse("drop request read fence=yes entry=-1", BOOKIES)])
    assert fencing.due("request", "b2", asked(m.ReadEntry(7, -1))) is None
    assert fencing.due("request", "b2", asked(m.ReadEntry(7, 0, True, b"k" * 20))) is None
    assert fencing.due("request", "b2", asked(m.ReadEntry(7, -1, True, b"k" * 20))) == 0
    coded = Faults([parse("drop response read code=NO_ENTRY", BOOKIES)])
    assert coded.due("response", "b2", answered(m.ReadEntryResponse(7, 0, Code.OK, body=b"x" * 40))) is None
    assert coded.due("response", "b2", answered(m.ReadEntryResponse(7, 0, Code.NO_ENTRY))) == 0
