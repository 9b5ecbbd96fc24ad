"""What is said of a conformance that is wrong: where, and what to do. The system is never blamed for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from docs.documents import EXAMPLES

from fencepost import Message, ModelValue, Network, Protocol, action, model_values, network
from fencepost.cli.main import main
from fencepost.errors import HOLDS, NOT_A_PROTOCOL, PROTOCOL_RAISED, SAFETY_VIOLATED
from fencepost.traces.validation import ANY, Conformance, Event, Step, like
from fencepost.traces.validation.validate import Validator

HEAD = """\
import sys
sys.path.insert(0, {examples!r})
from msgspec.structs import replace
from bank_conformance import Bank as _Bank
from transfer import Transfer
from fencepost.traces.validation import Conformance, ReadEvent, Step, like
from fencepost.traces.validation.conformance import Objection
Wordless = type("Wordless", (Exception,), {{"__str__": lambda self: 1 / 0}})
"""

STEPS = "def steps(self, event): {}"
EACH = "def steps(self, event): return [replace(step, {}) for step in super().steps(event)]"
NEEDED = """still_needed = classmethod(lambda cls, events: {})
    @classmethod
    def read(cls, record):  # some events are about all subjects
        event = super().read(record)
        return event and replace(event, subject=event.subject if event.action != "opens" else None)"""
RAISED = {
    "steps-none": (
        STEPS.format("pass"),
        "B.steps returns a value of type NoneType: return Steps in a list, or yield them",
    ),
    "steps-one": (
        STEPS.format("return Step('desk_commits')"),
        "B.steps returns a value of type Step: return Steps in a list, or yield them",
    ),
    "steps-text": (STEPS.format("yield 'desk_commits'"), "B.steps gives a value of type str, and no Step"),
    "parameters": (
        EACH.format("parameters={'a': 1}"),
        "parameters of desk_counts_vote is {'a': 1}, and no tuple at b.py:",
    ),
    "one-pair": (EACH.format("parameters=('a', 1)"), "parameters of desk_counts_vote has 'a', and no pair"),
    "picks": (EACH.format("picks='ab'"), "picks of desk_counts_vote is 'ab', and no tuple"),
    "sends": (EACH.format("sends='vote'"), "sends of desk_counts_vote is 'vote', and no tuple"),
    "key": (EACH.format("sends=(['vote'],)"), "a name of a message or a version of desk_counts_vote is no key"),
    "version": (EACH.format("writes='row'"), "writes of desk_counts_vote is 'row', and no pair of a name and a number"),
    "path": (EACH.format("after=(('row', 1),)"), "after of desk_counts_vote has ('row', 1), and no pair of a path"),
    "no-path": (EACH.format("before=None"), "before of desk_counts_vote is None, and no tuple"),
    "to": (EACH.format("to=['a1']"), "to of desk_counts_vote is ['a1'], and no frozenset"),
    "tells": (
        EACH.format("tells=(('sends', like(vote=1)),)"),
        "tells of desk_counts_vote has 'sends', and none of send",
    ),
    "constants": (
        "def constants(self): pass",
        "B.constants returns a value of type NoneType: return a dict of constants by name",
    ),
    "constant": ("def constants(self): return {'accounts': object()}", "constant accounts is a set of model values"),
    "hidden": (
        "def hidden(self, protocol): pass",
        "B.hidden returns a value of type NoneType: return Steps in a list, or yield them",
    ),
    "hidden-nothing": ("def hidden(self, protocol): yield Step(None)", "a hidden step has no action"),
    "objections": ("def objections(self): return ['bad']", "B.objections gives a value of type str, and no Objection"),
    "in-order": ("def in_order(self): pass", "B.in_order returns a value of type NoneType: return the events"),
    "in-order-texts": ("def in_order(self): return ['a']", "B.in_order gives a value of type str, and no Event"),
    "of": ("of = classmethod(lambda cls, subject, events: None)", "B.of returns a value of type NoneType"),
    "names": ("def names(self): pass", "B.names returns a value of type NoneType: return a dict of names by"),
    "names-list": ("def names(self): return ['paris']", "B.names returns a value of type list: return a dict of names"),
    "untouched": (
        "steps = lambda self, event: ()\n    def is_untouched(self): pass",
        "B.is_untouched returns a value of type NoneType: return True or False",
    ),
    "needed": (
        NEEDED.format("None"),
        "B.still_needed returns a value of type NoneType: return Events in a list, or yield them",
    ),
    "needed-texts": (
        NEEDED.format("['a']"),
        "B.still_needed gives a value of type str, and no Event",
    ),
    "needed-raises": (
        NEEDED.format("events.old"),
        "the conformance raised AttributeError: 'list' object has no attribute 'old' at b.py:10",
    ),
    "objection": (
        "def objections(self): return [Objection('it is late', self.events[0])]",
        "the conformance raised TypeError: an objection is of an event and a text: Objection(event='it is late'",
    ),
    "action": (STEPS.format("yield Step(Transfer.desk_commits)"), "and no name at b.py:10"),
    "pick": (EACH.format("picks=([1],)"), "a parameter or a pick of account_votes is no value: [1] (list)"),
    "compared": (
        EACH.format("after=((('row', 'voters'), ['a1']),)"),
        "row.voters is compared with the list ['a1']:",
    ),
    "no-key": (
        EACH.format("after=((('row', ['outcome']), None),)"),
        "transfer has no part row.['outcome'] in its state; the step was",
    ),
    "dots": (EACH.format("picks=(..., 1)"), "picks of desk_counts_vote has ... before another pick at b.py:10"),
    "may-skip": (EACH.format("may_skip='no'"), "may_skip of desk_counts_vote is 'no', and no truth value at b.py:10"),
    "wrong": (EACH.format("wrong=7"), "wrong of desk_counts_vote is 7, and no text at b.py:10"),
    "wordless": (STEPS.format("raise Wordless"), "the conformance raised Wordless at b.py:10"),
    "tells-fields": (EACH.format("tells=(('send', {'vote': 1}),)"), "tells of desk_counts_vote has {'vote': 1}, and"),
    "receivers": (
        EACH.format("to={'paris'}"),
        "B.steps at b.py:10 gives desk_counts_vote() with 'paris' as a receiver (to), and the ends of networks are",
    ),
    "like": (
        EACH.format("picks=(like(trem=1),)"),
        "B.steps at b.py:10 gives desk_counts_vote() with like(trem=1), and no message and no other record of transfer"
        " has a field trem: there are number, outcome, vote.",
    ),
    "like-in-like": (
        EACH.format("picks=(like(outcome__trem=1),)"),
        "with like(outcome__trem=1), and no record of transfer has a field trem: there are number, outcome, vote,",
    ),
    "like-of-messages": (
        EACH.format("tells=(('receive', like(status=1)),)"),
        "with like(status=1), and no message of transfer has a field status: there are number, outcome, vote.",
    ),
    "like-of-states": (
        EACH.format("before=((('row',), like(voter=1)),)"),
        "with like(voter=1), and no message and no other record of transfer has a field voter: there are",
    ),
    "like-skipped": (
        EACH.format("picks=(like(trem=1),), may_skip=True"),
        "gives desk_counts_vote() with like(trem=1), and no message",
    ),
    "like-yielded": (
        "def more(self, event):\n        yield from super().steps(event)\n        yield Step(\n"
        "            'desk_counts_vote', picks=(like(trem=1),))\n"
        "    def steps(self, event): yield from self.more(event)",
        "B.steps at b.py:12 gives desk_counts_vote() with like(trem=1)",
    ),
    "like-hidden": (
        "def hidden(self, protocol):\n        yield Step('desk_counts_vote', picks=(like(trem=1),))",
        "B.hidden at b.py:11 gives desk_counts_vote() with like(trem=1)",
    ),
}
REFUSED = {
    "read": ("class B(_Bank):\n def read(self, record): return None", "B.read in b.py is no classmethod"),
    "protocol": ("class B(_Bank):\n protocol = Transfer()", "B.protocol in b.py is Transfer("),
    "file": ("class B(_Bank):\n protocol = 'transfer.py'", "B.protocol in b.py is 'transfer.py', and no .tla file"),
    "no-protocol": ("class B(Conformance):\n name = 'b'\n def steps(self, event): return ()", "not define protocol"),
    "no-steps": (
        "class B(Conformance):\n name = 'b'\n protocol = Transfer",
        "is not complete: it does not define steps",
    ),
    "no-name": (
        "class B(Conformance):\n protocol = Transfer\n def steps(self, event): return ()",
        "B in b.py has no name",
    ),
    "no-method": ("class B(_Bank):\n steps = None", "B.steps in b.py is None, and no method"),
    "names": ("class B(_Bank):\n names = {}", "B.names in b.py is {}, and no method"),
    "name": ("class B(_Bank):\n name = None", "B.name in b.py is None, and no text"),
    "subjects": (
        "import re\nclass B(_Bank):\n subjects = re.compile('t')",
        "B.subjects in b.py is re.compile('t')",
    ),
    "heeds": ("class B(_Bank):\n heeds = ('opens')", "B.heeds in b.py is 'opens', and no tuple of names of actions"),
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs") / "good"
    subprocess.run([sys.executable, str(EXAMPLES / "bank.py"), str(folder)], check=True)
    return folder


@pytest.fixture
def said(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Validate the logs against ``B`` of a file with this text. Returns the exit code and all that was said."""

    def run(text: str) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        Path("b.py").write_text(HEAD.format(examples=str(EXAMPLES)) + text + "\n")
        code = main(["validate", str(logs), "--conformance", "b.py:B"])
        return code, " ".join("".join(capsys.readouterr()).split())

    return run


