"""Traces that are held to specifications in TLA+."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.main import main
from fencepost.errors import HOLDS, NOT_A_PROTOCOL, PROTOCOL_RAISED, SAFETY_VIOLATED, WRONG_OPTIONS
from fencepost.tla.held import Held
from fencepost.tla.replaying import Alike
from fencepost.tla.values import Sequence, Set, function
from fencepost.traces import RunsFile
from fencepost.traces.validation import Conformance, Event, Step, registry
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

MAILBOX = r"""
------------------------------ MODULE Mailbox ------------------------------
EXTENDS Naturals, Sequences
CONSTANTS Node, Nil
VARIABLES messages, log, leader

Init == messages = {} /\ log = [n \in Node |-> <<>>] /\ leader \in Node \cup {Nil}

Send(n, m) ==
    \E value \in 1..3 :
        /\ messages' = messages \cup {[from |-> n, to |-> m, value |-> value]}
        /\ UNCHANGED <<log, leader>>

Receive(message) ==
    /\ leader \in {Nil, message.to}
    /\ messages' = messages \ {message}
    /\ log' = [log EXCEPT ![message.to] = Append(@, message.value)]
    /\ leader' = message.to

DropMessage == \E message \in messages : messages' = messages \ {message} /\ UNCHANGED <<log, leader>>

Resign(n) == leader = n /\ leader' = Nil /\ UNCHANGED <<messages, log>>

Next ==
    \/ \E n, m \in Node : Send(n, m)
    \/ \E message \in messages : Receive(message)
    \/ DropMessage
    \/ \E n \in Node : Resign(n)
    \/ \E n \in Node : log[n] # <<>> /\ log' = [log EXCEPT ![n] = Tail(@)] /\ UNCHANGED <<messages, leader>>

Spec == Init /\ [][Next]_<<messages, log, leader>>
=============================================================================
"""
CONFIGURATION = "SPECIFICATION Spec\nCONSTANTS\n  Node = {a, b}\n  Nil = Nil\n"

CONFORMANCE = """
from fencepost.traces.validation import Conformance, Step


class Mailbox(Conformance):
    name = "mailbox"
    protocol = "Mailbox.tla"

    def steps(self, event):
        told = event.parameters
        after = tuple((tuple(path), value) for path, value in told.get("after", ()))
        yield Step(event.action, tuple(told.get("with", {}).items()), after=after)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Mailbox.tla").write_text(MAILBOX)
    (tmp_path / "Mailbox.cfg").write_text(CONFIGURATION)
    (tmp_path / "mailbox.py").write_text(CONFORMANCE)
    return tmp_path


def happened(*told: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event("n", 1, seq, action, "it", parameters) for seq, (action, parameters) in enumerate(told, 1)]


def verdict(folder: Path, *told: tuple[str, dict[str, Any]]) -> Verdict:
    return Validator(registry.from_file(str(folder / "mailbox.py"))).validate("it", happened(*told))


def path(found: Verdict) -> list[str]:
    assert found.replayer is not None
    titles = [found.replayer.actions[step.action or ""].title(dict(step.parameters)) for _, step, _ in found.path]
    return [f"{'' if event else '+'}{title}" for title, (event, _, _) in zip(titles, found.path, strict=True)]


def logs(which: str, *values: int) -> dict[str, Any]:
    return {"after": [[["log", which], list(values)]]}


def test_what_the_trace_leaves_out_is_found(folder: Path) -> None:
    found = verdict(
        folder,
        ("Send", {"with": {"n": "a", "m": "b"}}),
        ("Send", {"with": {"n": "a"}}),
        ("Next", logs("b", 2)),
        ("Next", logs("b", 2, 3)),
        ("Resign", {}),
        ("Send", {"with": {"n": "a", "m": "a"}}),
        ("Next", logs("a", 1)),
    )
    assert found.accepted
    assert [title.partition(":")[0] for title in path(found)] == [
        "Send(a, b, 2)", "Send(a, b, 3)", "Next", "Next", "Resign(b)", "Send(a, a, 1)", "Next",
    ]  # fmt: skip


def test_a_step_that_the_specification_refuses(folder: Path) -> None:
    found = verdict(folder, ("Send", {"with": {"n": "a", "m": "b"}}), ("Next", logs("b", 4)))
    assert not found.accepted
    assert found.refusals[0].step.title == "Next()"
    reasons = {front.refusals[0].why.reason.partition(";")[0] for front in found.fronts}
    assert {each for each in reasons if not each.startswith("is not enabled")} == {
        f"log.b is <<{value}>> then, and the trace says [4]" for value in (1, 2, 3)
    }  # it is not enabled where another node leads at first


def test_the_conjunct_that_refuses(folder: Path) -> None:
    found = verdict(
        folder, ("Send", {"with": {"n": "a", "m": "b"}}), ("Next", logs("b", 2)), ("Resign", {"with": {"n": "a"}})
    )
    (refusal,) = found.fronts[0].refusals
    assert (refusal.why.where, refusal.why.asked) == ("Mailbox.tla:22", "leader = n")


def test_a_message_may_be_lost_without_an_event(folder: Path) -> None:
    sent = [("Send", {"with": {"n": "a", "m": "b"}}), ("Resign", {})]
    assert not verdict(folder, ("Send", {}), ("Resign", {"after": [[["messages"], []]]})).accepted  # a list is no set

    class Quiet(Conformance):
        name = "quiet"
        protocol = str(folder / "Mailbox.tla")

        def steps(self, event: Event) -> Iterable[Step]:
            after: Any = ((("messages",), set()),) if event.action == "Resign" else ()
            yield Step(event.action, tuple(event.parameters.get("with", {}).items()), after=after)

    found = Validator(Quiet).validate("it", happened(*sent))
    assert path(found) == ["Send(a, b, 1)", "+DropMessage", "Resign(a)"]


