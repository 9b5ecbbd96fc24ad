"""``fencepost.check``: the protocols that it accepts, and its errors for other arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost import NotAProtocol, OptionError, Protocol, check
from fencepost.language.loading import load

TEXT = """
from fencepost import *

class Counter(Protocol):
    limit: int = constant(3)
    count: int = state(0)
    configurations = {"small": configuration(limit=1), "stuck": configuration("deadlock", limit=2)}

    @action
    def tick(self):
        require(self.count < self.limit)
        self.count += 1

class Other(Counter):
    pass
"""


class Counter(Protocol):
    limit: int = fencepost.constant(3)
    count: int = fencepost.state(0)
    configurations = {"small": fencepost.configuration(limit=1)}

    @fencepost.action
    def tick(self) -> None:
        fencepost.require(self.count < self.limit)
        self.count += 1


def test_a_shipped_protocol_is_checked_by_its_name() -> None:
    result = check("ledger-chaining", configuration="false-alarm", engine="reference", max_states=50)
    assert result.protocol.name == "ledger-chaining"
    assert result.constants == load("ledger-chaining").configured("false-alarm").constants


def test_a_protocol_of_a_file_is_checked_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "counters.py"
    file.write_text(TEXT)
    assert check(f"{file}:Counter").distinct_states == 4
    assert check(f"{file}:Other", constants={"limit": 5}).distinct_states == 6
    assert check(f"{file}:Other", configuration="small", constants={"limit": "6"}).distinct_states == 7
    assert check(f"{file}:Counter", configuration="stuck").verdict == "deadlock"
    with pytest.raises(NotAProtocol, match="defines 2 protocols"):
        check(str(file))


def test_a_class_is_checked_in_a_configuration() -> None:
    assert check(Counter).distinct_states == 4
    assert check(Counter, configuration="small").distinct_states == 2
    assert check(Counter, constants={"limit": 7}, deadlock=True).verdict == "deadlock"


@pytest.mark.parametrize(
    ("protocol", "options", "error", "said"),
    [
        ("bookkeeper-4.31", {}, NotAProtocol, "did you mean bookkeeper-4.13"),
        ("no/such.py", {}, NotAProtocol, "there is no file no/such.py"),
        (5, {}, NotAProtocol, "5 is not a protocol"),
        (int, {}, NotAProtocol, "is not a protocol"),
        (Counter, {"configuration": "smal"}, OptionError, "did you mean small"),
        (Counter, {"constants": {"limt": 3}}, OptionError, "did you mean limit"),
        (Counter, {"constants": {"limit": "x"}}, OptionError, "constant limit is a whole number"),
        (Counter(), {"configuration": "small"}, OptionError, "Counter\\(limit=3\\) has its constants already"),
        (Counter(), {"constants": {"limit": 4}}, OptionError, "has its constants already"),
    ],
)
def test_what_can_not_be_checked_is_told(
    protocol: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        check(protocol, **options)


def test_a_result_that_does_not_hold_begins_with_its_verdict() -> None:
    with pytest.raises(AssertionError) as failed:
        check(Counter, deadlock=True).must_hold()
    assert str(failed.value).startswith("DEADLOCK")