@pytest.mark.parametrize("broken", RAISED)
def test_a_method_that_gives_something_else(broken: str, said) -> None:  # type: ignore[no-untyped-def]
    method, words = RAISED[broken]
    code, text = said(f"class B(_Bank):\n    {method}")
    assert code == PROTOCOL_RAISED
    assert words in text
    assert "fencepost/" not in text


@pytest.mark.parametrize("broken", REFUSED)
def test_a_class_that_is_no_conformance(broken: str, said) -> None:  # type: ignore[no-untyped-def]
    definition, words = REFUSED[broken]
    code, text = said(definition)
    assert code == NOT_A_PROTOCOL
    assert words in text


def test_lists_will_do(said) -> None:  # type: ignore[no-untyped-def]
    """A list of names is what the protocol takes for its own constants too."""
    code, _ = said(
        "class B(_Bank):\n"
        "    def constants(self): return {**super().constants(), 'accounts': list(self.account_names)}\n"
        "    def steps(self, event):\n"
        "        for each in super().steps(event):\n"
        "            yield replace(each, picks=list(each.picks), sends=list(each.sends), after=list(each.after))"
    )
    assert code == HOLDS


class Told(Message):
    """A message that has more than its fields."""

    count: int

    @property
    def is_odd(self) -> bool:
        return self.count % 2 == 1


