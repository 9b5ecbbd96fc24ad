"""How many connections the limit on open files leaves room for."""

from __future__ import annotations

import logging
import resource

import pytest

from fencepost.connections.open_files import connections_within
from fencepost.errors import SystemFailure


@pytest.mark.parametrize(
    ("limits", "wanted", "may_raise", "given", "warns"),
    [
        ((100, 20_000), 10_000, True, 10_000, False),
        ((100, 1_000), 10_000, True, 744, True),
        ((100, 1_000), 744, True, 744, False),
        ((500, 1_000), 10_000, False, 244, True),
        ((100, 1_000), 0, True, 744, False),
        ((resource.RLIM_INFINITY,) * 2, 0, True, 0, False),
    ],
)
def test_there_are_no_more_connections_than_open_files(
    limits: tuple[int, int],
    wanted: int,
    may_raise: bool,
    given: int,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(which: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", (lambda which, limits: None) if may_raise else refuse)
    log = logging.getLogger("fencepost")
    assert connections_within(wanted, 256, "a bookie", "maxConnections", log) == given
    assert [f"maxConnections is {given}, and not {wanted}" in each for each in caplog.messages] == [True] * warns


def test_connections_may_take_several_files_each(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (301, 301))
    log = logging.getLogger("fencepost")
    assert connections_within(10_000, 256, "a recorder", "the most", log, files=2) == 22
    assert "the most is 22, and not 10000" in caplog.text
    monkeypatch.setattr(resource, "getrlimit", lambda which: (257, 257))
    with pytest.raises(SystemFailure, match="a recorder needs more than 256 open files, and this process may have 257"):
        connections_within(10_000, 256, "a recorder", "the most", log, files=2)


def test_without_room_for_any_there_is_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    with pytest.raises(SystemFailure, match="a bookie needs more than 256 open files, and this process may have 256"):
        connections_within(10_000, 256, "a bookie", "maxConnections", logging.getLogger("fencepost"))
