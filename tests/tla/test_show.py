"""States as TLC prints them. What is expected is what a run of TLC printed."""

from __future__ import annotations

from fencepost.tla import order, show
from fencepost.tla.values import EMPTY, Sequence, Set, function, record


def numbers(count: int) -> Sequence:
    return Sequence([100001 + each for each in range(count)])


EXPECTED = """\
/\\ x = [ log |->
      [ server1 |->
            << 100001,
               100002,
               100003,
               100004,
               100005,
               100006,
               100007,
               100008,
               100009 >>,
        server2 |-> <<100001>> ],
  messages |->
      { [ type |-> "RequestVote",
          term |-> 1,
          src |-> "server1",
          entries |-> <<100001, 100002, 100003, 100004>> ],
        [ type |-> "RequestVote",
          term |-> 2,
          src |-> "server1",
          entries |-> <<100001, 100002, 100003, 100004>> ] },
  f |->
      ( 1000005 :> 5 @@
        1000006 :> 6 @@
        1000007 :> 7 @@
        1000008 :> 8 @@
        1000009 :> 9 @@
        1000010 :> 10 ) ]
/\\ y = << [ a |-> <<100001, 100002, 100003, 100004, 100005, 100006, 100007>>,
     bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb |->
         <<100001, 100002, 100003, 100004, 100005, 100006>> ],
   {},
   <<>>,
   "short",
   ( << 1,
        << 100001,
           100002,
           100003,
           100004,
           100005,
           100006,
           100007,
           100008,
           100009,
           100010,
           100011,
           100012 >> >> :>
         TRUE @@
     <<2, <<100001, 100002, 100003>>>> :> <<2, <<100001, 100002, 100003>>>> ) >>"""

NAMES = "server1 server2 log type term src entries messages q f a b"


def test_a_state_is_printed_as_tlc_prints_it() -> None:
    order.use(NAMES.split())
    message = [record(type="RequestVote", term=each, src="server1", entries=numbers(4)) for each in (2, 1)]
    x = record(
        f=function({1000000 + each: each for each in range(5, 11)}),
        messages=Set(message),
        log=record(server1=numbers(9), server2=numbers(1)),
    )
    wide, narrow = Sequence([1, numbers(12)]), Sequence([2, numbers(3)])
    records = function({"a": numbers(7), "b" * 46: numbers(6)})
    y = Sequence([records, Set(), EMPTY, "short", function({narrow: narrow, wide: True})])
    assert show.state([("x", x), ("y", y)]) == EXPECTED


def test_a_state_of_one_variable_has_no_bullet() -> None:
    assert show.state([("x", Set([2, 1]))]) == "x = {1, 2}"