class Telling(Protocol):
    """A node tells another one a number."""

    name = "telling"
    nodes: tuple[ModelValue, ...] = model_values("n", 2)
    network: Network = network({Told: (nodes, nodes)})

    @action(count=range(9))
    def tells(self, count: int) -> None:
        self.network.send(Told(count), self.nodes[0], self.nodes[1])

    @action
    def hears(self) -> None:
        self.network.receive(Told, to=self.nodes[1], source=self.nodes[0])


@pytest.mark.parametrize("is_odd", [True, False])
def test_what_a_record_has_besides_its_fields_is_no_mistake(is_odd: bool) -> None:
    class TellingConformance(Conformance):
        name = "telling"
        protocol = Telling

        def steps(self, event: Event) -> Iterable[Step]:
            yield Step("tells", (("count", 7),), sends=("it",), tells=(("send", like(is_odd=is_odd)),))
            yield Step("hears", picks=(like(is_odd=is_odd),), receives="it")

    found = Validator(TellingConformance).validate("it", [Event("n", 1, 1, "acts", "it", {})])
    assert found.accepted is is_odd


def test_a_field_that_a_record_lacks_is_not_none() -> None:
    assert like(count=7).matches(Told(7))
    assert like(count=ANY).matches(Told(7)) and not like(cuont=ANY).matches(Told(7))
    assert not like(cuont=None).matches(Told(7)) and not like(count__a=None).matches(Told(7))


def test_names_may_be_model_values_and_numbers(said) -> None:  # type: ignore[no-untyped-def]
    """For what is shown, each is the text that it has."""
    code, text = said(
        "class B(_Bank):\n"
        "    def names(self): return {a: 7 + place for place, a in enumerate(self.accounts.values())}\n"
        "    def steps(self, event): return [each for each in super().steps(event) if 'counts' not in each.title]"
    )
    assert code == SAFETY_VIOLATED and "There a1 is 7, a2 is 8." in text
