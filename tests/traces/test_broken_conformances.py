"""What is said of a conformance that is wrong: where, and what to do. The system is never blamed for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from docs.documents import EXAMPLES

from fencepost.cli.main import main
from fencepost.errors import HOLDS, NOT_A_PROTOCOL, PROTOCOL_RAISED

HEAD = """\
import sys
sys.path.insert(0, {examples!r})
from msgspec.structs import replace
from bank_conformance import Bank as _Bank
from transfer import Transfer
from fencepost.traces.validation import Conformance, ReadEvent, Step, like
"""

STEPS = "def steps(self, event): {}"
EACH = "def steps(self, event): return [replace(step, {}) for step in super().steps(event)]"
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
    "of": ("of = classmethod(lambda cls, subject, events: None)", "B.of returns a value of type NoneType"),
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
