"""When sessions expire: the rule, and a server that was suspended."""

from __future__ import annotations

import patience
from hypothesis import given
from hypothesis import strategies as st
from metadata import zkclient as zk
from metadata.servers import Serve
from metadata.zkclient import Connect

from fencepost.metadata.expiry import Expiry


def test_a_session_is_over_at_the_first_tick_after_its_timeout() -> None:
    expiry = Expiry(tick=100, now=0)
    expiry.heard(1, timeout=200, now=50)
    expiry.heard(2, timeout=200, now=50)
    assert expiry.due(100) == [] == expiry.due(200)
    expiry.heard(2, timeout=200, now=210)
    assert expiry.due(300) == [1] and expiry.deadlines == {2: 500}
    expiry.forget(2)
    expiry.forget(3)
    assert expiry.due(400) == [] == expiry.due(500) and expiry.deadlines == {}


def test_time_in_which_nobody_was_heard_counts_for_nobody() -> None:
    expiry = Expiry(tick=100, now=0)
    expiry.heard(1, timeout=300, now=10)
    assert expiry.due(100) == []
    assert expiry.due(60_000) == []
    assert expiry.left(expiry.deadlines[1], 60_000) == 200
    expiry.heard(1, timeout=300, now=60_010)
    for now in range(60_100, 60_400, 100):
        assert expiry.due(now) == []
    assert expiry.due(60_500) == [1]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 500), st.integers(0, 90)), max_size=60))
def test_nobody_is_over_early_and_everybody_is_within_a_tick(heard: list[tuple[int, int, int]]) -> None:
    """Against a plain model: the deadline of each session since it was last heard."""
    alive: dict[int, int] = {}
    expiry, now, next_tick = Expiry(50, 0), 0, 50
    for session, timeout, passed in heard:
        for _ in range(passed):
            now += 1
            if now == next_tick:
                next_tick += 50
                over = expiry.due(now)
                for each in over:
                    assert alive.pop(each) <= now
                assert all(end > now - 50 for end in alive.values())
        expiry.heard(session, timeout, now)
        alive[session] = now + timeout


def test_a_server_that_did_not_run_for_an_hour_expires_nobody_and_goes_on_to_expire(
    serve: Serve, connect: Connect
) -> None:
    server = serve(tickTime=50)
    clock = [server.service.now()]
    server.do(lambda: setattr(server.service, "now", lambda: clock[0]))
    client, other = connect(server, timeout=100), connect(server)
    assert client.call([zk.CREATE, ["/mine", b"", zk.OPEN, 1]])[3] == 0

    def pass_time(milliseconds: int) -> None:
        clock[0] += milliseconds
        patience.until(lambda: server.do(lambda: server.service.expiry.last) == clock[0], "a tick")

    pass_time(3_600_000)
    assert client.session in server.service.tree.sessions
    for _ in range(4):
        pass_time(50)
    patience.until(lambda: other.call([zk.EXISTS, ["/mine", False]])[3] == -101, "the end of the session")
    assert client.ended()
