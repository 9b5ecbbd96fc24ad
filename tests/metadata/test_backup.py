"""Backups of a metadata service, and quorums that are restored from them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import certificates
import faulty_files
import patience
import pytest
from metadata.servers import state_of
from metadata.zkclient import CREATE, DELETE, OPEN, SET_DATA, Client, Closed
from msgspec import structs
from quorum.hosts import TestCluster, free_ports
from quorum.members import Members

from fencepost.cli import main as cli
from fencepost.connections.tls import Files as TlsFiles
from fencepost.connections.tls import Tls
from fencepost.errors import SystemFailure
from fencepost.files.folders import OsFiles
from fencepost.ledger.disk.journal import Damage
from fencepost.metadata import backup
from fencepost.metadata.backup import HEAD_SIZE, Backup
from fencepost.metadata.member import Mark, _read_entry
from fencepost.metadata.protocol import CloseSession, CreateSession
from fencepost.metadata.tree import Node, Transaction, Tree
from fencepost.quorum.driver import host as hosts
from fencepost.quorum.driver.admin import Administrator
from fencepost.quorum.driver.links import LinkError, Links, PeerTls
from fencepost.quorum.driver.node import QuorumNode
from fencepost.quorum.files.directory import read_meta
from fencepost.quorum.files.log import ReplicatedLog
from fencepost.quorum.log import OffsetAndEpoch

CLIENTS = 100


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    made = Members(tmp_path / "old", 3)
    made.be_patient()
    made.start()
    yield made
    made.close()


def taken(endpoints: list[str], path: Path, seconds: float = 60.0, tls: Tls | None = None) -> Backup:
    async def take() -> Backup:
        administrator = Administrator(endpoints, seconds, tls)
        try:
            return await backup.take(administrator, path, lambda done, of: None)
        finally:
            await administrator.close()

    return asyncio.run(take())


def filled(members: Members, count: int = 20) -> Client:
    """A client that has made some znodes, one of them ephemeral."""
    client = Client(members.ports[1])
    client.connect(60_000)
    client.call([CREATE, ["/a", b"", OPEN, 0]])
    client.call(*([CREATE, [f"/a/{number}", b"x" * number, OPEN, 0]] for number in range(count)))
    assert client.call([CREATE, ["/a/mine", b"", OPEN, 1]])[3] == 0
    return client


# -- one zxid, while clients write -------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """A client that creates, sets and deletes its own znodes, and notes what was acknowledged with its zxid."""

    def __init__(self, number: int, port: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.number, self.port, self.stop = number, port, stop
        self.done: list[tuple[int, int, str, bytes]] = []

    def run(self) -> None:
        client, chosen = Client(self.port), random.Random(self.number)
        client.connect(60_000)
        known: set[str] = set()
        with suppress(Closed):
            while not self.stop.is_set():
                path, data = f"/{self.number}-{chosen.randrange(6)}", chosen.randbytes(chosen.randrange(30))
                if path not in known:
                    kind, arguments = CREATE, [path, data, OPEN, chosen.choice((0, 0, 0, 1))]
                    known.add(path)
                elif chosen.random() < 0.7:
                    kind, arguments = SET_DATA, [path, data, -1]
                else:
                    kind, arguments = DELETE, [path, -1]
                    known.remove(path)
                _, _, zxid, error, _ = client.call([kind, arguments])
                assert not error
                self.done.append((zxid, kind, path, data))
        client.drop()


def went_on(writers: list[Writer], since: list[int]) -> bool:
    """Whether each has made more changes than it had."""
    return all(len(each.done) > old + 3 for each, old in zip(writers, since, strict=True))


def acknowledged(writers: list[Writer], zxid: int) -> dict[str, tuple[bytes, int]]:
    """What the clients were told, up to a zxid: the data and the version of each znode."""
    state: dict[str, tuple[bytes, int]] = {}
    for at, kind, path, data in sorted(done for writer in writers for done in writer.done):
        if at > zxid:
            break
        if kind == DELETE:
            del state[path]
        else:
            state[path] = data, 0 if kind == CREATE else state[path][1] + 1
    return state


def by_the_log(folder: Path, zxid: int) -> Tree:
    """The state at a zxid, from all records of a member's log."""
    tree = Tree()
    for batch in ReplicatedLog.open(OsFiles(str(folder)), 1 << 20).read(0):
        for entry in map(_read_entry, batch.records):
            if tree.zxid < zxid and not isinstance(entry.request.request, Mark):
                request = entry.request
                tree.apply(Transaction(tree.zxid + 1, entry.time, request.session, request.ids, request.request))  # type: ignore
    return tree