def test_constants_of_a_trace(folder: Path) -> None:
    class Three(Conformance):
        name = "three"
        protocol = str(folder / "Mailbox.tla")

        def constants(self) -> dict[str, Any]:
            return {"Node": ["a", "b", "c"]}

        def steps(self, event: Event) -> Iterable[Step]:
            yield Step("Resign", (("n", event.node),))

    assert Validator(Three).validate("it", [Event("c", 1, 1, "", "it", {})]).accepted
    (refusal,) = Validator(Three).validate("it", [Event("d", 1, 1, "", "it", {})]).refusals
    assert refusal.why.reason == "the protocol has no such values of its parameters"


@pytest.mark.parametrize(
    ("value", "like", "unlike"),
    [
        (1, [1], [True, "1", 2, [1]]),
        (True, [True], [1, False, "TRUE"]),
        ("a", ["a"], ["b", 1, ["a"]]),
        (Sequence([1, 2]), [[1, 2], (1, 2), {1: 1, 2: 2}], [[2, 1], [1], {1, 2}, "12"]),
        (Set([1, 2]), [{1, 2}, frozenset((2, 1))], [[1, 2], {1}, {1, 3}]),
        (
            function({"x": 1, "y": Sequence(["z"])}),
            [{"x": 1, "y": ["z"]}],
            [{"x": 1}, {"x": 1, "y": ["w"]}, ["x", "y"]],
        ),
    ],
)
def test_values_of_python_beside_those_of_tla(value: Any, like: list[Any], unlike: list[Any]) -> None:
    for each in like:
        assert Alike(each).matches(value)
        assert Alike(each).matches(Held(value))
    for each in unlike:
        assert not Alike(each).matches(value)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def said(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command on a trace of these events. Returns its exit code, standard output and standard error."""

    def run(told: list[tuple[str, dict[str, Any]]], *options: str | Path) -> tuple[int, str, str]:
        with RunsFile(folder / "trace.parquet") as file:
            for seq, (action, parameters) in enumerate(told, 1):
                file.emit("1", "n", 1, seq, action, "it", parameters)
        code = main(["validate", str(folder / "trace.parquet"), *map(str, options)])
        return code, *capsys.readouterr()

    return run


GOOD = [("Send", {"with": {"n": "a", "m": "b"}}), ("Next", logs("b", 2))]


def test_the_command(folder: Path, said: Callable[..., tuple[int, str, str]]) -> None:
    ours = ("--conformance", folder / "mailbox.py")
    code, out, _ = said(GOOD, *ours)
    assert (code, out.splitlines()[1]) == (HOLDS, f"validate  {folder / 'trace.parquet'}  against Mailbox")
    code, out, _ = said([*GOOD, ("Resign", {"with": {"n": "a"}})], *ours)
    assert code == SAFETY_VIOLATED
    assert "Resign(n=a)  (node n, incarnation 1, event 3)" in out
    assert " 2     Next:26:8\n       messages  removed [value |-> 2, from |-> a, to |-> b]\n" in out


def test_a_specification_of_another_place(folder: Path, said: Callable[..., tuple[int, str, str]]) -> None:
    (folder / "else").mkdir()
    there = folder / "else" / "Mailbox.tla"
    there.write_text(MAILBOX.replace("leader = n /\\ leader' = Nil", "leader # n /\\ leader' = Nil"))
    (folder / "other.cfg").write_text(CONFIGURATION)
    ours = ("--conformance", folder / "mailbox.py", "--protocol", there)
    code, _, error = said(GOOD, *ours)
    assert (code, error) == (
        WRONG_OPTIONS,
        f"fencepost: {there} has no configuration: write {there.with_suffix('.cfg')}, or name one with --config\n",
    )
    resigns = [*GOOD, ("Resign", {"with": {"n": "a"}})]
    assert said(resigns, *ours, "--config", folder / "other.cfg")[0] == HOLDS
    assert said(resigns, *ours[:2])[0] == SAFETY_VIOLATED


def test_what_is_wrong_with_the_arguments(folder: Path, said: Callable[..., tuple[int, str, str]]) -> None:
    spec, ours = folder / "Mailbox.tla", ("--conformance", folder / "mailbox.py")
    for options, why in (
        (("--protocol", spec), f"say what the events of traces are in {spec}: give --conformance FILE.py too"),
        ((*ours, "--config", folder / "Mailbox.cfg"), "--config is of a specification in TLA+"),
        ((*ours, "--coverage"), "--coverage is of protocols in Python: leave it out"),
        ((*ours, "--protocol", folder / "None.tla"), f"there is no file {folder / 'None.tla'}"),
    ):
        code, _, error = said(GOOD, *options)
        assert code == (NOT_A_PROTOCOL if "None.tla" in why else WRONG_OPTIONS)
        assert why in error


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (("Sends", {}), "Mailbox has no action Sends: did you mean Send?"),
        (
            ("Send", {"with": {"node": "a"}}),
            "action Send has the parameters m, n, value, and the conformance gives m, n, node, value",
        ),
        (("Resign", {"after": [[["logs"], 1]]}), "Mailbox has no part logs in its state"),
        (("Resign", {"after": [[["log", "c"], 1]]}), "Mailbox has no part log.c in its state"),
    ],
)
def test_what_is_wrong_with_a_conformance(
    event: tuple[str, dict[str, Any]], why: str, said: Callable[..., tuple[int, str, str]], folder: Path
) -> None:
    code, out, _ = said([event], "--conformance", folder / "mailbox.py")
    assert code == PROTOCOL_RAISED
    assert why in " ".join(out.split())
