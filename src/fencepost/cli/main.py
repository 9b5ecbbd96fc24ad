"""The entry point of the command line: selects the command, and reports errors.

Results go to standard output; errors and progress go to standard error. Every error is one line with TLC's exit code
(see `errors`). The parser is argparse, since it imports in 10 ms. Only the module of the selected command is imported.
Functions that need engines, reports or Rich import them, so that a mistake on the command line is reported at once.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from fencepost import errors
from fencepost.cli import arguments, interrupts, output
from fencepost.errors import OptionError, SystemFailure, naming_extra
from fencepost.version import versions

COMMANDS = {
    "check": "explore every state of a protocol",
    "watch": "check a protocol again at each save, and show what has changed",
    "explore": "walk through a protocol in the browser",
    "show": "a protocol's constants, variables, actions and properties",
    "list": "the shipped protocols and their configurations",
    "query": "query a state space in SQL (check --states DIR writes one)",
    "witness": "the shortest behaviour to a state that satisfies an SQL condition",
    "diff": "compare two state spaces",
    "simulate-store": "run clusters of the ledger store under seeded faults, on virtual time",
    "simulate-log": "run writers and readers of one log under seeded faults, on virtual time",
    "simulate-quorum": "run whole quorums under seeded faults, on virtual time",
    "simulate-world": "run whole systems under seeded faults, on virtual time",
    "validate": "check traces of running systems against a protocol",
    "drive": "drive the roles of the ledger store along behaviours of their protocol",
    "record": "run a proxy between clients and bookies that records messages and injects faults",
    "cluster": "run a ledger store on this machine, see its state, and inject faults",
    "ledger": "create, write, read and recover ledgers",
    "log": "write, follow, trim, seal and delete logs of many ledgers",
    "bookie": "run, inspect and maintain bookies",
    "metadata": "run the metadata service",
    "quorum": "show and change the voters of a replicated metadata service",
    "autorecovery": "copy the entries of lost bookies to others, automatically",
    "user": "print a user's line for a server's file of users",
    "mcp": "serve tools to programs that write protocols",
    "lsp": "serve an editor over standard input and output (Language Server Protocol)",
    "warm": "compile the loops of the compiled engine ahead of the first check",
    "completion": "print a script that completes commands and options in a shell",
}
"""The purpose of each command. Its module in :mod:`fencepost.cli.commands` has the same name (with ``_`` for ``-``).
The module has ``add_options(parser)``, and ``run(args)``, which returns the exit code.
"""

NEED_LINUX = frozenset(
    (
        *("simulate-store", "simulate-log", "simulate-quorum", "simulate-world", "drive", "record"),
        *("cluster", "ledger", "log", "bookie", "metadata", "quorum", "autorecovery"),
    )
)
"""The commands of the store: its files, sockets and processes are Linux's."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with ``arguments`` (by default the process's own) and return the exit code."""
    try:
        interrupts.interrupt()
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt as error:  # while another error was reported
        interrupts.reported()
        return output.failed(error, False)
    finally:
        interrupts.end_process()


def _main(words: list[str]) -> int:
    # Imported modules are never garbage. Scanning them at Python's default rate takes a tenth of a short run.
    gc.set_threshold(100_000, 50, 100)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not be able to show →
    # Output of the author's Python must not mix with the results.
    with (
        warnings.catch_warnings(),
        output.goes_to(sys.stdout),
        contextlib.redirect_stdout(sys.stderr),
        errors.options_spelled(functools.partial(_flag, words)),
    ):
        if not debug:
            warnings.simplefilter("ignore")
        try:
            code = errors.HOLDS
            with contextlib.suppress(SystemExit):  # --help ends with one
                code = _run(words)
            if code == errors.INTERRUPTED:
                interrupts.reported()
            output.put("")  # flushes: a failed write changes the exit code
            return code
        except (Exception, KeyboardInterrupt) as error:
            if not interrupts.was_interrupted(error):
                return output.failed(error, debug)
            interrupts.reported()
            return output.failed(KeyboardInterrupt(), debug)


def _run(words: list[str]) -> int:
    parser = _parser(words[0] if words else "")
    # A protocol that follows --symmetry is not the option's value.
    words = ["--symmetry=" if argument == "--symmetry" else argument for argument in words]
    if not words:
        output.say(parser.format_help().rstrip())
        return errors.HOLDS
    first = words[0]
    if not first.startswith("-") and first not in COMMANDS:
        near = get_close_matches(first, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        if first.endswith(".py"):
            hint = f"did you mean fencepost check {first}?"
        raise OptionError(f"there is no command {first}: {hint}")
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        raise OptionError(_unknown_option(unknown[0], _parser_of(parser, words)))
    if parsed.version:
        output.say("\n".join(versions()))
        return errors.HOLDS
    if parsed.command is None:
        *others, last = COMMANDS
        parser.error(f"give a command: {', '.join(others)} or {last}")
    run: Callable[[argparse.Namespace], int] = parsed.run
    with naming_extra(f"fencepost {parsed.command}", getattr(parsed, "engine", "")):
        return run(parsed)


# -- parsing ----------------------------------------------------------------------------------------------------------


def whole_parser() -> argparse.ArgumentParser:
    """The parser of all commands with their options, except those of commands whose extras are not installed, or that
    need another system.
    """
    return _parser(*COMMANDS)


def _parser(*wanted: str) -> argparse.ArgumentParser:
    """The parser of all commands. Only ``wanted`` ones have their options, since importing modules takes time."""
    parser = arguments.Parser(
        prog="fencepost",
        description="Checks replicated-log protocols, runs a ledger store, and validates its traces.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the versions of Fencepost, Python and libraries")
    parser.set_defaults(command=None, debug=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=arguments.Parser)
    for name, purpose in COMMANDS.items():
        own = commands.add_parser(name, help=purpose, allow_abbrev=False)
        if name in wanted:
            suppressed = (OptionError, SystemFailure) if len(wanted) > 1 else ()
            with contextlib.suppress(*suppressed), naming_extra(f"fencepost {name}"):
                if name in NEED_LINUX:
                    errors.need_linux(f"fencepost {name}")
                module = importlib.import_module(f"fencepost.cli.commands.{name.replace('-', '_')}")
                module.add_options(own)
                own.set_defaults(run=module.run)
        _add_debug(own)
    return parser


def _add_debug(parser: argparse.ArgumentParser) -> None:
    for subparsers in _subparsers(parser):
        for each in subparsers.values():
            _add_debug(each)
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show Python's traceback when something goes wrong",
    )


def _subparsers(parser: argparse.ArgumentParser) -> list[dict[str, argparse.ArgumentParser]]:
    """The subcommands of a command, by name."""
    return [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def _parser_of(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the selected command or subcommand."""
    for subparsers in _subparsers(parser):
        for position, word in enumerate(words):
            if word in subparsers:
                return _parser_of(subparsers[word], words[position + 1 :])
    return parser


def _flag(words: Sequence[str], option: str) -> str:
    """The command-line name of a library option: ``max_memory`` is ``--max-memory``."""
    own = _parser_of(_parser(words[0]), words)
    flags = [action.option_strings[-1] for action in own._actions if action.dest == option and action.option_strings]
    return flags[0] if flags else f"--{option.replace('_', '-')}"


def _unknown_option(word: str, parser: argparse.ArgumentParser) -> str:
    if not word.startswith("-"):
        of_protocols = any(action.dest == "protocol" and not action.option_strings for action in parser._actions)
        hint = "give one protocol at a time" if of_protocols else f"see {parser.prog} --help"
        return f"{word} is one argument too many: {hint}"
    options = [option for action in parser._actions for option in action.option_strings]
    near = get_close_matches(word.partition("=")[0], options, n=1)
    hint = f"did you mean {near[0]}?" if near else f"see {parser.prog} --help"
    return f"there is no option {word}: {hint}"


if __name__ == "__main__":
    sys.exit(main())
