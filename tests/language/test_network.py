"""Networks: every combination of options against a model of lists, and the two published uses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from campaigns import campaign_if
from hypothesis import given
from language.plain import Plain, look, run, ways

from fencepost import (
    FencepostError,
    Message,
    ModelValue,
    Network,
    Protocol,
    constant,
    model_values,
    network,
    state,
)
from fencepost.language.values import NotAValue, canonical


class Ping(Message):
    n: int = 0


class Pong(Message):
    n: int = 0


class Stranger(Message):
    n: int = 0


OPTIONS = ("lossy", "once", "duplicates", "remember", "ordered", "can_be_cut", "timeouts")
KINDS = (Ping, Pong)
NUMBERS = range(4)


def protocol_with(count: int, flags: dict[str, bool]) -> Protocol:
    body = {"nodes": model_values("n", count)}
    body["net"] = network({Ping: (body["nodes"], body["nodes"]), Pong: (body["nodes"], body["nodes"])}, **flags)
    return type("Net", (Protocol,), body)()  # type: ignore[no-any-return]


# -- the model --------------------------------------------------------------------------------------------------------

Ends = tuple[type[Message], int, int]


@dataclass(frozen=True)
class Model:
    """A network as a list of (channel, message) in flight, and sets of lost and processed ones. Ends are numbers."""

    flags: dict[str, bool] = field(compare=False)
    nodes: int = 2
    flying: tuple[tuple[Ends, Message], ...] = ()
    processed: frozenset[tuple[Ends, Message]] = frozenset()
    lost: frozenset[tuple[Ends, Message]] = frozenset()
    cuts: frozenset[frozenset[int]] = frozenset()

    def done(self, items: set[tuple[Ends, Message]]) -> frozenset[tuple[Ends, Message]]:
        return self.processed | items if self.flags["remember"] else self.processed

    def send(self, kind: type[Message], n: int, source: int, dest: int) -> list[Model]:
        item = ((kind, source, dest), kind(n))  # type: ignore[call-arg]
        if self.flags["once"] and (item in self.flying or item in self.processed or item in self.lost):
            return []
        as_lost = replace(self, lost=self.lost | {item}) if self.flags["lossy"] and self.flags["timeouts"] else self
        twice = item in self.flying and not self.flags["duplicates"]
        as_sent = self if twice else replace(self, flying=(*self.flying, item))
        if frozenset({source, dest}) in self.cuts:
            return [as_lost]
        return [as_sent, as_lost] if self.flags["lossy"] else [as_sent]

    def receive(self, kind: type[Message], to: int, source: int | None, only: int | None) -> list[Model]:
        after = []
        for sender in range(self.nodes) if source is None else [source]:
            here = [m for ends, m in self.flying if ends == (kind, sender, to)]
            candidates = here[:1] if self.flags["ordered"] else canonical(set(here))
            for message in candidates:
                if only is None or message.n == only:  # type: ignore[attr-defined]
                    item = ((kind, sender, to), message)
                    left = list(self.flying)
                    left.remove(item)
                    after.append(replace(self, flying=tuple(left), processed=self.done({item})))
        return after

    def lose(self, kind: type[Message], source: int, dest: int) -> list[Model]:
        gone = {item for item in self.flying if item[0] == (kind, source, dest)}
        lost = self.lost | gone if self.flags["lossy"] and self.flags["timeouts"] else self.lost
        return [replace(self, flying=tuple(item for item in self.flying if item not in gone), lost=lost)]

    def forget_lost(self, kind: type[Message], source: int, dest: int) -> list[Model]:
        forgotten = {item for item in self.lost if item[0] == (kind, source, dest)}
        return [replace(self, lost=self.lost - forgotten, processed=self.done(forgotten))]

    def drop(self, one: int, other: int) -> list[Model]:
        gone = [item for item in self.flying if set(item[0][1:]) == {one, other}]
        return [replace(self, flying=tuple(i for i in self.flying if i not in gone), processed=self.done(set(gone)))]

    def cut(self, one: int, other: int) -> list[Model]:
        return [replace(m, cuts=self.cuts | {frozenset({one, other})}) for m in self.drop(one, other)]

    def heal(self, one: int, other: int) -> list[Model]:
        return [replace(self, cuts=self.cuts - {frozenset({one, other})})]

    def key(self) -> Any:
        # Only the order within a channel belongs to the state.
        by_channel: dict[Ends, list[Message]] = {}
        for ends, message in self.flying:
            by_channel.setdefault(ends, []).append(message)
        channels = frozenset((e, tuple(m if self.flags["ordered"] else canonical(m))) for e, m in by_channel.items())
        return channels, self.processed, self.lost, self.cuts

    def seen(self) -> dict[str, Any]:
        """The results of all its queries."""
        asked: dict[str, Any] = {}
        for kind, s, d in itertools.product(KINDS, range(self.nodes), range(self.nodes)):
            here = [m for ends, m in self.flying if ends == (kind, s, d)]
            alone = here if self.flags["ordered"] else canonical(set(here))
            lost = {m for ends, m in self.lost if ends == (kind, s, d)}
            processed = {m for ends, m in self.processed if ends == (kind, s, d)}
            known = [kind(n) in {*here, *lost, *processed} for n in NUMBERS]
            asked[f"{kind.__name__} {s} {d}"] = (tuple(alone), lost, known)
        if self.flags["can_be_cut"]:
            asked |= {
                f"{a} {b}": frozenset({a, b}) not in self.cuts for a in range(self.nodes) for b in range(self.nodes)
            }
        return asked


Operation = tuple[str, tuple[Any, ...]]


def apply(operation: Operation, s: Any) -> None:
    """The same operation on the real network."""
    name, given = operation
    net, nodes = s.net, s.nodes
    if name == "send":
        kind, n, source, dest = given
        net.send(kind(n), nodes[source], nodes[dest])
    elif name == "receive":
        kind, to, source, only = given
        where = None if only is None else lambda m: m.n == only
        got = net.receive(kind, to=nodes[to], source=None if source is None else nodes[source], where=where)
        assert type(got.message) is kind and got.dest == nodes[to] and source in (None, nodes.index(got.source))
    elif name in ("lose", "forget_lost"):
        kind, source, dest = given
        getattr(net, name)(kind, nodes[source], nodes[dest])
    else:
        one, other = given
        getattr(net, name)(nodes[one], nodes[other])


def seen(plain: Plain, model: Model) -> dict[str, Any]:
    def question(s: Any) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        for kind, a, b in itertools.product(KINDS, s.nodes, s.nodes):
            ends = (kind, a, b)
            known = [s.net.is_known(kind(n), a, b) for n in NUMBERS]
            asked[f"{kind.__name__} {a.index} {b.index}"] = (s.net.in_flight(*ends), s.net.lost(*ends), known)
        if model.flags["can_be_cut"]:
            asked |= {f"{a.index} {b.index}": s.net.connected(a, b) for a in s.nodes for b in s.nodes}
        return asked

    return look(plain, question)  # type: ignore[no-any-return]


def step(plain: Plain, model: Model, operation: Operation) -> list[tuple[Plain, Model]]:
    """Both after each run of the operation, in order. They must agree on each."""
    expected: list[Model] = getattr(model, operation[0])(*operation[1])
    got = list(ways(plain, lambda s: apply(operation, s)))
    assert len(got) == len(expected), (operation, model)
    for after, wanted in zip(got, expected, strict=True):
        assert seen(after, wanted) == wanted.seen(), (operation, model)
    return list(zip(got, expected, strict=True))


def operations(count: int, flags: dict[str, bool]) -> list[Operation]:
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    found: list[Operation] = [("send", (Ping, n, a, b)) for n in (0, 1) for a, b in pairs]
    found += [("send", (Pong, 1, a, b)) for a, b in pairs[:1]] + [
        ("send", (Ping, 1, 0, 0)),
        ("receive", (Ping, 0, 0, None)),
    ]
    found += [("receive", (Ping, to, None, None)) for to in range(count)]
    found += [("receive", (Ping, 1, 0, None)), ("receive", (Ping, 1, 0, 1)), ("receive", (Pong, 1, None, 1))]
    found += [(name, (Ping, a, b)) for name in ("lose", "forget_lost") for a, b in pairs]
    found += [("drop", (0, 1))]
    if flags["can_be_cut"]:
        found += [(name, ends) for name in ("cut", "heal") for ends in pairs[:2]]
    return found


EVERY_WAY = [dict(zip(OPTIONS, on, strict=True)) for on in itertools.product((False, True), repeat=len(OPTIONS))]
# which matter only on a lossy network
EVERY_WAY = [flags for flags in EVERY_WAY if flags["lossy"] or flags["timeouts"]]


@pytest.mark.parametrize(
    "flags",
    campaign_if(lambda flags: 1 < sum(flags.values()) < len(flags), EVERY_WAY),
    ids=lambda flags: "+".join(n for n, on in flags.items() if on),
)
def test_every_operation_in_every_nearby_state(flags: dict[str, bool]) -> None:
    protocol = protocol_with(2, flags)
    todo = [(Plain(protocol), Model(flags))]
    known = {Model(flags).key()}
    states: dict[Any, Any] = {}
    for plain, model in todo:
        for operation in operations(2, flags):
            for after, wanted in step(plain, model, operation):
                content = frozenset(
                    (path, held) for path, held in after.held.items() if held != plain_default(protocol, path)
                )
                # States are equal exactly when the models are: the same messages have one representation.
                assert states.setdefault(content, wanted.key()) == wanted.key()
                if wanted.key() not in known and len(todo) < 16:
                    known.add(wanted.key())
                    todo.append((after, wanted))
    assert len(set(states.values())) == len(states)


def plain_default(protocol: Protocol, path: tuple[Any, ...]) -> Any:
    defaults = {"connected": True, "lost": frozenset(), "processed": False}
    return defaults.get(path[1], protocol.shapes["net"].empty)  # type: ignore[attr-defined]


@given(st.data())
def test_long_scripts_among_three(data: st.DataObject) -> None:
    flags = {name: data.draw(st.booleans(), label=name) for name in OPTIONS}
    pairs = [(a, b) for a in range(3) for b in range(3)]
    kinds, ends, n = st.sampled_from(KINDS), st.sampled_from(pairs), st.integers(0, 1)
    choices = [
        st.tuples(st.just("send"), st.builds(lambda k, i, e: (k, i, *e), kinds, n, ends)),
        st.tuples(
            st.just("receive"),
            st.builds(
                lambda k, e, one, i: (k, e[1], e[0] if one else None, i), kinds, ends, st.booleans(), st.none() | n
            ),
        ),
        st.tuples(st.sampled_from(["lose", "forget_lost"]), st.builds(lambda k, e: (k, *e), kinds, ends)),
    ]
    if flags["can_be_cut"]:
        two = st.sampled_from([(a, b) for a, b in pairs if a != b])
        choices.append(st.tuples(st.sampled_from(["cut", "heal", "drop"]), two))
    plain, model = Plain(protocol_with(3, flags)), Model(flags, nodes=3)
    for operation in data.draw(st.lists(st.one_of(choices), max_size=15), label="script"):
        after = step(plain, model, operation)
        if after:
            plain, model = after[data.draw(st.integers(0, len(after) - 1), label="outcome")]


# -- the two uses -----------------------------------------------------------------------------------------------------


def nodes_of(plain: Plain) -> tuple[ModelValue, ...]:
    return plain.protocol.nodes  # type: ignore[attr-defined, no-any-return]


def flags(*on: str) -> dict[str, bool]:
    return {name: name in on for name in OPTIONS} | {"timeouts": True}


BOOKKEEPER = flags("lossy", "once", "remember")


def test_bookkeeper_a_message_has_four_lives() -> None:
    """Unknown, deliverable, lost, processed: the published delivery counts (absent, 1, -1, 0). Never sent again."""
    start = Plain(protocol_with(2, BOOKKEEPER))
    a, b = nodes_of(start)

    def life(plain: Plain) -> str:
        def question(s: Any) -> str:
            states = [
                ("deliverable", Ping(1) in s.net.in_flight(Ping, a, b)),
                ("lost", Ping(1) in s.net.lost(Ping, a, b)),
            ]
            known = s.net.is_known(Ping(1), a, b)
            here = [name for name, is_so in states if is_so]
            assert len(here) <= 1 and (known or not here)
            return here[0] if here else "processed" if known else "unknown"

        return str(look(plain, question))

    moves: dict[str, Callable[[Any], Any]] = {
        "send": lambda s: s.net.send(Ping(1), a, b),
        "receive": lambda s: s.net.receive(Ping, to=b),
        "lose": lambda s: s.net.lose(Ping, a, b),
        "time out": lambda s: s.net.forget_lost(Ping, a, b),
    }
    found: dict[tuple[str, str], list[str]] = {}
    todo, known = [start], {life(start)}
    for plain in todo:
        for name, move in moves.items():
            after = list(ways(plain, move))
            found[life(plain), name] = [life(p) for p in after]
            for p in after:
                if life(p) not in known:
                    known.add(life(p))
                    todo.append(p)
    assert found == {
        ("unknown", "send"): ["deliverable", "lost"],
        ("unknown", "receive"): [],
        ("unknown", "lose"): ["unknown"],
        ("unknown", "time out"): ["unknown"],
        ("deliverable", "send"): [],
        ("deliverable", "receive"): ["processed"],
        ("deliverable", "lose"): ["lost"],
        ("deliverable", "time out"): ["deliverable"],
        ("lost", "send"): [],
        ("lost", "receive"): [],
        ("lost", "lose"): ["lost"],
        ("lost", "time out"): ["processed"],
        ("processed", "send"): [],
        ("processed", "receive"): [],
        ("processed", "lose"): ["processed"],
        ("processed", "time out"): ["processed"],
    }


@pytest.mark.parametrize("count", [1, 2, 3])
def test_bookkeeper_sending_to_an_ensemble_loses_each_message_independently(count: int) -> None:
    start = Plain(protocol_with(count + 1, BOOKKEEPER))
    writer, *ensemble = nodes_of(start)
    after = list(ways(start, lambda s: s.net.send_all([(Ping(7), b) for b in reversed(ensemble)], writer)))
    fates = [look(p, lambda s: tuple(len(s.net.in_flight(Ping, writer, b)) for b in ensemble)) for p in after]
    assert len(fates) == 2**count and set(fates) == set(itertools.product((0, 1), repeat=count))
    assert fates[0] == (1,) * count and fates[-1] == (0,) * count
    # One of them is known already, so the action that would send it again is not enabled.
    assert list(ways(after[-1], lambda s: s.net.send_all([(Ping(7), b) for b in ensemble], writer))) == []


def test_bookkeeper_a_timeout_touches_one_channel_and_is_told() -> None:
    start = Plain(protocol_with(3, BOOKKEEPER))
    a, b, c = nodes_of(start)
    lost = list(ways(start, lambda s: s.net.send_all([(Ping(1), b), (Ping(1), c)], a)))[-1]
    after = run(lost, lambda s: s.net.forget_lost(Ping, a, b))
    assert look(after, lambda s: (s.net.lost(Ping, a, b), s.net.lost(Ping, a, c))) == (frozenset(), {Ping(1)})
    touched = {"net.lost.Ping.n1.n2", "net.processed.n1.n2.Ping(n=1)"}
    assert set(after.names("write")) == touched and set(after.names("read")) <= touched
    assert [(e.kind, e.source, e.dest, e.text) for e in after.events] == [("timeout", a, b, "Ping(n=1)")]
    assert run(after, lambda s: s.net.forget_lost(Ping, a, b)).events == []


KRAFT = flags("can_be_cut")


def test_a_message_that_is_lost_silently_leaves_no_trace() -> None:
    start = Plain(protocol_with(2, flags("lossy") | {"timeouts": False}))
    a, b = nodes_of(start)
    delivered, lost = ways(start, lambda s: s.net.send(Ping(1), a, b))
    assert lost.held == start.held and [e.lost for e in lost.events] == [True]
    assert look(delivered, lambda s: s.net.in_flight(Ping, a, b)) == (Ping(1),)


def test_kraft_a_message_can_be_sent_again_once_it_was_received() -> None:
    plain = Plain(protocol_with(2, KRAFT))
    a, b = nodes_of(plain)
    for _ in range(3):
        plain = run(plain, lambda s: s.net.send(Ping(1), a, b))
        plain = run(plain, lambda s: s.net.send(Ping(1), a, b))  # already in flight: no change
        assert look(plain, lambda s: s.net.in_flight(Ping, a, b)) == (Ping(1),)
        plain = run(plain, lambda s: s.net.receive(Ping, to=b))
        assert not look(plain, lambda s: s.net.is_known(Ping(1), a, b))


def send_ping(s: Any, source: ModelValue, dest: ModelValue) -> None:
    s.net.send(Ping(1), source, dest)


def test_kraft_a_cut_connection_loses_what_is_in_flight_and_what_is_sent() -> None:
    plain = Plain(protocol_with(3, KRAFT))
    a, b, c = nodes_of(plain)
    for source, dest in ((a, b), (b, a), (a, c)):
        plain = run(plain, partial(send_ping, source=source, dest=dest))
    plain = run(plain, lambda s: s.net.cut(b, a))
    assert look(plain,
    lambda s: (s.net.connected(a, b), s.net.connected(b, a), s.net.connected(a, c), s.net.connected(a, a))) == (
        False, False, True, True,
    )  # fmt: skip
    assert look(plain, lambda s: [s.net.in_flight(Ping, *ends) for ends in ((a, b), (b, a), (a, c))]) == [
        (),
        (),
        (Ping(1),),
    ]
    sent = run(plain, lambda s: s.net.send(Ping(2), a, b))
    assert [(e.kind, e.lost) for e in sent.events] == [("send", True)]
    assert sent.held == plain.held, "a message sent over a cut connection leaves no trace"
    assert list(ways(sent, lambda s: s.net.receive(Ping, to=b))) == []
    healed = run(sent, lambda s: s.net.heal(a, b))
    assert look(healed, lambda s: s.net.connected(a, b))
    again = run(healed, lambda s: s.net.send(Ping(2), a, b))
    assert look(again, lambda s: s.net.in_flight(Ping, a, b)) == (Ping(2),)


def test_a_reply_goes_back_where_the_message_came_from() -> None:
    plain = Plain(protocol_with(3, flags()))
    a, b, c = nodes_of(plain)
    plain = run(plain, lambda s: (s.net.send(Ping(1), a, b), s.net.send(Ping(1), c, b)))
    after = list(ways(plain, lambda s: s.net.reply(s.net.receive(Ping, to=b), Pong(1))))
    assert [look(p, lambda s: [len(s.net.in_flight(Pong, b, n)) for n in (a, c)]) for p in after] == [[1, 0], [0, 1]]


# -- topics -----------------------------------------------------------------------------------------------------------


class Answer(Message):
    topic: ClassVar[str] = "question"

    question: int
    n: int = 0


class Untold(Message):
    """The same without a topic."""

    question: int
    n: int = 0


def asked_and_untold(count: int, flags: dict[str, bool]) -> Protocol:
    body = {"nodes": model_values("n", count)}
    body["net"] = network(dict.fromkeys((Answer, Untold), (body["nodes"], body["nodes"])), **flags)
    return type("Net", (Protocol,), body)()  # type: ignore[no-any-return]


def held_by_kind(plain: Plain) -> tuple[dict[Any, str], dict[Any, str]]:
    """The contents of the channels of both kinds, for comparison."""
    found: tuple[dict[Any, str], dict[Any, str]] = ({}, {})
    for ends, channel in look(plain, lambda s: s.net.__value__()).items():
        if ends[0] in ("Answer", "Untold"):
            found[ends[0] == "Untold"][ends[1:]] = str(channel).replace("Untold", "Answer")
    return found


@given(st.data())
def test_a_topic_changes_nothing_but_the_parts(data: st.DataObject) -> None:
    """Every operation has the same result for messages with a topic as without."""
    flags = {name: data.draw(st.booleans(), label=name) for name in OPTIONS if name != "ordered"}
    plain = Plain(asked_and_untold(2, flags))
    nodes = nodes_of(plain)

    def twice(body: Callable[[Any, type[Message], dict[str, Any], Callable[[Any], bool]], Any]) -> None:
        nonlocal plain
        q = data.draw(st.integers(0, 1), label="question")
        told = list(ways(plain, lambda s: body(s, Answer, {"topic": q}, lambda m: True)))
        both = [list(ways(one, lambda s: body(s, Untold, {}, lambda m: m.question == q))) for one in told]
        untold = list(ways(plain, lambda s: body(s, Untold, {}, lambda m: m.question == q)))
        assert len(told) == len(untold)
        if told:
            i = data.draw(st.integers(0, len(told) - 1), label="outcome")
            plain = both[i][i]
            assert held_by_kind(plain)[0] == held_by_kind(plain)[1]

    for name in data.draw(
        st.lists(st.sampled_from(["send", "send", "receive", "forget", "lose", "drop", "cut", "heal"]), max_size=12)
    ):
        a, b = data.draw(st.sampled_from([(0, 1), (1, 0), (0, 0)]), label="ends")
        n = data.draw(st.integers(0, 1), label="n")
        if name == "send":
            q = data.draw(st.integers(0, 1), label="question sent")
            twice(lambda s, kind, topic, where: s.net.send(kind(q, n), nodes[a], nodes[b]))  # type: ignore[call-arg]
        elif name == "receive":
            twice(lambda s, kind, topic, where: s.net.receive(kind, to=nodes[b], source=nodes[a], where=where, **topic))
        elif name == "forget":
            twice(lambda s, kind, topic, where: s.net.forget_lost(kind, nodes[a], nodes[b]))
        elif flags["can_be_cut"] and name == "lose":
            twice(lambda s, kind, topic, where: s.net.lose(kind, nodes[a], nodes[b]))
        elif flags["can_be_cut"]:
            plain = run(plain, lambda s: getattr(s.net, name)(nodes[0], nodes[1]))
            assert held_by_kind(plain)[0] == held_by_kind(plain)[1]


def test_only_one_topic_is_read() -> None:
    plain = Plain(asked_and_untold(2, flags()))
    a, b = nodes_of(plain)
    for q in (0, 1):
        plain = run(plain, lambda s: s.net.send(Answer(q), a, b))
    received = run(plain, lambda s: s.net.receive(Answer, to=b, source=a, topic=1))
    assert set(received.names("read")) == set(received.names("write")) == {"net.Answer.n1.n2.1"}
    assert look(received, lambda s: [s.net.in_flight(Answer, a, b, topic=q) for q in (0, 1)]) == [(Answer(0),), ()]


def test_a_topic_is_told_exactly_where_there_is_one() -> None:
    plain = Plain(asked_and_untold(2, flags()))
    a, b = nodes_of(plain)
    wrong: dict[str, Callable[[Any], Any]] = {
        "Answer has a topic, question: say which, topic=...": lambda s: s.net.receive(Answer, to=b),
        "Untold has no topic": lambda s: s.net.in_flight(Untold, a, b, topic=1),
        "Answer has a topic: all of it is only found on a network that can be cut": lambda s: s.net.drop(a, b),
    }
    for message, body in wrong.items():
        with pytest.raises(FencepostError, match=message):
            list(ways(plain, body))


# -- reads, events and errors ------------------------------------------------------------------------------------------


def test_only_the_channels_that_are_named_are_read() -> None:
    plain = Plain(protocol_with(3, flags("once", "remember")))
    a, b, c = nodes_of(plain)
    sent = run(plain, lambda s: s.net.send(Ping(1), a, b))
    channel, message = "net.Ping.n1.n2", "net.processed.n1.n2.Ping(n=1)"
    assert sent.log == [("read", channel), ("read", message), ("write", channel)]
    plain = run(plain, lambda s: s.net.send(Ping(1), c, b))
    received = list(ways(plain, lambda s: s.net.receive(Ping, to=b)))
    assert [p.names("choose") for p in received] == [[[a, b, c]]], (
        "the sender is chosen first, then only its channel is read"
    )
    assert set(received[0].names("read")) == {"net.Ping.n3.n2"}


def test_what_happens_is_told() -> None:
    plain = Plain(protocol_with(2, flags("lossy")))
    a, b = nodes_of(plain)
    sent = list(ways(plain, lambda s: s.net.send(Ping(1), a, b)))
    assert [[(e.kind, e.source, e.dest, e.text, e.lost) for e in p.events] for p in sent] == [
        [("send", a, b, "Ping(n=1)", False)],
        [("send", a, b, "Ping(n=1)", True)],
    ]
    received = run(sent[0], lambda s: s.net.receive(Ping, to=b))
    assert [(e.kind, e.source, e.dest, e.text) for e in received.events] == [("receive", a, b, "Ping(n=1)")]


def test_options_and_ends_can_be_constants_or_functions_of_the_protocol() -> None:
    class Net(Protocol):
        lossy: bool = constant(False)
        nodes: tuple[ModelValue, ...] = model_values("n", 2)
        net: Network = network({Ping: (nodes, nodes)}, lossy=lossy)

    class Computed(Net):
        net: Network = network({Ping: (lambda p: p.nodes[:1], lambda p: p.nodes[1:])}, lossy=lambda p: p.lossy)

    for lossy in (False, True):
        for kind in (Net, Computed):
            plain = Plain(kind(lossy=lossy))
            a, b = nodes_of(plain)
            assert len(list(ways(plain, lambda s: s.net.send(Ping(1), a, b)))) == 1 + lossy
    with pytest.raises(FencepostError, match="Ping has no channel from n2 to n1"):
        run(Plain(Computed()), lambda s: s.net.send(Ping(1), *reversed(s.nodes)))


def test_everybody_can_talk_on_a_network_that_can_not_be_cut() -> None:
    plain = Plain(protocol_with(2, flags()))
    a, b = nodes_of(plain)
    assert look(plain, lambda s: s.net.connected(a, b))
    with pytest.raises(FencepostError, match="net was not declared with can_be_cut=True"):
        run(plain, lambda s: s.net.cut(a, b))


def test_an_end_can_be_several_constants() -> None:
    class Net(Protocol):
        clients: tuple[ModelValue, ...] = model_values("c", 2)
        readers: tuple[ModelValue, ...] = model_values("r", 0)
        nodes: tuple[ModelValue, ...] = model_values("n", 1)
        net: Network = network({Ping: ((clients, readers), nodes), Pong: (nodes, (clients, readers))})

    def channels(net: Protocol) -> list[tuple[str, str]]:
        return [(slot.path[-2].name, slot.path[-1].name) for slot in net.shapes["net"].slots(("net",))]

    assert channels(Net()) == [("c1", "n1"), ("c2", "n1"), ("n1", "c1"), ("n1", "c2")]
    assert ("r1", "n1") in channels(Net(readers=1))
    plain = Plain(Net(readers=1))
    assert run(plain, lambda s: s.net.send(Ping(1), s.readers[0], s.nodes[0]))


def test_a_network_as_a_value_is_all_of_it() -> None:
    plain = Plain(protocol_with(2, flags("can_be_cut")))
    a, b = nodes_of(plain)

    def value(p: Plain) -> Any:
        return look(p, lambda s: s.net.__value__())

    assert value(plain) == {}
    sent = run(plain, lambda s: s.net.send(Ping(1), b, a))
    assert list(value(sent)) == [("Ping", b, a)] and value(sent) != value(plain)
    alone = run(plain, lambda s: s.net.send(Ping(1), a, a))
    assert list(value(alone)) == [("Ping", a, a)]
    cut = run(plain, lambda s: s.net.cut(b, a))
    assert value(cut) == {("cut", a, b): True}
    assert value(run(cut, lambda s: s.net.heal(a, b))) == {}
    assert look(plain, lambda s: s.net) == look(plain, lambda s: s.net)
    assert look(plain, lambda s: s.net) != look(cut, lambda s: s.net)


class Roles(Protocol):
    clients: tuple[ModelValue, ...] = model_values("c", 1)
    servers: tuple[ModelValue, ...] = model_values("s", 1)
    count: int = state(0)
    net: Network = network({Ping: (clients, servers)})


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (
            lambda s: s.net.send(Ping(1), s.servers[0], s.clients[0]),
            FencepostError,
            "Ping has no channel from s1 to c1",
        ),
        (
            lambda s: s.net.send(Stranger(1), s.clients[0], s.servers[0]),
            FencepostError,
            "Stranger is not a kind of message of net",
        ),
        (
            lambda s: s.net.receive(Stranger, to=s.servers[0]),
            FencepostError,
            "Stranger is not a kind of message of net",
        ),
        (lambda s: s.net.receive(Ping, to=s.clients[0]), FencepostError, "Ping has no channel to c1"),
        (lambda s: s.net.cut(s.clients[0], s.servers[0]), FencepostError, "net was not declared with can_be_cut=True"),
        (lambda s: setattr(s, "net", {}), NotAValue, "a network cannot be assigned; send and receive messages"),
        (
            lambda s: s.net.send(Ping([1]), s.clients[0], s.servers[0]),  # type: ignore[arg-type]
            NotAValue,
            "a list, which is mutable; use a tuple",
        ),
    ],
)
def test_mistakes_are_named(body: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        list(ways(Plain(Roles()), body))


def test_topics_that_python_takes_for_equal_are_two() -> None:
    body = {"nodes": model_values("n", 2)}
    body["net"] = network({Answer: (body["nodes"], body["nodes"])})
    shape = type("Net", (Protocol,), body)().shapes["net"]
    one, other = shape.routes[Answer][0]
    slots = [shape.in_flight(("net",), Answer, one, other, topic) for topic in (1, True, "1", (1,), (True,))]
    assert len({id(slot) for slot in slots}) == 5
    assert shape.in_flight(("net",), Answer, one, other, 1) is slots[0]