def test_a_backup_is_the_state_of_one_zxid_while_a_hundred_clients_write(members: Members, tmp_path: Path) -> None:
    stop = threading.Event()
    ports = itertools.cycle(members.ports.values())
    writers = [Writer(number, next(ports), stop) for number in range(CLIENTS)]
    for each in writers:
        each.start()
    found: list[Backup] = []
    for number in range(3):
        before = [len(each.done) for each in writers]
        patience.until(lambda before=before: went_on(writers, before), "changes of each client")  # type: ignore[misc]
        told = max(done[0] for each in writers for done in each.done[-1:])
        found.append(taken([members.hosts[1 + number]], tmp_path / str(number)))
        assert found[-1].tree.zxid >= told, "what was acknowledged before is in it"
    stop.set()
    for each in writers:
        each.join()
    members.agree()
    leader = members.leader
    members.stop(leader)
    assert [one.tree.zxid for one in found] == sorted({one.tree.zxid for one in found})
    for number, kept_in in enumerate(found):
        written = backup.read(tmp_path / str(number))
        for one in (kept_in.tree, written.tree):
            expected = by_the_log(members.path / str(leader), one.zxid)
            assert (one.nodes, one.sessions) == (expected.nodes, expected.sessions)
            shown = {path: (node.data, node.version) for path, node in one.nodes.items() if path.count("-")}
            assert shown == acknowledged(writers, one.zxid)
        assert len(written.tree.sessions) == CLIENTS
        backup.restore(written, [tmp_path / f"new {number}"], {1: hosts.ANY_PORT})
        served = state_of(tmp_path / f"new {number}")
        assert not served.sessions
        restored = dict(served.nodes)
        kept = {path: node for path, node in kept_in.tree.nodes.items() if node.owner <= 0}
        assert restored.keys() == kept.keys() and restored.pop("/").pzxid >= kept.pop("/").pzxid
        assert restored == kept, "znode by znode"


async def test_only_a_leader_that_commits_can_answer(tmp_path: Path) -> None:
    async with TestCluster(tmp_path / "cluster") as cluster:
        await cluster.start()
        await cluster.propose(b"a")
        leader = await cluster.leader()
        for each in cluster.running:
            if each is not leader:
                await each.kill()
        administrator = Administrator([leader.host.me.endpoint], 1.0)
        with pytest.raises(SystemFailure, match="seconds were not enough"):
            await administrator.take_snapshot(lambda data: None, lambda done, of: None)
        await administrator.close()


def test_several_operators_at_once_get_snapshots_that_reach_their_requests(members: Members, tmp_path: Path) -> None:
    filled(members)
    node, zxids = members.node(members.leader), []
    expected = members.running[members.leader].tree.zxid

    def one(number: int) -> None:
        zxids.append(taken([members.hosts[members.leader]], tmp_path / str(number)).tree.zxid)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(zxids) == 8 and all(zxid >= expected for zxid in zxids)
    assert not node._snapshot.wanted


