"""``fencepost check``: explores every state of a protocol, and checks its properties."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from fencepost import errors
from fencepost.cli import arguments, interrupts, output
from fencepost.cli.arguments import option
from fencepost.cli.commands import results
from fencepost.errors import OptionError, SystemFailure
from fencepost.language import loading
from fencepost.language.seam import language_of
from fencepost.text import units


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost check``."""
    option(parser, "protocol PROTOCOL", "a shipped name, FILE.py, FILE.py:ClassName or FILE.tla")

    what = parser.add_argument_group("what is checked")
    arguments.add_constants(what)
    option(
        what,
        "--invariant NAME",
        "check only this property: an invariant, a refinement, or a temporal or sometimes property (repeatable)",
        action="append",
        dest="invariants",
    )
    option(what, "--deadlock", "look for states that have no successor; by default with FILE.tla, as TLC does")
    option(what, "--no-deadlock", "do not look for them")
    option(
        what,
        "--expect VERDICT",
        "the expected verdict: holds, reached, deadlock, the name of the violated property, or configuration for that"
        " of --config; the exit code is 0 if the verdict is this one, and 2 if it is another",
    )
    option(what, "--continue", "continue after a violation", dest="keep_going")

    limits = parser.add_argument_group("limits (a search that reaches one ends with exit code 152)")
    option(limits, "--max-states N", "distinct states", arguments.count)
    option(limits, "--max-depth N", "levels; the initial states are the first", arguments.count)
    option(limits, "--max-memory SIZE", "memory of the process: 16GiB, 500M", units.size)
    option(limits, "--timeout SECONDS", "time: 10, 500ms, 2m", units.seconds)

    shown = parser.add_argument_group("results")
    results.add_options(shown)
    results.add_ci_options(shown, "junit", "sarif", "markdown")
    option(
        shown,
        "--states DIR",
        "write every state as a table, in Parquet files, to a new directory or a URL: see fencepost query",
        arguments.place,
    )
    option(shown, "--edges", "with --states: every step too")
    option(
        shown,
        "--trace FORMAT",
        "how a behaviour is printed: changes, or for FILE.tla tlc, whole states as TLC prints them",
        default="changes",
        choices=["changes", "tlc"],
    )
    option(shown, "--profile", "show where the time went")

    running = parser.add_argument_group("how it is run")
    option(
        running,
        "--engine NAME",
        "auto, embedded (compiled), reference (plain Python), spark, or simulate (random walks)",
        default="auto",
    )
    option(running, "--workers N", "threads; by default one for each core", arguments.workers)
    option(running, "--checking", "catch a protocol that depends on more than its state; slow")
    option(
        running,
        "--symmetry NAME,...",
        "explore one state of all that differ only by a permutation of members of symmetric constants: of all such"
        " constants, or of --symmetry=NAME,...",
        nargs="?",
    )
    option(running, "--no-symmetry", "explore every state, although the configuration has a SYMMETRY")
    option(
        running,
        "--reduce",
        "partial order reduction: of independent steps, take one order only; for invariants and deadlocks",
    )
    option(running, "--checkpoint DIR", "save the search there while it runs", arguments.place)
    option(running, "--resume DIR", "resume a saved search", arguments.place)
    walking = parser.add_argument_group("random walks (--engine simulate, which never shows that a protocol holds)")
    option(
        walking,
        "--walks N",
        "the number of walks; by default 10,000, with --timeout as many as it allows",
        arguments.count,
    )
    option(walking, "--depth N", "the most states of a walk; by default 100", arguments.count)
    option(walking, "--seed N", "the seed of all random choices; by default any", arguments.number)
    option(walking, "--walk N", "repeat walk N of a seed, and show all of it", arguments.number)
    option(
        running,
        "--fingerprint-bits 64|128",
        "the size of a fingerprint (64); use 128 beyond a billion states",
        arguments.bits,
        dest="bits",
    )

    spark = parser.add_argument_group(
        "on Spark (--engine spark, with checkpoints also at a URL; or --engine simulate with --master)"
    )
    arguments.add_spark(spark)
    option(
        spark,
        "--handover N",
        "the largest level that is expanded in this process (1,000,000, or what memory allows)",
        arguments.count,
    )
    option(
        spark, "--checkpoint-every N", "levels between two checkpoints (1)", arguments.count, dest="checkpoint_levels"
    )


def run(args: argparse.Namespace) -> int:
    """Check a protocol, and show the result."""
    from fencepost.api.check import check
    from fencepost.cli.progress import Line

    found = loading.find(args.protocol, args.libraries)
    protocol = loading.configured(found, args.config, args.define, args.protocol)
    if isinstance(found, type) and not protocol.declared("action"):
        raise errors.NotAProtocol(
            f"{args.protocol} has no actions, so there is nothing to check: mark its steps with @action"
        )
    for notice in language_of(protocol).notices(protocol):
        output.complain(notice, None, False)
    expected = results.expected(args, protocol)
    options = _options(args, expected)
    shown = results.Results(args, protocol)
    try:
        with Line(sys.stderr, protocol) as line:
            result = check(protocol, engine=args.engine, invariants=args.invariants, report=line.report, **options)
    except ImportError as error:
        if interrupts.was_interrupted(error):
            raise
        raise SystemFailure(
            f"the {args.engine} engine cannot start: {error} ({{engine}} reference needs no libraries)", "engine"
        ) from error
    return shown.show(result)


def _options(args: argparse.Namespace, expected: str | None) -> dict[str, Any]:
    """The options of a check from the command line."""
    from fencepost.checker.engines.options import ENGINES

    if isinstance(args.resume, Path) and not args.resume.is_dir():
        raise OptionError(f"{{resume}} {args.resume}: there is no such directory", "resume")
    for name in ("checkpoint", "states"):
        if isinstance(getattr(args, name), Path):
            _must_be_writable_folder(name, getattr(args, name))
    known = {each.name for kind in ENGINES.values() for each in fields(kind)}
    typed = {
        name: value
        for name, value in vars(args).items()
        if name in known and value is not None and value is not False and value != []
    }
    if args.symmetry is not None:
        typed["symmetry"] = arguments.names(args.symmetry) or True
    typed |= dict.fromkeys([name for name in ("deadlock", "symmetry") if getattr(args, f"no_{name}")], False)
    if args.conf:
        typed["conf"] = dict(args.conf)
    if expected == "deadlock":
        typed["deadlock"] = True
    if args.debug and "debug" not in {each.name for each in fields(ENGINES.get(args.engine, ENGINES["auto"]))}:
        del typed["debug"]
    return typed


def _must_be_writable_folder(option: str, folder: Path) -> None:
    missing = [new for new in (folder, *folder.parents) if not new.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--{option} {folder} cannot be created: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(f"--{option} {folder} cannot be written to")
    for new in missing:  # the search creates it, and removes it if it stays empty
        new.rmdir()
