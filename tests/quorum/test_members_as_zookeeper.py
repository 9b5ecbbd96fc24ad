"""A member of a quorum, leader or follower, answers random work as ZooKeeper 3.9.3 did."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaigns import campaign_if
from metadata.workload import Run, read
from quorum.members import Members

OTHERS = Path(__file__).parents[1] / "metadata"


@pytest.mark.parametrize("role", ["follower", *campaign_if(bool, ["leader"])])
def test_every_answer_and_event_is_zookeepers(tmp_path: Path, role: str) -> None:
    members = Members(tmp_path, 3, tickTime=500, minSessionTimeout=1_000)
    members.be_patient()
    try:
        members.start()
        member = members.leader if role == "leader" else members.followers[0]
        steps, reports = zip(*map(read, (OTHERS / "zookeeper-3.9.3.jsonl").read_text().splitlines()), strict=True)
        run = Run(members.ports[member])
        for step, expected, found in zip(steps, reports, run.run(steps), strict=True):
            assert found == expected, step
        run.close()
        members.agree()
    finally:
        members.close()
