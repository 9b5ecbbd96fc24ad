"""One exploration, as asked for in JSON on the command line; its figures in JSON on standard output."""

from __future__ import annotations

import json
import sys

from fencepost import Options, check
from fencepost.protocols import shipped


def main() -> None:
    """Explore and print."""
    request = json.loads(sys.argv[1])
    options = Options(workers=request["workers"], max_states=request.get("max_states"))
    # What every process pays once (loading the compiled loops) is measured apart, by whole commands.
    check(shipped("ledger-chaining")(clients=1), engine=request.get("engine", "embedded"), options=Options(workers=request["workers"]))
    protocol = shipped(request["protocol"])(**request["constants"])
    result = check(protocol, engine=request.get("engine", "embedded"), options=options)
    print(
        json.dumps(
            {
                "distinct": result.distinct_states,
                "seconds": result.seconds,
                "evaluations": result.evaluations,
                "peak_memory": result.peak_memory_bytes,
                "profile": {k: v for k, v in result.profile.items() if k in ("seconds", "memory")},
            }
        )
    )


if __name__ == "__main__":
    main()
