"""Expressions along a behaviour, against Python evaluated on the states themselves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

import pytest
from report.behaviours import Post, follow, wander
from report.small_ledger import SmallLedger, Status

from fencepost import Map, ModelValue, OptionError, Protocol, Trace, action, constant, invariant, require, state
from fencepost.behaviours import Evaluated, Expression, evaluate
from fencepost.language.values import Set
from fencepost.semantics import Stepper

B1, B2 = ModelValue("b1", 0), ModelValue("b2", 1)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return follow(
        SmallLedger(),
        [
            "recoverer_starts(w=w2)",
            "writer_adds_the_entry",
            "bookie_is_fenced(b=b1)",
            "bookie_adds_the_entry(b=b2)",
            "writer_hears_of_an_add(w=w1)",
        ],
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("committed", lambda s: s["committed"]),
        ("bookie[b1].fenced", lambda s: s["bookie"][B1].fenced),
        ("bookie", lambda s: s["bookie"]),
        ("recovery", lambda s: s["recovery"]),
        ("acks", lambda s: s["acks"]),
        ("network", lambda s: s["network"]),
        ("meta.status is Status.OPEN", lambda s: s["meta"].status is Status.OPEN),
        ("[b for b in bookies if bookie[b].entries]", lambda s: tuple(b for b in (B1, B2) if s["bookie"][b].entries)),
        (
            "{b: len(bookie[b].entries) for b in bookies}",
            lambda s: Map({b: len(s["bookie"][b].entries) for b in (B1, B2)}),
        ),
        ("{b2} & {b for b in bookies}", lambda s: Set({B2})),
        (
            "sum(1 for b in bookie if bookie[b].fenced) >= ack_quorum",
            lambda s: any(x.fenced for x in s["bookie"].values()),
        ),
        ("self.no_committed_entry_is_lost()", lambda s: True),
        ("(lambda n: n + committed)(1)", lambda s: 1 + s["committed"]),
        ("(x := committed) + x", lambda s: 2 * s["committed"]),
        ("  committed\n + 1 ", lambda s: s["committed"] + 1),
        ("range(committed + 1)", lambda s: tuple(range(s["committed"] + 1))),
        (
            "AddEntry(1) in network.in_flight(AddEntry, writer[0], b1)",
            lambda s: ("AddEntry", ModelValue("w1"), B1) in s["network"],
        ),
    ],
)
def test_the_value_in_every_state(trace: Trace, expression: str, expected: Callable[[Mapping[str, Any]], Any]) -> None:
    wanted = [Evaluated(expected(state.variables())) for state in trace.states]
    found = evaluate(expression, trace)
    assert found == wanted
    assert [type(e.value) for e in found] == [type(e.value) for e in wanted]


def test_every_variable_of_random_behaviours() -> None:
    for protocol in (SmallLedger(lossy=True), Post()):
        walk = wander(protocol, seed=1)
        for name in protocol.shapes:
            assert [e.value for e in evaluate(name, walk)] == [state.variables()[name] for state in walk.states]


def test_an_error_in_one_state_is_told_there(trace: Trace) -> None:
    found = evaluate("acks[1]", trace)
    assert [e.error is None for e in found] == [False, False, True, True, True, True]
    assert str(found[0]) == "(KeyError: '1 is not in acks')"
    assert str(found[-1]) == "{b2}"
    assert evaluate("1 // committed", trace)[0].error == "ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("network.send(AddEntry(9), writer[0], b1)", "an expression cannot use send of a Network"),
        ("self.bookie_is_fenced(b1)", "one_of() can only be asked inside an action"),
        ("[0 for bookie[b1].fenced in [True]]", None),
        ("bookie[b1].__setattr__('fenced', True)", None),
        ("(b for b in bookies).gi_frame", "an expression cannot use gi_frame of a generator"),
        ("object", None),
        ("(b for b in bookies)", "not a value: a generator"),
        ("len", "not a value"),
        ("require(False)", "require(...) was not satisfied"),
    ],
)
def test_an_expression_only_looks(trace: Trace, expression: str, error: str | None) -> None:
    if error is None:
        with pytest.raises(OptionError):
            evaluate(expression, trace)
        return
    before = [state.variables() for state in trace.states]
    for found in evaluate(expression, trace):
        assert found.error is not None
        assert found.error.startswith(error)
    assert [state.variables() for state in trace.states] == before


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("", "an expression is needed, for example: meta"),
        ("   ", "an expression is needed, for example: meta"),
        ("committed +", "cannot be read at column 12: something is missing at its end"),
        ("  committed 1", "cannot be read at column 13: "),
        ("a = 3", "cannot be read at column 3: "),
        ("import os", "cannot be read at column 1: "),
        ("bookee[b1]", "something unknown at column 1, bookee: did you mean bookie?"),
        ("1 + open('x')", "something unknown at column 5, open"),
        ("  1 + eval('1')", "something unknown at column 7, eval"),
        ("__import__('os')", "reaches into Python itself at column 1, __import__"),
        ("enum", "something unknown at column 1, enum"),
        ("(" * 300 + ")" * 300, "cannot be read at column "),
    ],
)
def test_what_can_not_be_evaluated_names_the_column(trace: Trace, expression: str, told: str) -> None:
    with pytest.raises(OptionError) as raised:
        evaluate(expression, trace)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


ESCAPES = [
    # Expressions that read or change the protocol or its parts.
    "self.constants.update(limit=99)",
    "self.constants.__setitem__('ack_quorum', 2)",
    "self.shapes",
    "self.shapes.clear()",
    "self.fairness",
    "self.declared('action')",
    "self.bound_to(None)",
    "self._cursor",
    "self._constants.update(ack_quorum=2)",
    "network._shape",
    "bookie._cursor.state",
    "bookie[b1]._shape.record",
    "bookie[b1]._shape.parts.clear()",
    "network.forget_lost(AddEntry, w1, b1)",
    "(bookie := 3) and [self.bookie for self.bookie in [1]]",
    # Formatting text reads attributes, past any filter.
    "'{0.__class__}'.format(self)",
    "'{x.constants}'.format_map({'x': self})",
    "str.format('{0.__class__.__mro__}', self)",
    "f'{self.__class__}'",
    "f'{open}'",
    "'%s' % (self,)",
    "'%1000000000d' % 1",
    "format(self, '')",
    # Classes.
    "type('X', (), {'__init_subclass__': 1})",
    "type(self)",
    "type(self).mro()",
    "Status.__class__('X', (), {})",
    "Status.mro()",
    "Status.__subclasses__()",
    "Entry.__init__.__globals__",
    "Entry.__init_subclass__()",
    "object.__subclasses__()",
    "str.mro()",
    "().__class__.__base__",
    "getattr(self, '__class__')",
    "hasattr(self, 'x')",
    "setattr(self, 'committed', 3)",
    "vars(self)",
    "dir()",
    # Frames and functions.
    "(lambda: 0).__globals__",
    "(lambda: 0).func_globals",
    "(lambda: 0).__code__.co_consts",
    "self.no_committed_entry_is_lost.__func__.__globals__",
    "self.no_committed_entry_is_lost.__self__.__dict__",
    "(x for x in [1]).gi_frame.f_back.f_globals",
    "[g.gi_frame.f_back for g in [(x for x in [1])]]",
    "(lambda f=(lambda: 0).__globals__: f)()",
    "[x.__class__ for x in [self]]",
    "{x: y.__dict__ for x, y in [(1, self)]}",
    "(x := self).__class__",
    "(yield 1)",
    "(await self)",
    "[x async for x in self]",
    "require.__globals__",
    "len.__self__",
    "next.__self__.eval('1')",
    "__builtins__",
    "(lambda __class__: __class__)(1)",
    "dict(__class__=1)",
    "map(eval, ['1'])",
    "sorted(['1'], key=exec)",
    "max([self], key=lambda s: s.bound_to)",
    "check(self)",
    "open('/etc/passwd')",
    "import_module('os')",
    "breakpoint()",
    # Too large.
    "9 ** 9 ** 9",
    "pow(9, 9 ** 9)",
    "1 << 10 ** 9",
    "'x' * 10 ** 10",
    "10 ** 10 * 'x'",
    "[0] * 10 ** 10",
    "bytes(10 ** 10)",
    "list(range(10 ** 10))",
    "sum(range(0, -10 ** 10, -1))",
    "(lambda x: x * x)((lambda x: x * x)((lambda x: x * x)((lambda x: x * x)(10 ** 20_000))))",
    "(lambda f: f(f))(lambda f: f(f))",
    "(lambda d: d(d, 'x'))(lambda d, s: d(d, s + s))",
    "not " * 200 + "True",
    "round(1, -10 ** 9)",
    "10 ** 5_000",
    "-" * 150 + "1",
    "1" + " + 1" * 5_000,
    "[" * 5_000,
    "9" * 5_000,
]


@pytest.mark.parametrize("expression", ESCAPES, ids=lambda text: text[:40])
def test_what_leads_out_of_the_state_is_refused_in_one_line(trace: Trace, expression: str) -> None:
    try:
        found = evaluate(expression, trace)[-1].error
    except OptionError as error:
        found = str(error)
    assert found
    assert "\n" not in found
    assert len(found) < 300


class Leaky(Protocol):
    """It has a mutable attribute outside its state, and returns it."""

    limit: int = constant(2)
    count: int = state(0)
    seen: ClassVar[list[int]] = [1, 2]
    table: ClassVar[dict[str, list[int]]] = {"a": [1]}
    remove = shutil.rmtree
    system = os.system

    @action
    def tick(self) -> None:
        require(self.count < 5)
        self.count += 1

    @invariant
    def within_the_limit(self) -> bool:
        return self.count <= self.limit

    def handed(self) -> list[int]:
        return self.seen

    def module(self) -> Any:
        return os

    def function(self) -> Any:
        return os.system

    @classmethod
    def more(cls) -> int:
        return 3


SHARED = {"numbers": [1, 2]}


@cache
def cached(number: int) -> int:
    return number + 1


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("self.seen", (1, 2)),
        ("self.table['a'][0] + sum(self.seen)", 4),
        ("SHARED['numbers']", (1, 2)),
        ("self.handed()", (1, 2)),
        ("self.constants['limit'] + len(self.constants)", 3),
        ("self.more() + cached(1)", 5),
        ("[*map(self.constants.get, ['limit'])]", (2,)),
        ("self.count == count and not self.within_the_limit() or 3", 3),
    ],
)
def test_what_an_author_holds_can_be_read(expression: str, expected: Any) -> None:
    assert Expression(expression, Leaky()).at(Stepper(Leaky()).initial_states()[0]) == Evaluated(expected)


@pytest.mark.parametrize(
    "expression",
    [
        "self.constants.update(limit=99)",
        "self.seen.append(3)",
        "self.seen.clear()",
        "self.handed().append(3)",
        "self.table.clear()",
        "self.table['a'].append(2)",
        "SHARED['numbers'].append(3)",
        "SHARED.clear()",
        "self.remove('/nowhere')",
        "self.system('true')",
        "self.module().system('true')",
        "self.module().environ",
        "self.function()('true')",
        "[*map(self.function(), ['true'])]",
        "max(['true'], key=self.function())",
        "self.shapes.clear()",
        "cached.cache_clear()",
        "self.tick()",
    ],
)
def test_what_an_author_holds_can_not_be_changed(expression: str) -> None:
    protocol = Leaky()
    cached(1)
    found = Expression(expression, protocol).at(Stepper(protocol).initial_states()[0])
    assert found.error is not None
    assert protocol.limit == 2
    assert (protocol.seen, protocol.table, SHARED) == ([1, 2], {"a": [1]}, {"numbers": [1, 2]})
    assert protocol.shapes
    assert cached.cache_info().currsize


def test_the_constants_of_a_protocol_can_not_be_changed() -> None:
    with pytest.raises(TypeError):
        Leaky().constants["limit"] = 99  # type: ignore[index]
    with pytest.raises(TypeError):
        Leaky().shapes["count"] = Leaky().shapes["count"]  # type: ignore[index]
