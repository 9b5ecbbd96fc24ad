"""``fencepost check``: explore every state of a protocol, and judge what was found."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from fencepost import arguments, errors, interrupts, loading
from fencepost.commands import results
from fencepost.errors import OptionError, SystemFailure
from fencepost.spec.protocol import Protocol


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``fencepost check``."""
    parser.add_argument("protocol", metavar="PROTOCOL", help="a shipped name, FILE.py or FILE.py:ClassName")

    what = parser.add_argument_group("what is checked")
    arguments.add_constants(what)
    what.add_argument(
        "--invariant",
        metavar="NAME",
        action="append",
        dest="invariants",
        help=(
            "check this property only: an invariant, a refinement, a temporal one, or what is to be sometimes true"
            " (repeatable)"
        ),
    )
    what.add_argument("--deadlock", action="store_true", help="look for states that have no successor")
    what.add_argument(
        "--expect",
        metavar="VERDICT",
        help=(
            "what the check is to come to: holds, reached, deadlock or what is violated, or configuration for what that"
            " of --config says; exit code 0 if it does, 2 if it comes to something else"
        ),
    )
    what.add_argument("--continue", action="store_true", dest="keep_going", help="go on after a violation")

    limits = parser.add_argument_group("limits (a search that reaches one ends with exit code 152)")
    limits.add_argument("--max-states", metavar="N", type=arguments.count, help="distinct states")
    limits.add_argument(
        "--max-depth", metavar="N", type=arguments.count, help="levels, the initial states being the first"
    )
    limits.add_argument("--max-memory", metavar="SIZE", type=arguments.size, help="memory of the process: 16GiB, 500M")
    limits.add_argument("--timeout", metavar="SECONDS", type=arguments.seconds, help="seconds")

    shown = parser.add_argument_group("results")
    results.add_options(shown)
    shown.add_argument(
        "--states",
        metavar="DIR",
        type=arguments.place,
        help="every state as a table, in Parquet files, in a new directory or at a URL: see fencepost query",
    )
    shown.add_argument("--edges", action="store_true", help="with --states: every step too")
    shown.add_argument("--profile", action="store_true", help="say where the time went")

    running = parser.add_argument_group("how it is run")
    running.add_argument(
        "--engine",
        metavar="NAME",
        default="auto",
        help="auto, embedded (compiled), reference (plain Python), spark, or simulate (random walks)",
    )
    running.add_argument("--workers", metavar="N", type=arguments.workers, help="threads; by default one for each core")
    running.add_argument(
        "--checking", action="store_true", help="catch a protocol that depends on more than its state; slow"
    )
    running.add_argument(
        "--symmetry",
        metavar="NAME,...",
        nargs="?",
        help=(
            "explore one state of each that differ only in who is who: among the members of all constants that are"
            " declared symmetric, or of --symmetry=NAME,..."
        ),
    )
    running.add_argument(
        "--checkpoint", metavar="DIR", type=arguments.place, help="save the search there while it runs"
    )
    running.add_argument("--resume", metavar="DIR", type=arguments.place, help="go on from a saved search")
    walking = parser.add_argument_group("random walks (--engine simulate, which never finds that a protocol holds)")
    walking.add_argument(
        "--walks",
        metavar="N",
        type=arguments.count,
        help="how many; by default 10,000, with --timeout as many as it allows",
    )
    walking.add_argument("--depth", metavar="N", type=arguments.count, help="the most states of a walk; by default 100")
    walking.add_argument(
        "--seed", metavar="N", type=arguments.number, help="the seed of all that is random; by default any"
    )
    walking.add_argument(
        "--walk", metavar="N", type=arguments.number, help="take walk N of a seed again, and show it whole"
    )
    running.add_argument(
        "--fingerprint-bits", metavar="64|128", type=arguments.bits, dest="bits", help="128 beyond a billion states"
    )

    spark = parser.add_argument_group(
        "on Spark (--engine spark, whose checkpoints can be at a URL; --engine simulate with --master)"
    )
    arguments.add_spark(spark)
    spark.add_argument(
        "--handover",
        metavar="N",
        type=arguments.count,
        help="the largest level that is expanded in this process (1,000,000, or what memory allows)",
    )
    spark.add_argument(
        "--checkpoint-every",
        metavar="N",
        type=arguments.count,
        dest="checkpoint_levels",
        help="levels between two checkpoints (1)",
    )


def run(given: argparse.Namespace) -> int:
    """Check a protocol, and show what was found."""
    from fencepost.check import check

    protocol = loading.configured(loading.load(given.protocol), given.config, given.define, given.protocol)
    if not protocol.declared("action"):
        raise errors.NotAProtocol(
            f"{given.protocol} has no actions, so there is nothing to check: mark its steps with @action"
        )
    expected = results.expected(given, protocol)
    options = _options(given, expected)
    shown = results.Results(given, protocol)
    try:
        with _progress(protocol) as report:
            result = check(protocol, engine=given.engine, invariants=given.invariants, report=report, **options)
    except ImportError as error:
        if interrupts.was_interrupted(error):
            raise
        raise SystemFailure(
            f"the {given.engine} engine can not start: {error} ({{engine}} reference needs no libraries)", "engine"
        ) from error
    return shown.show(result)


def _options(given: argparse.Namespace, expected: str | None) -> dict[str, Any]:
    """The options of a check that were typed."""
    from fencepost.engines.options import ENGINES

    if isinstance(given.resume, Path) and not given.resume.is_dir():
        raise OptionError(f"{{resume}} {given.resume}: there is no such directory", "resume")
    for option in ("checkpoint", "states"):
        if isinstance(getattr(given, option), Path):
            _must_be_writable_folder(option, getattr(given, option))
    known = {each.name for kind in ENGINES.values() for each in fields(kind)}
    typed = {
        name: value
        for name, value in vars(given).items()
        if name in known and value is not None and value is not False and value != []
    }
    if given.symmetry is not None:
        typed["symmetry"] = arguments.names(given.symmetry) or True
    if given.conf:
        typed["conf"] = dict(given.conf)
    if expected == "deadlock":
        typed["deadlock"] = True
    if given.debug and "debug" not in {each.name for each in fields(ENGINES.get(given.engine, ENGINES["auto"]))}:
        del typed["debug"]
    return typed


def _must_be_writable_folder(option: str, folder: Path) -> None:
    missing = [new for new in (folder, *folder.parents) if not new.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--{option} {folder} can not be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(f"--{option} {folder} can not be written to")
    for new in missing:  # the search makes it, and removes it if nothing comes to be in it
        new.rmdir()


@contextlib.contextmanager
def _progress(protocol: Protocol) -> Iterator[Any]:
    """The function that an engine reports to: a live line if standard error is a terminal."""
    if sys.stderr is None:
        yield None
        return
    from fencepost.progress import Line, Notice

    if not sys.stderr.isatty():
        yield Notice(sys.stderr).report
        return

    with Line(sys.stderr, protocol) as line:
        yield line.report
