"""The service answers random work as ZooKeeper 3.9.3 did, step by step.

``interop/metadata_differential.py`` recorded ZooKeeper's answers. It also compares the two servers side by side.
"""

from __future__ import annotations

from pathlib import Path

from metadata.servers import Serve
from metadata.workload import Run, read

RECORDED = Path(__file__).parent / "zookeeper-3.9.3.jsonl"


def test_every_answer_and_event_is_zookeepers(serve: Serve) -> None:
    server = serve(tickTime=500, minSessionTimeout=1_000)
    steps, reports = zip(*map(read, RECORDED.read_text().splitlines()), strict=True)
    run = Run(server.port)
    for step, expected, found in zip(steps, reports, run.run(steps), strict=True):
        assert found == expected, step
    run.close()
