"""The conformance of etcd's raft, with traces as that library writes them."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.raft import EtcdRaft
from bench.validate import Timed
from fencepost.traces import read
from fencepost.traces.foreign import Foreign
from fencepost.traces.validation.outcome import Outcome, judged
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator

Line = dict[str, Any]
FOLLOWER, CANDIDATE, LEADER = "StateFollower", "StateCandidate", "StateLeader"


class Writer:
    """Writes lines of a cluster. ``servers`` have what each says of itself: it is changed before or after an event."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.servers: dict[str, Line] = {}

    def event(self, name: str, nid: str, msg: Line | None = None, prop: Line | None = None, **changed: Any) -> None:
        me = self.servers[nid]
        me |= changed
        said = {"name": name, "nid": nid, "state": {each: me[each] for each in ("term", "vote", "commit")},
                "role": me["role"], "log": me["log"], "conf": [me["conf"], []]}  # fmt: skip
        said |= ({"msg": msg} if msg else {}) | ({"prop": prop} if prop else {})
        self.lines.append({"level": "debug", "tag": "trace", "event": copy.deepcopy(said)})

    def message(self, verb: str, kind: str, source: str, to: str, **fields: Any) -> None:
        kinds = {"MsgVote": "RequestVoteRequest", "MsgVoteResp": "RequestVoteResponse"}
        of = kinds.get(kind, "AppendEntriesResponse" if kind.endswith("Resp") else "AppendEntriesRequest")
        said = {"type": kind, "from": source, "to": to, "term": 2, "entries": 0, "logTerm": 0, "index": 0, "commit": 0,
                "vote": "0", "reject": False, "rejectHint": 0}  # fmt: skip
        self.event(f"{verb}{of}", source if verb == "Send" else to, said | fields)


def written() -> list[Line]:
    """Three servers elect the first, which commits an entry and removes the third. The second restarts."""
    w = Writer()
    w.lines.append({"level": "info", "msg": "no event"})
    for nid in "123":
        w.servers[nid] = {"term": 0, "vote": "0", "commit": 0, "role": FOLLOWER, "log": 0, "conf": []}
        w.event("InitState", nid)
        w.event("ApplyConfChange", nid, prop={"cc": {}})
        w.event("BecomeFollower", nid, term=1)
        w.servers[nid] |= {"log": 3, "commit": 3}
        for count in (1, 2, 3):
            w.event("ApplyConfChange", nid, prop={"cc": {"newconf": [*"123"[:count]]}})
            w.servers[nid]["conf"] = [*"123"[:count]]
    for _ in range(3):  # what was applied at the beginning is applied once more
        w.event("ApplyConfChange", "1", prop={"cc": {"newconf": ["1", "2", "3"]}})
    one, two = w.servers["1"], w.servers["2"]
    w.event("BecomeCandidate", "1", term=2, vote="1", role=CANDIDATE)
    w.message("Send", "MsgVote", "1", "2", index=3, logTerm=1)
    w.message("Send", "MsgVote", "1", "3", index=3, logTerm=1)
    w.message("Send", "MsgVoteResp", "1", "1")
    w.event("Ready", "1")
    w.message("Receive", "MsgVoteResp", "1", "1")
    w.message("Receive", "MsgVote", "1", "2", index=3, logTerm=1)
    w.event("BecomeFollower", "2", term=2)
    w.message("Send", "MsgVoteResp", "2", "1")
    w.event("Ready", "2", vote="1")
    w.message("Receive", "MsgVoteResp", "2", "1")
    w.event("BecomeLeader", "1", role=LEADER)
    w.event("Replicate", "1")
    commits = 3
    for index in (3, 4):
        if index == 4:
            w.event("ChangeConf", "1", prop={"cc": {"changes": [{"nid": "3", "action": "RemoveServer"}]}})
        one["log"] = index + 1
        w.message("Send", "MsgAppResp", "1", "1", index=index + 1)
        given = {"index": index, "logTerm": index - 2, "entries": 1, "commit": commits}
        w.message("Send", "MsgApp", "1", "2", **given)
        w.event("Ready", "1")
        w.message("Receive", "MsgAppResp", "1", "1", index=index + 1)
        w.event("Commit", "1")
        w.message("Receive", "MsgApp", "1", "2", **given)
        two |= {"log": index + 1, "commit": commits}
        w.message("Send", "MsgAppResp", "2", "1", index=index + 1)
        w.event("Ready", "2")
        w.message("Receive", "MsgAppResp", "2", "1", index=index + 1)
        commits = index + 1
        w.event("Commit", "1", commit=commits)
    w.event("ApplyConfChange", "1", prop={"cc": {"newconf": ["1", "2"]}})
    one["conf"] = ["1", "2"]
    w.message("Send", "MsgHeartbeat", "1", "2", commit=5)
    w.message("Receive", "MsgHeartbeat", "1", "2", commit=5)
    two["commit"] = 5
    w.message("Send", "MsgHeartbeatResp", "2", "1")
    w.message("Receive", "MsgHeartbeatResp", "2", "1")
    saved = {name: two[name] for name in ("term", "vote", "log")}
    w.event("InitState", "2", term=0, vote="0", commit=0, conf=[])  # it has not saved what it committed last
    w.event("ApplyConfChange", "2", prop={"cc": {"newconf": ["1", "2"]}})
    w.event("BecomeFollower", "2", conf=["1", "2"], commit=4, **saved)
    w.event("Ready", "2")
    w.event("BecomeFollower", "1", role=FOLLOWER)
    w.event("Ready", "1")
    return w.lines


