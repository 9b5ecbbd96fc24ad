"""What a metadata service keeps through kill -9, damaged files and a failing disk."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import patience
import pytest
from faulty_files import FaultyFiles
from metadata import zkclient as zk
from metadata.servers import Serve, state_of
from metadata.workload import Run, Workload
from metadata.zkclient import Closed, Connect

from fencepost.errors import SystemFailure
from fencepost.files.folders import OsFiles
from fencepost.ledger.disk.journal import aligned
from fencepost.metadata import snapshot


def state(path: Path) -> Any:
    """The state that a service recovers from a folder."""
    tree = state_of(path)
    return tree.zxid, tree.nodes, tree.sessions, tree.ephemerals, tree.containers, tree.size


def work(server: Any, operations: int, seed: int = 1) -> None:
    run = Run(server.port)
    for _ in run.run(Workload(seed, expiring=0).steps(operations)):
        pass
    run.close()


def test_everything_is_there_after_a_clean_end_and_after_a_crash(serve: Serve, tmp_path: Path) -> None:
    for end in ("stop", "crash"):
        path = tmp_path / end
        server = serve(path)
        work(server, 300)
        expected = server.service.tree
        getattr(server, end)()
        assert state(path) == (
            expected.zxid,
            expected.nodes,
            expected.sessions,
            expected.ephemerals,
            expected.containers,
            expected.size,
        )


def test_the_state_after_snapshots_is_that_of_the_whole_log(serve: Serve, tmp_path: Path) -> None:
    server = serve(tmp_path / "with", snapCount=50)
    plain = serve(tmp_path / "without")
    work(server, 600)
    work(plain, 600)
    patience.until(lambda: not server.do(lambda: server.node._snapshot.is_written), "a snapshot")
    server.stop()
    plain.stop()
    names = sorted(each.name for each in (tmp_path / "with").iterdir())
    assert 1 < len([name for name in names if name.endswith(".checkpoint")]) <= 3
    with_snapshots, without = state(tmp_path / "with"), state(tmp_path / "without")
    assert with_snapshots[0] == without[0] and list(with_snapshots[1]) == list(without[1])


def test_a_snapshot_gives_the_state_again_to_the_order_of_children(serve: Serve) -> None:
    server = serve()
    work(server, 400)
    tree = server.service.tree
    again = snapshot.read([record for some in snapshot.records(tree) for record in some], "it")
    for name in ("zxid", "last_session", "sessions", "nodes", "children", "ephemerals", "containers", "size"):
        assert getattr(again, name) == getattr(tree, name), name
    assert {path: list(names) for path, names in again.children.items()} == {
        path: list(names) for path, names in tree.children.items()
    }


def test_starts_do_not_pile_up_files(serve: Serve, tmp_path: Path) -> None:
    expected = None
    for number in range(25):
        server = serve()
        if number == 0:
            work(server, 100)
            expected = server.service.tree.nodes
        server.stop() if number % 2 else server.crash()
    assert state(tmp_path / "data")[1] == expected
    assert len(list((tmp_path / "data").iterdir())) < 40


def test_a_session_outlives_the_server(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    server = serve()
    client = connect(server)
    client.call([zk.CREATE, ["/mine", b"", zk.OPEN, 1]])
    server.crash()
    server = serve()
    again = connect(server, session=client.session, password=client.password)
    assert again.session == client.session
    assert again.call([zk.EXISTS, ["/mine", False]])[3] == 0
    wrong = zk.Client(server.port)
    assert wrong.connect(30_000, client.session, b"x" * 16)[:2] == [0, False]
    assert wrong.ended()


def test_an_entry_that_a_crash_cut_off_was_not_acknowledged(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    work(server, 100)
    before = server.service.tree.zxid
    server.crash()
    newest = max((tmp_path / "data").glob("*.journal"))
    data = newest.read_bytes()
    end = aligned(len(data.rstrip(b"\0")))
    newest.write_bytes(data[:end] + data[512:700] + data[end + 188 :])
    assert state(tmp_path / "data")[0] == before


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
@pytest.mark.parametrize("what", [".journal", "quorum-state", "meta.properties"])
def test_damage_is_said_and_never_served(serve: Serve, tmp_path: Path, what: str, harm: str) -> None:
    server = serve()
    work(server, 200)
    server.stop()
    path = max((tmp_path / "data").glob("*" + what))
    data = path.read_bytes()
    if harm == "remove":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        middle = len(data.rstrip(b"\0")) // 2 if what == ".journal" else 0
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 0x40]) + data[middle + 1 :])
    with pytest.raises(SystemFailure):
        state(tmp_path / "data")


def test_a_damaged_snapshot_is_passed_over_for_an_older_one(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(snapCount=60)
    work(server, 500)
    patience.until(lambda: not server.do(lambda: server.node._snapshot.is_written), "a snapshot")
    expected = server.service.tree.nodes
    server.stop()
    newest = max((tmp_path / "data").glob("*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-600])
    assert state(tmp_path / "data")[1] == expected
    assert "an older one and the log are tried" in caplog.text
    for each in (tmp_path / "data").glob("*.checkpoint"):
        each.unlink()
    with pytest.raises(SystemFailure):
        state(tmp_path / "data")


@pytest.mark.parametrize("fails", ["append", "sync"])
def test_a_disk_that_fails_ends_the_service_and_loses_nothing(
    serve: Serve, connect: Connect, tmp_path: Path, fails: str
) -> None:
    broken: list[OSError] = []

    def fault(operation: str, name: str) -> OSError | None:
        return broken[0] if broken and operation == fails else None

    server = serve(FaultyFiles(OsFiles(str(tmp_path / "failing")), fault))
    client = connect(server)
    for number in range(5):
        assert client.call([zk.CREATE, [f"/{number}", b"", zk.OPEN, 0]])[3] == 0
    broken.append(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(Closed):
        client.call([zk.CREATE, ["/lost", b"", zk.OPEN, 0]])
    server.stop()
    assert isinstance(server.failure, OSError)
    nodes = state(tmp_path / "failing")[1]
    assert all(f"/{number}" in nodes for number in range(5))
