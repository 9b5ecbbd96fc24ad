"""Plants mutants in protocols, and prints the verdict on each as JSON lines. The judge is a configuration (``small``),
perhaps with other constants (``small clients=1``) or for one property only (``small:type_ok``), or the simulator
(``seed 2``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from bench.mutants.judging import in_child, plant, warm
from bench.mutants.mutate import replaced
from bench.mutants.protocols import SUBJECTS, path_of
from bench.mutants.simulated import simulate
from fencepost import SearchOptions, check
from fencepost.language.loading import shipped


def verdict(protocol: str, who: str) -> str:
    """The violated property or the broken promise, or ``holds``."""
    if who.startswith("seed "):
        seed = int(who.removeprefix("seed "))
        runs = simulate(SUBJECTS[protocol], range(seed, seed + 1), 0)
        return next((run["promise"].partition(":")[0] for run in runs if run["promise"]), "holds")
    named, _, judged = who.partition(":")
    configuration, *constants = named.split()
    changed = {name: int(value) for name, _, value in (each.partition("=") for each in constants)}
    subject = shipped(protocol).configured(configuration, **changed)
    options = SearchOptions(workers=1, max_states=400_000)
    return check(subject, engine="embedded", invariants=[judged] if judged else None, options=options).verdict


def main() -> None:
    """Plant the mutants of standard input: the protocol, the judge, and changes as (module, old, new)."""
    warm()
    for protocol, who, changes in json.load(sys.stdin):

        def task(tell: Callable[[Any], None], protocol: str = protocol, who: str = who, changes: Any = changes) -> None:
            texts: dict[str, str] = {}
            for module, old, new in changes:
                texts[module] = replaced(texts.get(module) or path_of(module).read_text(), old, new)
            for module, text in texts.items():
                plant(module, text)
            tell(verdict(protocol, who))

        told, ended = in_child(task, 60.0)
        print(json.dumps(told[0] if told else ended), flush=True)


if __name__ == "__main__":
    main()
