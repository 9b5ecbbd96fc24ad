"""Plants mutants in protocols, and prints what a configuration says of each, as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.mutants.judging import in_child, plant, warm
from bench.mutants.mutate import replaced
from bench.mutants.protocols import path_of
from fencepost import check
from fencepost.protocols import shipped


def main() -> None:
    """Plant what standard input tells: protocol, configuration, changes as (module, old, new)."""
    warm()
    for protocol, configuration, changes in json.load(sys.stdin):

        def task(
            tell: Callable[[Any], None],
            protocol: str = protocol,
            configuration: str = configuration,
            changes: Any = changes,
        ) -> None:
            texts = {module: path_of(module).read_text() for module, _, _ in changes}
            for module, old, new in changes:
                texts[module] = replaced(texts[module], old, new)
            for module, text in texts.items():
                plant(module, text)
            subject = shipped(protocol).configured(configuration)
            tell(check(subject, engine="embedded", workers=1, max_states=400_000).verdict)

        told, ended = in_child(task, 60.0)
        print(json.dumps(told[0] if told else ended), flush=True)


if __name__ == "__main__":
    main()