def test_a_snapshot_that_does_not_wait_for_the_record_is_found_out(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: the last snapshot on disk is given, however old it is."""

    def at_once(node: QuorumNode, respond: Any) -> None:
        node._snapshot.wanted.append((0, respond))
        node._answer_wanted(node.replica.log.snapshot.end.offset)

    filled(members)
    taken([members.hosts[1]], tmp_path / "sound")
    monkeypatch.setattr(QuorumNode, "_take_snapshot", at_once)
    client = filled_again(members)
    leader = [members.hosts[members.leader]]
    assert taken(leader, tmp_path / "faulty").tree.zxid < client.last_zxid
    monkeypatch.undo()
    assert taken(leader, tmp_path / "sound again").tree.zxid >= client.last_zxid


def filled_again(members: Members) -> Client:
    client = Client(members.ports[1])
    client.connect(60_000)
    client.call([CREATE, ["/b", b"", OPEN, 0]])
    return client


# -- restoring ---------------------------------------------------------------------------------------------------------


def test_a_restored_quorum_goes_on_and_knows_no_member_of_the_old_one(members: Members, tmp_path: Path) -> None:
    client = filled(members)
    kept = taken([members.hosts[2]], tmp_path / "file")
    restored = Members(tmp_path / "new", 3)
    folders = [restored.path / str(number) for number in restored.hosts]
    nodes, cluster_id = backup.restore(backup.read(tmp_path / "file"), folders, restored.hosts)
    assert [node.endpoint for node in nodes] == list(restored.hosts.values())
    restored.be_patient()
    restored.start()
    restored.agree()
    new = restored.running[restored.leader]
    sessions = len(kept.tree.sessions)
    assert sessions and not new.tree.sessions and new.tree.zxid == kept.tree.zxid + sessions
    assert new.tree.nodes.keys() == kept.tree.nodes.keys() - {"/a/mine"}
    # A session of the old service is over, and its client goes on with another.
    again = Client(restored.ports[1])
    assert again.connect(60_000, client.session, client.password)[1] is False
    again = Client(restored.ports[1])
    again.connect(60_000, zxid=kept.tree.zxid)
    assert again.session > client.session
    assert again.call([CREATE, ["/a/new", b"", OPEN, 0]])[2] > kept.tree.zxid + sessions
    # Members of the two clusters refuse each other.
    old = members.running[1].host

    async def greeted() -> None:
        links = Links(old, lambda: (old.meta.cluster_id, old.meta.key))
        try:
            await links.identify(restored.hosts[1])
        finally:
            await links.close()

    assert old.meta.cluster_id != cluster_id
    with pytest.raises(
        LinkError, match=f"it is of the cluster {old.meta.cluster_id}, and this replica of {cluster_id}"
    ):
        restored.do(greeted())
    # A lost member is replaced as ever, from a snapshot, since the log does not begin at its beginning.
    follower = restored.followers[0]
    restored.kill(follower)
    restored.wipe(follower)
    restored.start(follower)
    restored.agree()
    restored.close()


def test_ended_sessions_take_a_zxid_each_and_their_ephemerals_with_them() -> None:
    tree = Tree()
    for _ in range(3):
        tree.apply(Transaction(tree.zxid + 1, 1, 0, (), CreateSession(1_000, b"p")))
    twin = Tree.restored(tree.zxid, tree.last_session, dict(tree.sessions), iter(tree.nodes.items()))
    backup.without_sessions(tree)
    assert not tree.sessions and tree.zxid == twin.zxid + 3
    for session in sorted(twin.sessions):
        twin.apply(Transaction(twin.zxid + 1, 1, session, (), CloseSession()))
    assert (tree.nodes, tree.last_session) == (twin.nodes, twin.last_session)


class Killed(BaseException):
    """The process is killed here."""


def test_a_restore_that_is_killed_anywhere_leaves_nothing_that_serves_less(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(members)
    kept = taken([members.hosts[1]], tmp_path / "file")
    kills = 0
    for number in itertools.count():
        folder, left = tmp_path / f"killed {number}", [number]

        def fault(operation: str, name: str, left: list[int] = left) -> BaseException | None:
            left[0] -= operation in ("append", "sync", "create", "rename")
            return Killed() if left[0] < 0 and operation != "read" else None

        class Faulty(faulty_files.FaultyFiles):
            def __init__(self, path: str, fault: Any = fault) -> None:
                super().__init__(OsFiles(path), fault)
                self.path = path

        monkeypatch.setattr(backup, "OsFiles", Faulty)
        try:
            backup.restore(backup.read(tmp_path / "file"), [folder], {1: hosts.ANY_PORT})
        except Killed:
            kills += 1
            # Nothing of a state is there, so a member begins as in an empty one, or it refuses the directory.
            names = {each.name for each in folder.iterdir()} - {"LOCK"}
            if names <= {"quorum-state.new"}:
                continue
            monkeypatch.undo()
            if "meta.properties" in names:  # all is there, and only this name may still be lost
                backup.without_sessions(kept.tree)
                assert state_of(folder).nodes == kept.tree.nodes
                continue
            with pytest.raises(Damage, match="meta.properties is missing"):
                read_meta(OsFiles(str(folder)))
            with pytest.raises(SystemFailure, match="is not empty"):
                backup.restore(kept, [folder], {1: hosts.ANY_PORT})
        else:
            break
    assert kills > 12
    assert read_meta(OsFiles(str(folder))) is not None


def test_a_directory_that_is_not_empty_or_in_use_is_refused(members: Members, tmp_path: Path) -> None:
    filled(members)
    kept = taken([members.hosts[1]], tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    with pytest.raises(SystemFailure, match="full is not empty, it has note"):
        backup.restore(kept, [tmp_path / "full"], {1: hosts.ANY_PORT})
    assert (tmp_path / "full" / "note").read_text() == "mine"
    with pytest.raises(SystemFailure, match="is in use by another process, or given twice"):
        backup.restore(kept, [tmp_path / "twice"] * 2, {1: "127.0.0.1:1", 2: "127.0.0.1:2"})
    with pytest.raises(SystemFailure, match="is in use|is not empty"):
        backup.restore(kept, [members.path / "1"], {1: hosts.ANY_PORT})
    (tmp_path / "a file").write_text("")
    with pytest.raises(SystemFailure, match="a file cannot be used: "):
        backup.restore(kept, [tmp_path / "a file"], {1: hosts.ANY_PORT})
    (tmp_path / "mounted" / "lost+found").mkdir(parents=True)
    backup.restore(kept, [tmp_path / "mounted"], {1: hosts.ANY_PORT})


# -- damaged files -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Two backups of one service."""
    path = tmp_path_factory.mktemp("two")
    members = Members(path / "old", 1)
    members.start()
    filled(members, 900)
    endpoint = members.hosts[1]
    taken([endpoint], path / "first")
    filled_again(members)
    taken([endpoint], path / "second")
    members.close()
    return (path / "first").read_bytes(), (path / "second").read_bytes()


def damaged(seed: int, whole: bytes, other: bytes) -> bytes:
    """A backup that is damaged in one of ten ways."""
    chosen = random.Random(seed)
    at, data = chosen.randrange(len(whole)), bytearray(whole)
    sector = chosen.randrange(HEAD_SIZE // 512, len(whole) // 512 - 1) * 512
    match seed % 10:
        case 0:
            return whole[:at]
        case 1:
            return whole[:sector]
        case 2:
            data[at] ^= 1 << chosen.randrange(8)
        case 3:
            data[sector + chosen.randrange(512)] ^= 1 << chosen.randrange(8)
        case 4:  # two sectors are swapped
            data[HEAD_SIZE : HEAD_SIZE + 512], data[sector + 512 : sector + 1024] = (
                whole[sector + 512 : sector + 1024],
                whole[HEAD_SIZE : HEAD_SIZE + 512],
            )
        case 5:  # the head of another backup
            return other[:HEAD_SIZE] + whole[HEAD_SIZE:]
        case 6:  # a part of another backup
            return whole[:sector] + other[sector:]
        case 7:
            return whole + other[: 1 + chosen.randrange(len(other))]
        case 8:
            data[sector : sector + 512] = bytes(512)
        case 9:  # a part is missing in the middle
            del data[sector : sector + 512 * (1 + chosen.randrange(8))]
    return bytes(data)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_backups_are_refused(
    seed: int, two: tuple[bytes, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(damaged(seed, *two))
    assert file.read_bytes() not in two
    assert cli.main(["metadata", "verify", str(file)]) == 153
    said = capsys.readouterr()
    assert said.err.startswith(f"fencepost: {file} ") and said.err.count("\n") == 1 and not said.out
    assert cli.main(["metadata", "restore", str(file), str(tmp_path / "new")]) == 153
    assert capsys.readouterr().err == said.err and not (tmp_path / "new").exists()


def test_whole_backups_are_not_refused(two: tuple[bytes, bytes], tmp_path: Path) -> None:
    for each in two:
        (tmp_path / "file, renamed").write_bytes(each)
        assert len(backup.read(tmp_path / "file, renamed").tree.nodes) > 900


def test_every_byte_is_covered(tmp_path: Path) -> None:
    members = Members(tmp_path / "old", 1)
    members.start()
    filled_again(members)
    taken([members.hosts[1]], tmp_path / "file")
    whole = (tmp_path / "file").read_bytes()
    members.close()
    data = bytearray(whole)
    for at in range(len(whole)):
        data[at] ^= 1 << at % 8
        with pytest.raises(Damage):
            backup._read(bytes(data))
        with pytest.raises(Damage):
            backup._read(whole[:at])
        data[at] = whole[at]
    backup._read(bytes(data))


@pytest.mark.parametrize("kind", ["empty", "checkpoint", "later", "folder", "missing", "device"])
def test_foreign_files_are_refused_by_what_they_are(kind: str, two: tuple[bytes, bytes], tmp_path: Path) -> None:
    file, says = tmp_path / "file", "is no backup of a metadata service"
    if kind == "checkpoint":
        file.write_bytes(two[0][HEAD_SIZE:])
    elif kind == "later":
        file.write_bytes(two[0].replace(b"backup 1", b"backup 2", 1))
        says = "has the format '2', and this version reads 1"
    elif kind == "folder":
        file.mkdir()
        says = "cannot be read: Is a directory"
    elif kind == "device":
        file = Path("/dev/zero")
        says = "it is a device"
    elif kind == "empty":
        file.write_bytes(b"")
    else:
        says = "No such file"
    with pytest.raises(SystemFailure, match=says):
        backup.read(file)


def test_a_sound_snapshot_under_the_sealed_head_of_another_is_refused(two: tuple[bytes, bytes]) -> None:
    head = backup._read(two[0]).head
    other = structs.replace(head, snapshot="0" * len(head.snapshot))
    with pytest.raises(Damage, match="its snapshot has another digest than its head says"):
        backup._read(backup._encoded(other) + two[0][HEAD_SIZE:])


def test_a_sound_file_with_an_impossible_state_is_refused(two: tuple[bytes, bytes]) -> None:
    """What digests cannot find: a snapshot that was written wrong."""
    for owner, says in ((0, "without its parent"), (7, "without its session")):
        tree = Tree()
        path = "/lost/child" if not owner else "/mine"
        tree.nodes[path] = Node(b"", (), owner=owner)
        from fencepost.metadata.member import records
        from fencepost.quorum.files.snapshots import groups
        from fencepost.quorum.log import Snapshot

        data = b"".join(groups(Snapshot(OffsetAndEpoch(5, 1)), records(tree, {})))
        with pytest.raises(SystemFailure, match=says):
            backup._state(data, OffsetAndEpoch(5, 1), "its snapshot")


# -- interrupted backups -----------------------------------------------------------------------------------------------


def test_a_backup_whose_member_goes_away_leaves_no_file(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(members, 900)
    sound = QuorumNode._with_piece

    def cut(node: QuorumNode, response: Any) -> Any:
        node.limits = node.limits.__class__(piece=10_000)
        if response.position > 20_000:
            node.files.remove(next(name for name in node.files.names() if name.endswith(".checkpoint")))
            for name in node.files.names():
                if name.endswith(".checkpoint"):
                    node.files.remove(name)
        return sound(node, response)

    monkeypatch.setattr(QuorumNode, "_with_piece", cut)
    with pytest.raises(SystemFailure, match="does not send the snapshot to its end: there is no such snapshot"):
        taken([members.hosts[1]], tmp_path / "file")
    assert not list(tmp_path.glob("file*"))


def test_a_damaged_snapshot_is_not_kept(members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(members)
    sound = OsFiles.open

    def flipped(files: OsFiles, name: str, writable: bool = False) -> Any:
        file = sound(files, name, writable)
        if name.endswith(".checkpoint"):
            read = file.read
            file.read = lambda offset, size: read(offset, size)[:-600] + b"?" + read(offset, size)[-599:]  # type: ignore
        return file

    monkeypatch.setattr(OsFiles, "open", flipped)
    with pytest.raises(SystemFailure, match=r"the snapshot of 127\.0\.0\.1:\d+ cannot be used: .*cannot be read from"):
        taken([members.hosts[1]], tmp_path / "file")
    assert not list(tmp_path.glob("file*"))


def test_a_killed_backup_leaves_its_temporary_file_and_the_next_one_takes_it(members: Members, tmp_path: Path) -> None:
    filled(members)
    file = tmp_path / "file"
    code = (
        "import os, pathlib, sys\nfrom fencepost.metadata.backup import _new_file\n"
        "with _new_file(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'x' * 100_000), file.flush(), print('there', flush=True), sys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(file)], stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None and process.stdout.readline() == "there\n"
    with pytest.raises(SystemFailure, match="is being written by another process"):
        taken([members.hosts[1]], file)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert [each.name for each in tmp_path.glob("file*")] == ["file.new"]
    taken([members.hosts[1]], file)
    assert [each.name for each in tmp_path.glob("file*")] == ["file"] and backup.read(file)
    assert file.stat().st_mode & 0o777 == 0o640 & ~(os.umask(0o22) or 0o22)
    with pytest.raises(SystemFailure, match="file exists: name another"):
        taken([members.hosts[1]], file)


# -- who may -----------------------------------------------------------------------------------------------------------


async def test_only_operators_with_a_certificate_of_the_members_take_backups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, trusted = certificates.together("member"), certificates.authority()
    tls = PeerTls.of(TlsFiles(certificate=both, trusted=trusted))

    class Host(hosts.QuorumHost):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **{**named, "tls": tls})

    monkeypatch.setattr("quorum.hosts.QuorumHost", Host)
    async with TestCluster(tmp_path / "cluster") as cluster:
        await cluster.start()
        await cluster.propose(b"secret")
        endpoint = (await cluster.leader()).host.me.endpoint

        async def got(of: Tls | None, seconds: float) -> bytes:
            administrator, pieces = Administrator([endpoint], seconds, of), list[bytes]()
            try:
                await administrator.take_snapshot(pieces.append, lambda done, of: None)
            finally:
                await administrator.close()
            return b"".join(pieces)

        assert b"secret" in await got(certificates.client("operator"), 60.0)
        certificates.authority("users")
        ordinary = Tls(TlsFiles(certificate=certificates.together("ann", by="users"), trusted=trusted), is_server=False)
        for stranger in (None, certificates.client(), ordinary):
            with pytest.raises(SystemFailure):
                await got(stranger, 1.0)


def test_a_client_of_the_service_cannot_ask_for_one(members: Members) -> None:
    """The port of clients knows no such request, and nothing of the members' protocol."""
    client = Client(members.ports[1])
    client.connect(60_000)
    for kind in range(200, 210):
        client.kinds[client.xid + 1] = kind
        assert client.call([kind, []])[3] == -6
    endpoint = f"127.0.0.1:{members.ports[1]}"
    with pytest.raises(SystemFailure):
        taken([endpoint], members.path / "file", 1.0)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_takes_verifies_and_restores(
    members: Members, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(members)
    file, endpoints = str(tmp_path / "file"), ",".join(members.hosts.values())
    assert cli.main(["metadata", "backup", file, "--controllers", endpoints, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["znodes"], told["ephemerals"], told["sessions"]) == (26, 1, 1) and len(told["voters"]) == 3
    again = ["metadata", "backup", f"{file}2", "--metadata", f"zk://{members.addresses}/ledgers", "--json"]
    assert cli.main(again) == 0 and json.loads(capsys.readouterr().out)["zxid"] == told["zxid"]
    nobody = f"zk://127.0.0.1:{free_ports(1)[0]}/ledgers"
    assert cli.main(["metadata", "backup", f"{file}3", "--metadata", nobody]) == 153
    assert "says where it listens to operators" in capsys.readouterr().err
    assert cli.main(["metadata", "verify", file]) == 0
    assert (
        f"zxid        {told['zxid']:#x}\nznodes      26, 1 of them ephemeral, of 1 session" in capsys.readouterr().out
    )
    ports = free_ports(2)
    controllers = ",".join(f"{number}@127.0.0.1:{port}" for number, port in zip((4, 7), ports, strict=True))
    folders = [str(tmp_path / "4"), str(tmp_path / "7")]
    assert cli.main(["metadata", "restore", file, *folders, "--controllers", controllers]) == 0
    said = capsys.readouterr().out
    assert "1 session ended, with 1 ephemeral znode\n" in said
    assert f"member      7 at 127.0.0.1:{ports[1]}: fencepost metadata {folders[1]}\n" in said
    metas = [read_meta(OsFiles(each)) for each in folders]
    assert [each and each.key.host_id for each in metas] == [4, 7]
    assert len({each and each.cluster_id for each in metas}) == 1 != len({each and each.key for each in metas})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["backup"], "metadata backup takes a FILE; a service in ./backup is run by fencepost metadata ./backup"),
        (["backup", "f"], "give --metadata zk://HOST:PORT/ledgers, or --controllers HOST:PORT"),
        (["backup", "f", "--metadata", "nonsense"], "'nonsense' is no address of a metadata service"),
        (["backup", "f", "g"], "takes one FILE, and g is one argument too many"),
        (["verify", "f", "g"], "takes one FILE"),
        (["restore", "f"], "takes a FILE, and a DIR for each member"),
        (["restore", "f", "d", "e"], "2 directories are for as many members"),
        (["restore", "f", "d", "--controllers", "1@a:1,2@b:1"], "1 directories are for as many members"),
        (["restore", "f", "d", "--controllers", "a:1"], "a:1 is not a controller: give ID@HOST:PORT"),
        (["d", "e"], "d is not a verb (backup, verify, restore), and a service has one directory"),
        (["d", "--controllers", "a:1"], "a:1 is not a controller"),
    ],
)
def test_what_is_typed_wrong(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FENCEPOST_METADATA", raising=False)
    assert cli.main(["metadata", *words]) == 151
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1