def outcome_of(folder: Path, lines: list[Line]) -> Outcome:
    path = folder / "raft.ndjson"
    path.write_text("\n".join(map(json.dumps, lines)))
    traces = Traces(read(path, foreign=Foreign(EtcdRaft.read)))
    (name,) = traces.names()
    return judged(Validator(EtcdRaft), *name, lambda: traces.events(name))


def test_what_raft_writes_is_accepted(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, written())
    assert outcome.accepted, (outcome.problem, outcome.refusals)
    assert outcome.steps == outcome.taken > 40


STATES = [("state", "term"), ("state", "commit"), ("log",)]
MESSAGES = [("msg", "term"), ("msg", "index"), ("msg", "logTerm"), ("msg", "entries"), ("msg", "commit"),
            ("msg", "vote"), ("msg", "reject"), ("msg", "rejectHint")]  # fmt: skip


def checked(event: Line) -> Iterator[tuple[str, ...]]:
    """The numbers of an event that the conformance compares."""
    if event["name"] in ("InitState", "ApplyConfChange"):
        return
    yield from STATES[:1] if event["name"] == "BecomeFollower" else STATES
    if "msg" in event:
        yield from MESSAGES


def test_every_number_that_is_compared_is_noticed(tmp_path: Path) -> None:
    lines, count = written(), 0
    over = next(n for n, line in enumerate(lines) if line.get("event", {}).get("name") == "BecomeCandidate")
    for number in range(over, len(lines)):
        for *inner, last in checked(lines[number]["event"]):
            tampered = copy.deepcopy(lines)
            place = tampered[number]["event"]
            for name in inner:
                place = place[name]
            place[last] = not place[last] if last == "reject" else type(place[last])(int(place[last]) + 1)
            outcome = outcome_of(tmp_path, tampered)
            assert not outcome.accepted and not outcome.raised, (number, lines[number], inner, last)
            count += 1
    assert count > 120


NEEDED = ("BecomeCandidate", "SendRequestVoteRequest", "ReceiveRequestVoteRequest", "BecomeLeader", "Replicate",
          "ChangeConf", "ReceiveAppendEntriesRequest")  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
def test_an_event_that_is_missing_is_noticed(tmp_path: Path, name: str) -> None:
    lines = written()
    number = next(n for n, line in enumerate(lines) if line.get("event", {}).get("name") == name)
    assert not outcome_of(tmp_path, lines[:number] + lines[number + 1 :]).accepted


def test_what_is_not_covered_is_told(tmp_path: Path) -> None:
    lines = written()
    lines[-1]["event"]["name"] = "Merge"
    assert outcome_of(tmp_path, lines).verdict == "not covered"


def test_the_bench_validates_a_folder(tmp_path: Path) -> None:
    (tmp_path / "good.ndjson").write_text("\n".join(map(json.dumps, written())))
    command = [sys.executable, "-m", "bench.validate", "--raft", str(tmp_path)]
    good = subprocess.run(command, capture_output=True, text=True)
    assert good.returncode == 0 and "good, accepted" in good.stdout, good.stderr
    lines = written()
    del lines[-3:-2]
    lines[-1]["event"]["log"] = 9
    (tmp_path / "bad.ndjson").write_text("\n".join(map(json.dumps, lines)))
    bad = subprocess.run(command, capture_output=True, text=True)
    assert bad.returncode == 1 and "bad, rejected" in bad.stdout and "1 of 2 traces are not accepted" in bad.stderr
    none = subprocess.run([*command[:-1], str(tmp_path / "none")], capture_output=True, text=True)
    assert none.returncode == 1 and none.stderr.startswith("there are no traces of raft in")


def test_work_between_two_ticks_of_the_clock_has_a_rate() -> None:
    for _ in range(20):
        with Timed() as timed:
            pass
        assert "1 events in" in timed.told(1)
