import pytest
from two_phase import TwoPhaseCommit

from fencepost import Options, check


def test_all_agree_and_nobody_is_stuck() -> None:
    check(TwoPhaseCommit(), options=Options(deadlock=True)).must_hold()


def test_who_is_prepared_must_wait() -> None:
    trace = check(TwoPhaseCommit(impatient=True)).must_violate("consistent")
    assert len(trace) == 8
    assert "rm_gives_up" in [step.action for step in trace.steps]


@pytest.mark.parametrize("name", TwoPhaseCommit.configurations)
def test_configuration(name: str) -> None:
    result = check(TwoPhaseCommit.configured(name))
    assert result.verdict == TwoPhaseCommit.configurations[name].expect
