"""An exploration, once or several times in one process, as asked for in JSON on the command line; figures in JSON."""

from __future__ import annotations

import json
import sys

from fencepost import check
from fencepost.language.loading import shipped


def main() -> None:
    """Explore and print."""
    request = json.loads(sys.argv[1])
    options = {name: request[name] for name in ("workers", "max_states", "walks") if name in request}
    # What every process pays once (loading the compiled loops) is measured apart, by whole commands.
    engine = request.get("engine", "embedded")
    check(shipped("ledger-chaining")(clients=1), engine=engine, workers=request["workers"])
    figures = []
    for _ in range(request.get("times", 1)):
        result = check(shipped(request["protocol"])(**request["constants"]), engine=engine, **options)
        figures.append(
            {
                "distinct": result.distinct_states,
                "seconds": result.seconds,
                "steps": result.walks.steps if result.walks else 0,
                "evaluations": result.evaluations,
                "peak_memory": result.peak_memory_bytes,
                "profile": {k: v for k, v in result.profile.items() if k in ("seconds", "memory")},
            }
        )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
