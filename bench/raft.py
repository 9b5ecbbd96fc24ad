"""Raft, as etcd's library of that name takes its steps, and the conformance of the traces that it writes when it is
built ``with_tla``: lines of JSON whose ``tag`` is ``trace``.

It has elections, replication of logs, heartbeats, changes of the configuration one server at a time, and restarts.
Snapshots and learners are not covered. A file is one trace, and its events are taken in the order of its lines, as
their writer holds a lock while it writes one.

The rules are those of Ongaro's dissertation, and what etcd does where it leaves a choice: an answer to what is
committed already names the last committed entry, and a leader acknowledges its own entries with a message to itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    action,
    constant,
    initial,
    model_values,
    network,
    one_of,
    per_key,
    require,
    subsets,
)
from fencepost.traces.validation import Conformance, Event, NotCovered, ReadEvent, Step, like


class Role(Enum):
    FOLLOWER = "StateFollower"
    CANDIDATE = "StateCandidate"
    LEADER = "StateLeader"


Change = tuple[bool, ModelValue]
"""A server, and whether it comes or goes."""

Entry = tuple[int, Change | None]
"""The term of an entry, and how it changes the configuration."""


class Server(Record):
    """``last``: how many entries the log has. ``applied``: how many changes of the configuration were applied.
    ``saved``: what is there after a restart: the term, the vote, the log and the commit index.
    """

    role: Role = Role.FOLLOWER
    term: int = 0
    vote: ModelValue | None = None
    log: tuple[Entry, ...] = ()
    last: int = 0
    commit: int = 0
    members: frozenset[ModelValue] = frozenset()
    applied: int = 0
    granted: frozenset[ModelValue] = frozenset()
    saved: tuple[int, ModelValue | None, tuple[Entry, ...], int] = (0, None, (), 0)
    match: PerKey[ModelValue, int] = per_key(lambda p: p.servers, 0)

    def term_at(self, index: int) -> int:
        """The term of an entry; 0 before the first."""
        return self.log[index - 1][0] if index else 0

    def save(self) -> None:
        self.saved = self.term, self.vote, self.log, self.commit

    def follow(self, term: int) -> None:
        if term > self.term:
            self.term, self.vote = term, None
        self.role = Role.FOLLOWER


class VoteRequest(Message):
    term: int
    index: int
    last_term: int


class VoteResponse(Message):
    term: int
    granted: bool


class Append(Message):
    term: int
    index: int
    previous_term: int
    count: int
    commit: int
    entries: tuple[Entry, ...]


class AppendResponse(Message):
    term: int
    index: int
    accepted: bool


class Heartbeat(Message):
    term: int
    commit: int


class HeartbeatResponse(Message):
    term: int


KINDS = {"MsgVote": VoteRequest, "MsgVoteResp": VoteResponse, "MsgApp": Append, "MsgAppResp": AppendResponse,
         "MsgHeartbeat": Heartbeat, "MsgHeartbeatResp": HeartbeatResponse}  # fmt: skip


class Raft(Protocol):
    """``begun``: where each server begins: its term, the length of its log, its commit index, the members, and how many
    changes it has applied. The first entries of a log add the members.
    """

    servers = model_values("s", 3)
    begun: tuple[Any, ...] = constant(())

    server: PerKey[ModelValue, Server] = per_key(servers, Server)
    network: Network = network(dict.fromkeys(KINDS.values(), (servers, servers)), duplicates=True)

    @initial
    def begins(self) -> None:
        for s, (term, last, commit, members, applied) in zip(self.servers, self.begun, strict=True):
            me, added = self.server[s], [self.servers[number] for number in members]
            me.term, me.last, me.commit, me.applied = term, last, commit, applied
            me.log = tuple((1, (True, added[n]) if n < len(added) else None) for n in range(last))
            me.members = frozenset(added)
            me.save()

    # -- elections --

    @action(s=servers)
    def campaigns(self, s: ModelValue) -> None:
        me = self.server[s]
        require(me.role is not Role.LEADER and s in me.members)
        me.role, me.term, me.vote, me.granted = Role.CANDIDATE, me.term + 1, s, frozenset()

    @action(s=servers, to=servers)
    def asks_for_vote(self, s: ModelValue, to: ModelValue) -> None:
        me = self.server[s]
        require(me.role is Role.CANDIDATE and to != s)
        self.network.send(VoteRequest(me.term, me.last, me.term_at(me.last)), s, to)

    @action(s=servers)
    def votes_for_itself(self, s: ModelValue) -> None:
        me = self.server[s]
        require(me.role is Role.CANDIDATE and me.vote == s)
        self.network.send(VoteResponse(me.term, True), s, s)

    @action(s=servers)
    def receives_vote_request(self, s: ModelValue) -> None:
        me, asked = self.server[s], self.network.receive(VoteRequest, to=s)
        message = asked.message
        if message.term < me.term:
            self.network.reply(asked, VoteResponse(me.term, False))
            return
        if message.term > me.term:
            me.follow(message.term)
        is_free = me.vote in (None, asked.source) and me.role is Role.FOLLOWER
        is_recent = (message.last_term, message.index) >= (me.term_at(me.last), me.last)
        if is_free and is_recent:
            me.vote = asked.source
        self.network.reply(asked, VoteResponse(me.term, is_free and is_recent))

    @action(s=servers)
    def receives_vote_response(self, s: ModelValue) -> None:
        me, answer = self.server[s], self.network.receive(VoteResponse, to=s)
        if answer.message.term > me.term:
            me.follow(answer.message.term)
        elif answer.message.term == me.term and me.role is Role.CANDIDATE and answer.message.granted:
            me.granted |= {answer.source}

    @action(s=servers)
    def leads(self, s: ModelValue) -> None:
        me = self.server[s]
        require(me.role is Role.CANDIDATE and 2 * len(me.granted & me.members) > len(me.members))
        me.role = Role.LEADER
        for each in self.servers:
            me.match[each] = 0

    @action(s=servers)
    def steps_down(self, s: ModelValue) -> None:
        self.server[s].role = Role.FOLLOWER

    @action(s=servers)
    def restarts(self, s: ModelValue) -> None:
        me = self.server[s]
        me.role, me.granted, me.members, me.applied = Role.FOLLOWER, frozenset(), frozenset(), 0
        me.term, me.vote, me.log, me.commit = me.saved
        me.last = len(me.log)

    @action(s=servers)
    def is_given_members(self, s: ModelValue) -> None:
        """A server restarts, and its application knows who the members were."""
        self.server[s].members = one_of(subsets(self.servers))

    @action(s=servers)
    def saves(self, s: ModelValue) -> None:
        self.server[s].save()

    # -- logs --

    @action(s=servers)
    def appends(self, s: ModelValue) -> None:
        """A leader appends what a client proposes, or a change of the configuration."""
        me = self.server[s]
        require(me.role is Role.LEADER)
        change = one_of((None, *((comes, each) for each in self.servers for comes in (True, False))))
        me.log += ((me.term, change),)
        me.last += 1

    @action(s=servers, to=servers)
    def sends_entries(self, s: ModelValue, to: ModelValue) -> None:
        me = self.server[s]
        require(me.role is Role.LEADER)
        index = one_of(range(me.last + 1))
        count = one_of(range(me.last - index + 1))
        entries = me.log[index : index + count]
        self.network.send(Append(me.term, index, me.term_at(index), count, me.commit, entries), s, to)

    @action(s=servers, to=servers)
    def sends_heartbeat(self, s: ModelValue, to: ModelValue) -> None:
        me = self.server[s]
        require(me.role is Role.LEADER)
        self.network.send(Heartbeat(me.term, min(me.match[to], me.commit)), s, to)

    @action(s=servers)
    def acknowledges_its_own(self, s: ModelValue) -> None:
        me = self.server[s]
        self.network.send(AppendResponse(me.term, one_of(range(me.last + 1)), True), s, s)

    @action(s=servers)
    def receives_entries(self, s: ModelValue) -> None:
        me, sent = self.server[s], self.network.receive(Append, to=s)
        message = sent.message
        if message.term < me.term:
            return
        require(message.term > me.term or me.role is not Role.LEADER)
        me.follow(message.term)
        last = message.index + message.count
        if message.index < me.commit:
            self.network.reply(sent, AppendResponse(me.term, me.commit, True))
        elif message.index > me.last or me.term_at(message.index) != message.previous_term:
            self.network.reply(sent, AppendResponse(me.term, message.index, False))
        else:
            if me.log[message.index : last] != message.entries:
                same = 0
                while me.log[message.index + same : message.index + same + 1] == message.entries[same : same + 1]:
                    same += 1
                require(message.index + same >= me.commit)
                me.log = me.log[: message.index] + message.entries
                me.last = last
            me.commit = max(me.commit, min(message.commit, last))
            self.network.reply(sent, AppendResponse(me.term, last, True))

    @action(s=servers)
    def receives_heartbeat(self, s: ModelValue) -> None:
        me, sent = self.server[s], self.network.receive(Heartbeat, to=s)
        if sent.message.term < me.term:
            return
        require(sent.message.term > me.term or me.role is not Role.LEADER)
        me.follow(sent.message.term)
        require(sent.message.commit <= me.last)
        me.commit = max(me.commit, sent.message.commit)
        self.network.reply(sent, HeartbeatResponse(me.term))

    @action(s=servers)
    def receives_response(self, s: ModelValue) -> None:
        me, answer = self.server[s], self.network.receive(AppendResponse, to=s)
        if answer.message.term > me.term:
            me.follow(answer.message.term)
        elif answer.message.term == me.term and me.role is Role.LEADER and answer.message.accepted:
            me.match[answer.source] = max(me.match[answer.source], answer.message.index)

    @action(s=servers)
    def receives_heartbeat_response(self, s: ModelValue) -> None:
        me, answer = self.server[s], self.network.receive(HeartbeatResponse, to=s)
        if answer.message.term > me.term:
            me.follow(answer.message.term)

    @action(s=servers)
    def commits(self, s: ModelValue) -> None:
        """A leader commits what a majority has, if the last of it is of its own term."""
        me = self.server[s]
        require(me.role is Role.LEADER)
        held = sorted(me.match[each] for each in me.members)
        most = held[(len(held) - 1) // 2] if held else 0
        if most > me.commit and me.term_at(most) == me.term:
            me.commit = most

    @action(s=servers)
    def applies_change(self, s: ModelValue) -> None:
        """The next committed change is made."""
        me = self.server[s]
        changes = [change for _, change in me.log[: me.commit] if change is not None]
        require(me.applied < len(changes))
        comes, other = changes[me.applied]
        me.members = me.members | {other} if comes else me.members - {other}
        me.applied += 1


RECEIVED = {VoteRequest: "receives_vote_request", VoteResponse: "receives_vote_response", Append: "receives_entries",
            AppendResponse: "receives_response", Heartbeat: "receives_heartbeat",
            HeartbeatResponse: "receives_heartbeat_response"}  # fmt: skip
BEGINNING = ("InitState", "BecomeFollower", "ApplyConfChange")
UNSAID = {
    "MsgVote": ("entries", "commit", "vote", "reject", "rejectHint"),
    "MsgVoteResp": ("index", "logTerm", "entries", "commit", "vote", "rejectHint"),
    "MsgApp": ("vote", "reject", "rejectHint"),
    "MsgAppResp": ("entries", "commit", "vote"),
    "MsgHeartbeat": ("index", "logTerm", "entries", "vote", "reject", "rejectHint"),
    "MsgHeartbeatResp": ("index", "logTerm", "entries", "commit", "vote", "reject", "rejectHint"),
}
"""The fields that a kind of message leaves at their default."""


class EtcdRaft(Conformance):
    """Maps the events of etcd's raft to the steps of Raft."""

    name = "etcd-raft"
    protocol = Raft

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> ReadEvent | None:
        if record.get("tag") != "trace":
            return None
        return ReadEvent(record["event"]["name"], subject="raft", parameters=record["event"])

    def constants(self) -> Mapping[str, Any]:
        begun: dict[str, Mapping[str, Any]] = {}
        applied = Counter[str]()
        named, over, starting = set[str](), set[str](), dict[str, bool]()
        self.begins, self.starts = set[int](), set[int]()
        self.answers: dict[int, Mapping[str, Any]] = {}
        """The answer to each request that is received, by the number of the event that receives it; ``answering``: the
        numbers of the events that send one.
        """
        self.answering = set[int]()
        asked: dict[tuple[str, str], int] = {}
        for event in self.events:
            said = event.parameters
            if event.action.startswith("Receive") and event.action.endswith("Request"):
                asked[said["nid"], said["msg"]["from"]] = event.seq
            elif is_answer(said) and (said["nid"], said["msg"]["to"]) in asked:
                self.answers[asked.pop((said["nid"], said["msg"]["to"]))] = said["msg"]
                self.answering.add(event.seq)
            changes = said.get("prop", {}).get("cc", {}).get("changes", ()) if event.action == "ChangeConf" else ()
            named |= {said["nid"], said["state"]["vote"], *said["conf"][0], *(each["nid"] for each in changes)}
            named |= {said["msg"][end] for end in ("from", "to") if "msg" in said}
            if said["nid"] not in over and event.action in BEGINNING:
                begun[said["nid"]] = said
                applied[said["nid"]] += said["conf"][0] == _members_after(said) != []
                self.begins.add(event.seq)
            else:
                over.add(said["nid"])
            if event.action in ("InitState", "BecomeFollower"):
                starting[said["nid"]] = event.action == "InitState"
            elif starting.get(said["nid"]):
                self.starts.add(event.seq)
        self.server_names = sorted(named - {"0"}, key=lambda each: (len(each), each))
        numbers = {name: number for number, name in enumerate(self.server_names)}

        def first(said: Mapping[str, Any] | None) -> tuple[Any, ...]:
            if said is None:
                return 0, 0, 0, (), 0
            members, state = tuple(numbers[each] for each in _members_after(said)), said["state"]
            return state["term"], said["log"], state["commit"], members, applied[said["nid"]]

        return {"servers": len(numbers), "begun": tuple(first(begun.get(name)) for name in self.server_names)}

    def bind(self, protocol: Raft) -> None:
        self.called = dict(zip(self.server_names, protocol.servers, strict=True))

    def names(self) -> dict[str, str]:
        return {str(s): f"server {name}" for name, s in self.called.items()}

    def steps(self, event: Event) -> Iterator[Step]:
        said = event.parameters
        s = self.called[said["nid"]]
        known, message = self.told(said, s), said.get("msg")
        if event.seq in self.begins:
            return
        if message is not None:
            yield self.of_message(event, message, known)
            return
        mine = (("s", s),)
        match event.action:
            case "BecomeCandidate":
                yield Step("campaigns", mine, after=known)
            case "BecomeLeader":
                yield Step("leads", mine, after=known)
            case "BecomeFollower":
                yield Step("steps_down", mine, after=known[:2])  # written before the vote that goes with it
            case "InitState":
                yield Step("restarts", mine)  # written before it has read what it had saved
            case "Replicate":
                yield Step("appends", mine, (None,), before=known)
            case "ChangeConf":
                (change,) = said["prop"]["cc"]["changes"]
                if change["action"] == "AddLearner":
                    raise NotCovered(f"learner {change['nid']}")
                comes = change["action"] == "AddNewServer"
                yield Step("appends", mine, ((comes, self.called[change["nid"]]),), before=known)
            case "ApplyConfChange":
                members = frozenset(self.called[each] for each in _members_after(said))
                if event.seq in self.starts:
                    yield Step("is_given_members", mine, (members,))
                else:
                    yield Step("applies_change", mine, after=((("server", s, "members"), members),))
            case "Commit":
                yield Step("commits", mine, after=known)
            case "Ready":
                yield Step("saves", mine, after=known)
            case _:
                raise NotCovered(f"the event {event.action}")

    def told(self, said: Mapping[str, Any], s: ModelValue) -> tuple[Any, ...]:
        """What an event says of its server."""
        found = said["state"]
        vote = self.called[found["vote"]] if found["vote"] != "0" else None
        members = frozenset(self.called[each] for each in said["conf"][0])
        values = {"role": Role(said["role"]), "term": found["term"], "vote": vote, "last": said["log"],
                  "commit": found["commit"], "members": members}  # fmt: skip
        return tuple((("server", s, name), value) for name, value in values.items())

    def of_message(self, event: Event, message: Mapping[str, Any], known: tuple[Any, ...]) -> Step:
        if message["type"] not in KINDS:
            raise NotCovered(f"a message {message['type']}")
        said, kind, fields = event.parameters, KINDS[message["type"]], self.fields(message)
        is_receipt = said["name"].startswith("Receive")
        source, to = self.called[message["from"]], self.called[message["to"]]
        wrong = "" if said["nid"] == message["to" if is_receipt else "from"] else f"it is no message of {said['nid']}"
        unsaid = UNSAID[message["type"]]
        if message["type"] == "MsgAppResp" and not message["reject"]:
            unsaid += ("logTerm", "rejectHint")
        for field in unsaid:
            if message[field] not in (0, "0", False):
                wrong = f"a {message['type']} has no {field}"
        if is_receipt:
            answer = self.answers.get(event.seq)
            sent = (("send", like(**self.fields(answer))),) if answer is not None else ()
            return Step(RECEIVED[kind], (("s", to),), (source, like(**fields)), before=known, tells=sent, wrong=wrong)
        if is_answer(said):  # it is sent where the request is received
            if event.seq not in self.answering:
                wrong = "it answers no request"
            if kind is VoteResponse:  # written before the vote is given
                known = tuple(each for each in known if each[0][-1] != "vote")
            return Step(None, after=known, wrong=wrong)
        ends, sent = (("s", source), ("to", to)), (("send", like(**fields)),)
        action, parameters, picks = {
            "MsgVote": ("asks_for_vote", ends, ()),
            "MsgVoteResp": ("votes_for_itself", ends[:1], ()),
            "MsgApp": ("sends_entries", ends, (fields.get("index"), fields.get("count"))),
            "MsgHeartbeat": ("sends_heartbeat", ends, ()),
        }.get(message["type"], ("acknowledges_its_own", ends[:1], (fields.get("index"),)))
        return Step(action, parameters, picks, tells=sent, after=known, wrong=wrong)

    def fields(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a message that the trace says."""
        of = {
            "MsgVote": {"index": message["index"], "last_term": message["logTerm"]},
            "MsgVoteResp": {"granted": not message["reject"]},
            "MsgApp": {"index": message["index"], "previous_term": message["logTerm"], "count": message["entries"],
                       "commit": message["commit"]},
            "MsgAppResp": {"index": message["index"], "accepted": not message["reject"]},
            "MsgHeartbeat": {"commit": message["commit"]},
            "MsgHeartbeatResp": {},
        }  # fmt: skip
        return {"term": message["term"], **of[message["type"]]}


def is_answer(said: Mapping[str, Any]) -> bool:
    """Whether an event sends an answer to another server."""
    message = said.get("msg")
    return (
        message is not None
        and said["name"].startswith("Send")
        and message["type"].endswith("Resp")
        and message["from"] != message["to"]
    )


def _members_after(said: Mapping[str, Any]) -> list[str]:
    """The members after an event: the new ones where it applies a change."""
    if said["name"] != "ApplyConfChange":
        return list(said["conf"][0])
    return list(said["prop"]["cc"].get("newconf") or ())
