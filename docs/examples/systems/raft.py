from enum import Enum

from fencepost import ModelValue, PerKey, Protocol, Record, action, constant, invariant, model_values, per_key, require


class Role(Enum):
    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


class Entry(Record):
    term: int
    value: str = ""
    """Empty for the entry with which a leader begins."""


class Node(Record):
    role: Role = Role.FOLLOWER
    term: int = 0
    log: tuple[Entry, ...] = (Entry(term=0),)
    first: int = 1
    """The index of the first entry that is still there. Those before it were compacted."""
    commit: int = 1


class Raft(Protocol):
    """Raft as its paper has it: elections, replication, and snapshots. A pair of nodes talks until nothing is left to
    say, or until the connection is lost. Indices are counted from 1.
    """

    nodes = model_values("n", 3)
    most_terms: int = constant(2)
    values: tuple[str, ...] = constant(("x", "y"))

    commits_what_it_has: bool = constant(False, "a part of a snapshot says what is committed, and a node believes it")

    node: PerKey[ModelValue, Node] = per_key(nodes, Node)

    @action(n=nodes, p=nodes)
    def is_elected(self, n: ModelValue, p: ModelValue) -> None:
        """Its timer runs out, and one other node votes for it."""
        me, voter = self.node[n], self.node[p]
        require(n != p and me.role is not Role.LEADER and me.term < self.most_terms)
        require(voter.term <= me.term)
        require((me.log[-1].term, len(me.log)) >= (voter.log[-1].term, len(voter.log)))
        me.term += 1
        me.role = Role.LEADER
        voter.term = me.term
        voter.role = Role.FOLLOWER
        me.log += (Entry(term=me.term),)

    @action(n=nodes)
    def submits(self, n: ModelValue) -> None:
        """A client gives the next value to a leader."""
        me = self.node[n]
        given = {entry.value for other in self.nodes for entry in self.node[other].log}
        left = [value for value in self.values if value not in given]
        require(me.role is Role.LEADER and len(left) > 0)
        me.log += (Entry(term=me.term, value=left[0]),)

    @action(n=nodes, p=nodes)
    def replicates(self, n: ModelValue, p: ModelValue) -> None:
        """A leader sends another node what that does not have, and then what is committed."""
        me, other = self.node[n], self.node[p]
        require(n != p and me.role is Role.LEADER and other.term <= me.term)
        other.term = me.term
        other.role = Role.FOLLOWER
        if not self.can_follow(me, other):
            other.first = me.first
        other.log = me.log
        for index in range(me.commit + 1, len(me.log) + 1):
            have = [o for o in self.nodes if self.node[o].log[:index] == me.log[:index]]
            if 2 * len(have) > len(self.nodes) and me.log[index - 1].term == me.term:
                me.commit = index
        other.commit = me.commit

    @action(n=nodes)
    def compacts(self, n: ModelValue) -> None:
        """It replaces what it applied by a snapshot, but for the last two entries."""
        me = self.node[n]
        require(me.commit > 2 and me.first < me.commit - 1)
        me.first = me.commit - 1

    @action(n=nodes, p=nodes)
    def sends_part_of_a_snapshot(self, n: ModelValue, p: ModelValue) -> None:
        """The other node needs entries that were compacted. The connection is lost before it has all of a snapshot."""
        me, other = self.node[n], self.node[p]
        require(n != p and me.role is Role.LEADER and other.term <= me.term)
        require(not self.can_follow(me, other))
        other.term = me.term
        other.role = Role.FOLLOWER
        if self.commits_what_it_has:
            other.commit = max(other.commit, min(me.commit, len(other.log)))

    def can_follow(self, leader: Node, other: Node) -> bool:
        """Whether it needs no snapshot."""
        return other.log[: leader.first] == leader.log[: leader.first]

    def applied(self, n: ModelValue) -> list[str]:
        return [entry.value for entry in self.node[n].log[: self.node[n].commit] if entry.value]

    @invariant
    def all_apply_the_same(self) -> bool:
        logs = [self.applied(n) for n in self.nodes]
        return all(a[: len(b)] == b[: len(a)] for a in logs for b in logs)
