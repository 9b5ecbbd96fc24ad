"""A cluster starts, suffers faults, ends and starts again, whatever happens to the process that runs it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ledger.cluster.standing import STAND_IN, Up, background, cluster, happened, is_there, part, plan
from patience import PATIENCE, until

from fencepost.errors import SYSTEM_FAILED, WRONG_OPTIONS, OptionError
from fencepost.ledger.cluster import control, four_letter_words
from fencepost.ledger.cluster.part import Part
from fencepost.ledger.cluster.plan import Plan
from fencepost.ledger.cluster.ports import Ports, free_ports, is_free
from fencepost.ledger.cluster.supervisor import Supervisor


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Start clusters. All of them are killed in the end."""
    started: list[Up] = []

    def start(*options: str, directory: Path = tmp_path / "store") -> Up:
        started.append(Up(directory, *options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A cluster of two bookies. Tests leave it as they found it."""
    started = Up(tmp_path_factory.mktemp("cluster") / "store", "--bookies", "2").serving()
    yield started
    started.process.kill()
    started.process.communicate()


def test_it_starts_in_order_and_ends_in_order_and_starts_again_with_the_same_ports(up: Callable[..., Up]) -> None:
    first = up().serving()
    directory = first.directory
    ports = {name: part(directory, name)["address"] for name in ("metadata", "1", "2", "3")}
    first.process.send_signal(signal.SIGINT)
    code, out, err = first.ended()
    assert (code, err) == (0, "")
    assert f"metadata   zk://{ports['metadata']}/ledgers\n" in out
    what = happened(directory)
    assert what[0] == "started metadata" and what[-1] == "stopped metadata"
    assert sorted(what[1:4]) == ["started bookie-1", "started bookie-2", "started bookie-3"]
    assert sorted(what[4:7]) == ["stopped bookie-1", "stopped bookie-2", "stopped bookie-3"]
    assert plan(directory)["processes"] == {} and plan(directory)["up"] is None

    again = up().serving()
    assert {name: part(directory, name)["address"] for name in ("metadata", "1", "2", "3")} == ports
    again.process.send_signal(signal.SIGTERM)
    assert again.ended()[0] == 0


def test_parts_are_killed_stopped_started_paused_and_resumed(running: Up) -> None:
    directory = running.directory
    place = str(directory)
    pid = part(directory, "1")["pid"]

    code, out, err = cluster("kill", place, "1")
    assert (code, err) == (0, "") and "down: ended by SIGKILL" in out
    assert not is_there(pid)
    assert cluster("kill", place, "1")[::2] == (
        WRONG_OPTIONS,
        f"fencepost: bookie 1 is down: fencepost cluster start {place} 1\n",
    )
    assert cluster("start", place, "1")[0] == 0
    assert part(directory, "1")["state"] == "serves" and part(directory, "1")["pid"] != pid

    assert cluster("pause", place, "metadata")[0] == 0
    assert part(directory, "metadata")["state"] == "paused"
    assert cluster("resume", place, "metadata")[0] == 0
    assert part(directory, "metadata")["state"] == "serves"

    code, out, _ = cluster("stop", place, "1", "2", "--json")
    assert code == 0
    assert [(p["name"], p["state"], p["reason"]) for p in json.loads(out)["parts"]][1:] == [
        ("1", "down", "stopped"),
        ("2", "down", "stopped"),
    ]
    assert cluster("start", place, "1", "2")[0] == 0


def test_a_paused_part_is_stopped_too(up: Callable[..., Up]) -> None:
    running = up("--bookies", "1").serving()
    assert cluster("pause", str(running.directory), "1", "metadata")[0] == 0
    running.process.send_signal(signal.SIGTERM)
    assert running.ended()[0] == 0
    assert happened(running.directory)[-2:] == ["stopped bookie-1", "stopped metadata"]


def test_what_others_do_to_a_part_is_seen(running: Up) -> None:
    directory = running.directory
    pid = part(directory, "1")["pid"]
    os.kill(pid, signal.SIGSTOP)
    until(lambda: part(directory, "1")["state"] == "paused", "a pause by somebody else to be seen")
    os.kill(pid, signal.SIGCONT)
    until(lambda: part(directory, "1")["state"] == "serves", "its end to be seen")
    os.kill(part(directory, "2")["pid"], signal.SIGABRT)
    until(lambda: part(directory, "2")["reason"] == "ended by SIGABRT", "a death to be seen")
    assert part(directory, "2")["state"] == "down", "nothing is started by itself"
    assert cluster("start", str(directory), "2")[0] == 0


def test_a_part_that_nobody_answers_for_is_silent(running: Up) -> None:
    directory = running.directory
    assert cluster("stop", str(directory), "1")[0] == 0
    (directory / "bookie-1" / "silent").touch()
    assert cluster("start", str(directory), "1")[0] == 0
    until(lambda: part(directory, "1")["state"] == "silent", "its silence to be seen")
    (directory / "bookie-1" / "silent").unlink()
    assert cluster("kill", str(directory), "1")[0] == 0
    assert cluster("start", str(directory), "1")[0] == 0


def test_a_directory_in_use_is_refused(running: Up) -> None:
    place = running.directory
    for options in ((), ("--detach",)):
        code, out, err = cluster("up", str(place), *options)
        said = (
            f"fencepost: a cluster runs in {place} already (process {running.process.pid}): fencepost cluster status"
            f" {place}\n"
        )
        assert (code, out, err) == (WRONG_OPTIONS, "", said)


def test_the_parts_end_with_a_process_that_is_killed_and_the_next_one_has_everything(up: Callable[..., Up]) -> None:
    running = up("--bookies", "2").serving()
    directory = running.directory
    pids = [part(directory, name)["pid"] for name in ("metadata", "1", "2")]
    os.kill(pids[1], signal.SIGSTOP)  # not even a paused one stays behind
    running.process.kill()
    running.ended()
    until(lambda: not any(map(is_there, pids)), "the parts to end")
    assert set(plan(directory)["processes"]) == {"metadata", "1", "2"}
    code, out, err = cluster("status", str(directory))
    assert (code, err) == (1, "") and out.count(" down") == 3
    assert cluster("kill", str(directory), "1")[::2] == (
        WRONG_OPTIONS,
        f"fencepost: no cluster runs in {directory}: fencepost cluster up {directory}\n",
    )
    up().serving()
    assert part(directory, "1")["pid"] not in pids


def test_the_processes_of_somebody_else_that_have_the_same_numbers_are_left_alone(up: Callable[..., Up]) -> None:
    running = up("--bookies", "1").serving()
    directory = running.directory
    running.process.kill()
    running.ended()
    kept = plan(directory)
    kept["processes"]["1"]["pid"] = os.getpid()  # the number is given again, to a process that started later
    (directory / "cluster.json").write_text(json.dumps(kept))
    up().serving()  # and this process is still here to see it


def test_a_process_that_was_left_behind_is_ended_first(up: Callable[..., Up]) -> None:
    running = up("--bookies", "1").serving()
    directory = running.directory
    other = up("--bookies", "1", directory=directory.with_name("other")).serving()
    kept = plan(directory)
    running.process.send_signal(signal.SIGTERM)
    running.ended()
    left = plan(other.directory)["processes"]["1"]
    kept["processes"] = {"1": left}
    (directory / "cluster.json").write_text(json.dumps(kept))
    up().serving()
    assert not is_there(left["pid"])


def test_a_part_that_fails_ends_the_start_and_its_last_words_are_told(up: Callable[..., Up]) -> None:
    running = up("--bookies", "2").serving()
    directory = running.directory
    running.process.send_signal(signal.SIGINT)
    running.ended()
    (directory / "bookie-2" / "fails").touch()
    code, out, err = up().ended()
    log = directory / "logs" / "bookie-2.log"
    reason = f"exit code 153: {directory / 'bookie-2'} is damaged: put it right"
    assert (code, err) == (
        SYSTEM_FAILED,
        f"fencepost: bookie 2 ended before it served: {reason} (all of it is in {log})\n",
    )
    assert f"down: {reason}\n" in out
    assert happened(directory)[-1] == "stopped metadata"
    assert background(directory)[::2] == (code, err)


def test_the_second_interrupt_kills(up: Callable[..., Up]) -> None:
    running = up("--bookies", "1").serving()
    directory = running.directory
    (directory / "bookie-1" / "deaf").touch()
    running.process.send_signal(signal.SIGINT)
    until(lambda: part(directory, "1")["state"] == "stopping", "the first interrupt to be heard")
    code, _, err = cluster("start", str(directory), "1")
    assert (code, err) == (WRONG_OPTIONS, f"fencepost: the cluster in {directory} stops\n")
    running.process.send_signal(signal.SIGINT)
    code, out, _ = running.ended()
    assert code == 0 and "down: ended by SIGKILL" in out


async def test_a_part_that_does_not_end_is_killed(tmp_path: Path) -> None:
    reasons = []

    (tmp_path / "bookie-1").mkdir()
    (tmp_path / "bookie-1" / "deaf").touch()
    command = [sys.executable, str(STAND_IN), "bookie", str(tmp_path / "bookie-1"), "--port", "0"]
    part = Part("1", 0, command, tmp_path / "logs" / "bookie-1.log", lambda part: reasons.append(part.reason))
    await part.start()
    await part.serving()
    await part.stop(patience=0.05)
    assert reasons[-1] == "killed, since it did not end within 0 s"


def test_an_interrupt_while_it_starts_ends_what_has_started(up: Callable[..., Up]) -> None:
    running = up()
    until((running.directory / "happened").exists, "the first part to start")
    running.process.send_signal(signal.SIGINT)
    assert running.ended()[0] == 0
    assert not any(is_there(process["pid"]) for process in plan(running.directory)["processes"].values())


def test_more_bookies_can_be_had_and_no_fewer(up: Callable[..., Up]) -> None:
    running = up("--bookies", "2").serving()
    directory, ports = running.directory, plan(running.directory)["bookie_ports"]
    running.process.send_signal(signal.SIGINT)
    running.ended()
    assert cluster("up", str(directory), "--bookies", "1")[::2] == (
        WRONG_OPTIONS,
        f"fencepost: {directory} has 2 bookies, and ledgers on them: give --bookies 2 or more\n",
    )
    for option in ("--metadata-port", "--bookie-port"):
        code, _, err = cluster("up", str(directory), option, "9")
        assert code == WRONG_OPTIONS and f"leave {option} out" in err
    up("--bookies", "3").serving()
    assert plan(directory)["bookie_ports"][:2] == ports and len(plan(directory)["bookie_ports"]) == 3


def test_the_metadata_service_may_be_a_quorum(up: Callable[..., Up]) -> None:
    running = up("--bookies", "1", "--members", "3").serving()
    directory, known = running.directory, plan(running.directory)
    members = ["metadata-1", "metadata-2", "metadata-3"]
    addresses = [part(directory, name)["address"] for name in members]
    assert addresses == [f"127.0.0.1:{port}" for port in known["metadata_ports"]]
    controllers = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(known["controller_ports"], 1))
    words = f"--port {known['metadata_ports'][1]} --id 2 --controllers {controllers}"
    assert words in (directory / "metadata-2" / "words").read_text()
    assert f"--metadata zk://{','.join(addresses)}/ledgers" in (directory / "bookie-1" / "words").read_text()
    assert cluster("kill", str(directory), "metadata-2")[0] == 0
    assert part(directory, "metadata-2")["state"] == "down" and part(directory, "metadata-3")["state"] == "serves"
    assert cluster("start", str(directory), "metadata-2")[0] == 0
    code, _, err = cluster("kill", str(directory), "metadata")
    assert code == WRONG_OPTIONS and "a number from 1 to 1, or metadata-1 or metadata-2 or metadata-3" in err
    running.process.send_signal(signal.SIGINT)
    code, out, _ = running.ended()
    assert code == 0 and f"metadata   zk://{','.join(addresses)}/ledgers\n" in out
    what = happened(directory)
    assert sorted(what[:3]) == [f"started {name}" for name in members] and what[3] == "started bookie-1"
    assert sorted(what[-3:]) == [f"stopped {name}" for name in members]
    for members_now in ("1", "2"):
        code, _, err = cluster("up", str(directory), "--members", members_now)
        assert code == WRONG_OPTIONS and "has 3 members: leave --members out" in err
    up(directory=directory).serving()
    assert plan(directory)["controller_ports"] == known["controller_ports"]
    code, _, err = cluster("up", str(directory), "--members", "8")
    assert code == WRONG_OPTIONS and "8 are too many for a quorum: give at most 7" in err


def test_any_member_tells_which_bookies_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {1: None, 2: "Zookeeper is not serving", 3: "SessionTracker dump:\n\t/ledgers/available/127.0.0.1:4\n"}

    async def ask(port: int, word: str, patience: float) -> str | None:
        return answers[port]

    monkeypatch.setattr(four_letter_words, "ask", ask)
    supervisor = Supervisor.__new__(Supervisor)
    supervisor.plan = Plan([1, 2, 3], [4], [5, 6, 7])
    assert asyncio.run(supervisor._registered()) == {"127.0.0.1:4": False}
    supervisor.plan = Plan([1, 2], [4], [5, 6])
    assert asyncio.run(supervisor._registered()) is None


def test_ports_can_be_chosen_and_must_be_free(running: Up, tmp_path: Path) -> None:
    taken = int(part(running.directory, "1")["address"].rpartition(":")[2])
    other = str(tmp_path / "other")
    for option in ("--metadata-port", "--bookie-port"):
        code, _, err = cluster("up", other, option, str(taken))
        assert (code, err) == (
            WRONG_OPTIONS,
            f"fencepost: {option} {taken}: somebody has 127.0.0.1:{taken} already\n",
        )
    code, _, err = cluster("up", other, "--bookie-port", "65534")
    assert code == WRONG_OPTIONS and "3 bookies need ports up to 65536" in err


def test_ten_clusters_that_start_at_once_have_ports_of_their_own(up: Callable[..., Up], tmp_path: Path) -> None:
    clusters = [up("--bookies", "1", directory=tmp_path / str(number)) for number in range(10)]
    ports = [port for each in clusters for port in _ports_of(each.serving().directory)]
    assert len(set(ports)) == 20
    # A port is its cluster's also while the part is down, and anybody's once the cluster has ended.
    first, second = clusters[:2]
    port = _ports_of(first.directory)[1]
    cluster("kill", str(first.directory), "1")
    code, _, err = cluster("up", str(tmp_path / "other"), "--bookie-port", str(port))
    assert code == WRONG_OPTIONS and f"somebody has 127.0.0.1:{port} already" in err
    second.process.kill()
    second.ended()
    until(lambda: all(map(is_free, _ports_of(second.directory))), "the parts to end with their cluster")
    with Ports() as taken:
        assert taken.take(_ports_of(first.directory)) == _ports_of(first.directory)[0]
        assert taken.take(_ports_of(second.directory)) is None


def test_ports_are_taken_all_or_none_and_once() -> None:
    first, second, third = free_ports(3)
    with Ports() as ours, Ports() as theirs:
        assert ours.take([second]) is None and ours.take([second]) == second
        assert theirs.take([first, second]) == second and theirs.take([third, third]) == third
        assert ours.take([first, third]) is None, "nothing was kept of what could not be taken"
        taken = theirs.take_free([first, second])
        assert len({*taken, first, second, third}) == 5
        theirs.keep([first])
        ours.close()
        assert theirs.take_free([first]) == [first]
        with socket.create_server(("127.0.0.1", 0)) as listener:
            assert theirs.take([listener.getsockname()[1]]) == listener.getsockname()[1]


def _ports_of(directory: Path) -> list[int]:
    """The ports of a cluster in its plan."""
    known = plan(directory)
    return [*known["metadata_ports"], *known["bookie_ports"]]


def test_it_goes_on_in_the_background(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    code, out, err = background(directory, "--bookies", "1")
    try:
        assert (code, err) == (0, "") and f"fencepost cluster down {directory}" in out
        assert part(directory, "1")["state"] == "serves"
    finally:
        code, out, err = cluster("down", str(directory))
    assert (code, err) == (0, "") and out.count(" down") == 2
    assert happened(directory)[-1] == "stopped metadata"


def test_settings_in_the_directory_are_those_of_the_parts(up: Callable[..., Up], tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    for name in ("bookie.toml", "metadata.toml"):
        (tmp_path / "store" / name).touch()
    running = up("--bookies", "1").serving()
    assert happened(running.directory) == ["started with metadata.toml metadata", "started with bookie.toml bookie-1"]


def test_every_change_is_a_line_of_json(up: Callable[..., Up]) -> None:
    running = up("--bookies", "1", "--json").serving()
    running.process.send_signal(signal.SIGINT)
    lines = [json.loads(line) for line in running.ended()[1].splitlines()]
    assert [[p["state"] for p in line["parts"]] for line in lines] == [
        ["starting", "down"],
        ["serves", "down"],
        ["serves", "starting"],
        ["serves", "serves"],
        ["serves", "stopping"],
        ["serves", "down"],
        ["stopping", "down"],
        ["down", "down"],
    ]
    assert lines[3]["state"] in ("starting", "up") and lines[-1]["state"] == "stopping"


@pytest.mark.parametrize("words", [("status",), ("down",), ("kill", "1")])
def test_a_directory_without_a_cluster_is_told(tmp_path: Path, words: tuple[str, ...]) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        code, out, err = cluster(words[0], str(place), *words[1:])
        assert (
            (code, out) == (WRONG_OPTIONS, "")
            and err.endswith(f" in {place}: fencepost cluster up {place}\n")
            and err.count("\n") == 1
        )


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    code, _, err = cluster("up", str(tmp_path))
    assert (code, err) == (
        WRONG_OPTIONS,
        (
            f"fencepost: {tmp_path} has thesis.txt in it, but no cluster (cluster.json): name a new or an empty"
            " directory\n"
        ),
    )


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        '{"metadata_ports": "x", "bookie_ports": []}',
        "\xff",
        '{"metadata_ports": [], "bookie_ports": [3]}',
        '{"metadata_ports": [1, 2], "bookie_ports": [3]}',
        '{"metadata_ports": [1], "bookie_ports": [3], "controller_ports": [4]}',
    ],
)
def test_a_damaged_plan_is_told_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_bytes(content.encode("latin-1"))
    for command in ("up", "status"):
        code, _, err = cluster(command, str(tmp_path))
        assert code == SYSTEM_FAILED and err.count("\n") == 1 and f"{tmp_path / 'cluster.json'} is damaged" in err


def test_a_plan_that_is_missing_or_older_than_the_parts_is_told(tmp_path: Path) -> None:
    for name in ("metadata", "bookie-1", "bookie-2"):
        (tmp_path / name).mkdir()
    for content, what in (
        ("", "cluster.json is missing, and bookie-1 is there"),
        ('{"metadata_ports": [2181], "bookie_ports": [3181]}', "cluster.json is an older copy, without bookie-2"),
    ):
        if content:
            (tmp_path / "cluster.json").write_text(content)
        code, _, err = cluster("up", str(tmp_path))
        assert code == SYSTEM_FAILED and err.count("\n") == 1 and what in err and "VERSION names" in err


def test_a_part_that_is_none_is_told(running: Up) -> None:
    directory = running.directory
    for name in ("3", "0", "meta"):
        code, _, err = cluster("stop", str(directory), "1", name)
        assert (code, err) == (
            WRONG_OPTIONS,
            f"fencepost: there is no {name} in {directory}: give a number from 1 to 2, or metadata\n",
        )
    assert part(directory, "1")["state"] == "serves"


def test_a_deep_directory_is_no_trouble(up: Callable[..., Up], tmp_path: Path) -> None:
    directory = tmp_path / ("deep" * 20) / ("deeper" * 20) / "store"
    up("--bookies", "1", directory=directory).serving()
    assert cluster("stop", str(directory), "1")[0] == 0


def test_a_terminal_has_a_live_table(tmp_path: Path) -> None:
    mine, theirs = pty.openpty()
    running = Up(tmp_path / "store", "--bookies", "1", stdout=theirs)
    os.close(theirs)
    seen = b""
    asked = False
    while block := _block(mine):
        seen += block
        if not asked and b"Ctrl-C stops the cluster" in seen:
            asked = True
            running.process.send_signal(signal.SIGINT)
    os.close(mine)
    assert running.ended()[0] == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
    assert re.search(r"^part +address +state +process +memory +up for", text, flags=re.M)
    assert re.search(r"^bookie 1 +127\.0\.0\.1:\d+ +serves +\d+ +[\d.]+ MiB +[\d.]+ s", text, flags=re.M)
    assert re.search(r"\d\d:\d\d:\d\d  bookie 1  127\.0\.0\.1:\d+  down: stopped", text, flags=re.M)
    assert "\x1b[32mserves" in seen.decode() and seen.decode().rstrip().endswith("\x1b[?25h"), "the cursor is back"


def test_a_terminal_that_is_closed_ends_the_cluster_cleanly(tmp_path: Path) -> None:
    mine, theirs = pty.openpty()
    running = Up(tmp_path / "store", "--bookies", "1", stdout=theirs)
    os.close(theirs)
    seen = b""
    while b"Ctrl-C stops the cluster" not in seen:
        seen += _block(mine)
    os.close(mine)
    running.process.send_signal(signal.SIGHUP)
    assert "Traceback" not in running.ended()[2]
    assert happened(running.directory)[-2:] == ["stopped bookie-1", "stopped metadata"]


def test_a_part_is_started_once_however_often_that_is_asked(running: Up) -> None:
    place = str(running.directory)
    assert cluster("kill", place, "1", "1")[0] == 0
    before = len(happened(running.directory))
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda _: _start(running.directory), range(4)))
    assert done.count("") == 1 and all(why.startswith("bookie 1 is ") for why in done if why)
    assert happened(running.directory)[before:] == ["started bookie-1"]


def _start(directory: Path) -> str:
    try:
        control.ask(directory, "start", ["1"])
    except OptionError as error:
        return str(error)
    return ""


def _block(terminal: int) -> bytes:
    assert select.select([terminal], [], [], PATIENCE)[0], "the cluster prints nothing more"
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # nobody has the other end any more
        return b""
