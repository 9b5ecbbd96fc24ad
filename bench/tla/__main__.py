"""``python -m bench.tla EXAMPLES``: checks the published TLA+ examples, and compares the answers with TLC's.

``EXAMPLES`` is a checkout of https://github.com/tlaplus/Examples. Its manifests say which models there are, their
verdicts and, for many, the numbers of states that TLC finds. Each model is checked by a process of its own.

    python -m bench.tla ../Examples --states-at-most 1000
    python -m bench.tla ../Examples --only 'ewd*' --limit 120 --json build/tla.json
    python -m bench.tla ../Examples -- --max-memory 8GiB   options after -- are those of fencepost check

The exit code is 0, or 1 if an answer differs from what is expected. A refusal is no answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.tla.exam import Ended, Runner, answer, command, heading, row, summary
from bench.tla.models import Model, chosen, read_models, with_results

Make = Callable[[float, Sequence[str]], Runner]


def processes(limit: float, options: Sequence[str]) -> Runner:
    """Runs each model by the command ``fencepost check``."""

    def run(model: Model) -> Ended:
        return command(model, limit, options)

    return run


def main(words: Sequence[str], make: Make = processes) -> int:
    """The command line. ``make`` gives what runs a model."""
    own, options = list(words), []
    if "--" in own:
        at = own.index("--")
        own, options = own[:at], own[at + 1 :]
    parser = argparse.ArgumentParser(
        prog="python -m bench.tla", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("examples", type=Path, metavar="EXAMPLES", help="a checkout of tlaplus/Examples")
    parser.add_argument(
        "--only", action="append", default=[], metavar="GLOB", help="models whose path matches; repeatable"
    )
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="of one model (default: 60)")
    parser.add_argument(
        "--states-at-most", type=int, metavar="N", help="models with published counts and so many distinct states"
    )
    parser.add_argument(
        "--tlc", type=Path, metavar="FILE", help="what TLC found in models without published counts, as JSON lines"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the answers there")
    given = parser.parse_args(own)
    try:
        models = read_models(given.examples.resolve())
    except FileNotFoundError as error:
        parser.error(str(error))
    if given.tlc is not None:
        models = with_results(models, given.tlc)
    run = make(given.limit, options)
    say = partial(print, flush=True)
    say(heading())
    answers = []
    for model in chosen(models, given.only, given.states_at_most):
        answers.append(answer(model, run(model)))
        say(row(answers[-1]))
    say()
    say(summary(answers))
    if given.json is not None:
        given.json.write_text(json.dumps([one.document() for one in answers], indent=1) + "\n")
    return int(any(one.wrong for one in answers))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
