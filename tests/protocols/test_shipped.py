"""The registry of shipped protocols."""

import subprocess
import sys

import pytest

from fencepost import NotAProtocol, Protocol
from fencepost.language.loading import SHIPPED, shipped


@pytest.mark.parametrize("name", SHIPPED)
def test_every_name_leads_to_the_protocol_that_bears_it(name: str) -> None:
    protocol = shipped(name)
    assert issubclass(protocol, Protocol)
    assert protocol.name == name


@pytest.mark.parametrize("name", SHIPPED)
def test_everything_that_runs_says_what_it_is(name: str) -> None:
    protocol = shipped(name)
    for kind in ("action", "invariant", "constraint", "assumption", "initial"):
        assert [d.name for d in protocol.declared(kind) if not d.doc] == []


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(NotAProtocol, match=r"bookkeeper-4\.12: did you mean bookkeeper-4\.13\?"):
        shipped("bookkeeper-4.12")


def test_no_protocol_is_imported_before_it_is_asked_for() -> None:
    script = (
        "import sys, fencepost.language.loading\n"
        "print([m for m in sys.modules if m.startswith('fencepost.protocols.')])\n"
        "fencepost.language.loading.shipped('ledger-chaining')\n"
        "print('fencepost.protocols.ledger_chaining' in sys.modules)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:2] == ["[]", "True"]
