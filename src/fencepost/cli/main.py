"""The command line: which command is meant, and what becomes of an error. A thin front door over the package.

Results go to standard output, complaints and progress to standard error. Every error is one line there, with TLC's exit
code (see `errors`). The parser is the standard library's because it is there in 10 ms; the module of a command is
imported for that command alone, and engines, reports and Rich by the functions that need them, so that a mistake is
reported at once.
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
from fencepost.errors import OptionError, naming_extra
from fencepost.version import versions

COMMANDS = {
    "list": "the shipped protocols and their configurations",
    "show": "a protocol's constants, variables, actions and properties",
    "check": "explore every state of a protocol",
    "explore": "walk through a protocol in the browser",
    "query": "ask a state space in SQL (check --states DIR makes one)",
    "witness": "the shortest behaviour to a state that SQL describes",
    "diff": "which states one state space has and another has not",
    "simulate-store": "run clusters of the ledger store under seeded faults, on virtual time",
    "validate": "hold traces of running systems to a protocol",
    "cluster": "start a ledger store on this machine, see how it is, and hurt it",
    "metadata": "run the metadata service",
    "user": "make the line of a user for a server's file of users",
    "quorum": "see who votes in a replicated metadata service, and change it",
    "bookie": "run a bookie, and look after it",
    "autorecovery": "copy what was on bookies that are lost to others, by itself",
    "ledger": "create, write, read and recover ledgers",
    "log": "write, follow, trim, seal and delete logs of many ledgers",
    "simulate-log": "run worlds of writers and readers of one log under seeded faults, on virtual time",
    "simulate-quorum": "run whole quorums under seeded faults, on virtual time",
    "simulate-world": "run whole systems under seeded faults, on virtual time",
    "record": "stand between clients and bookies, write down what passes, and make faults",
    "drive": "drive the roles of the ledger store along behaviours of their protocol",
    "completion": "print what makes a shell complete these commands and their options",
}
"""The purpose of each command. Its module in :mod:`fencepost.cli.commands` has the same name (with ``_`` for ``-``),
and has ``add_options(parser)`` and ``run(given)``, which returns the exit code.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with ``arguments`` (by default the process's own) and return the exit code."""
    try:
        interrupts.interrupt()
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt as error:  # while another error was reported
        interrupts.told()
        return output.failed(error, False)
    finally:
        interrupts.end_process()


def _main(given: list[str]) -> int:
    # Imported modules stay: looking for cycles among them at Python's usual pace takes a tenth of a short run.
    gc.set_threshold(100_000, 50, 100)
    debug = "--debug" in given
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show → is no reason to fail
    # The output of the author's Python is none of the results.
    with (
        warnings.catch_warnings(),
        output.goes_to(sys.stdout),
        contextlib.redirect_stdout(sys.stderr),
        errors.options_spelled(functools.partial(_flag, given)),
    ):
        if not debug:
            warnings.simplefilter("ignore")
        try:
            code = errors.HOLDS
            with contextlib.suppress(SystemExit):  # --help ends with one
                code = _run(given)
            if code == errors.INTERRUPTED:
                interrupts.told()
            output.put("")  # the exit code is only right once all that was said is really out
            return code
        except (Exception, KeyboardInterrupt) as error:
            if not interrupts.was_interrupted(error):
                return output.failed(error, debug)
            interrupts.told()
            return output.failed(KeyboardInterrupt(), debug)


def _run(given: list[str]) -> int:
    parser = _parser(given[0] if given else "")
    # The protocol may come after the option: its name is none of the option's.
    given = ["--symmetry=" if argument == "--symmetry" else argument for argument in given]
    if not given:
        output.say(parser.format_help().rstrip())
        return errors.HOLDS
    first = given[0]
    if not first.startswith("-") and first not in COMMANDS:
        near = get_close_matches(first, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        if first.endswith(".py"):
            hint = f"did you mean fencepost check {first}?"
        raise OptionError(f"there is no command {first}: {hint}")
    parsed, unknown = parser.parse_known_args(given)
    if unknown:
        raise OptionError(_unknown_option(unknown[0], _parser_of(parser, given)))
    if parsed.version:
        output.say("\n".join(versions()))
        return errors.HOLDS
    if parsed.command is None:
        *others, last = COMMANDS
        parser.error(f"give a command: {', '.join(others)} or {last}")
    run: Callable[[argparse.Namespace], int] = parsed.run
    with naming_extra(f"fencepost {parsed.command}", getattr(parsed, "engine", "")):
        return run(parsed)


# -- what is typed ----------------------------------------------------------------------------------------------------


def whole_parser() -> argparse.ArgumentParser:
    """The parser of all commands with all their options, but for those of commands whose extras are not installed."""
    return _parser(*COMMANDS)


def _parser(*wanted: str) -> argparse.ArgumentParser:
    """The parser of all commands. Only those that are ``wanted`` have their options, as modules take time to import."""
    parser = arguments.Parser(
        prog="fencepost",
        description="Checks replicated-log protocols written as ordinary Python.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version, and those of what it runs on")
    parser.set_defaults(command=None, debug=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=arguments.Parser)
    for name, purpose in COMMANDS.items():
        own = commands.add_parser(name, help=purpose, allow_abbrev=False)
        if name in wanted:
            missing_is_told = contextlib.suppress(OptionError) if len(wanted) > 1 else contextlib.nullcontext()
            with missing_is_told, naming_extra(f"fencepost {name}"):
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
    """The commands of a command, by their names."""
    return [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def _parser_of(parser: argparse.ArgumentParser, given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command, or the command of a command, that is given."""
    for subparsers in _subparsers(parser):
        for position, word in enumerate(given):
            if word in subparsers:
                return _parser_of(subparsers[word], given[position + 1 :])
    return parser


def _flag(given: Sequence[str], option: str) -> str:
    """The name of an option of the library on the command line: ``max_memory`` is ``--max-memory``."""
    own = _parser_of(_parser(given[0]), given)
    flags = [action.option_strings[-1] for action in own._actions if action.dest == option and action.option_strings]
    return flags[0] if flags else f"--{option.replace('_', '-')}"


def _unknown_option(given: str, parser: argparse.ArgumentParser) -> str:
    if not given.startswith("-"):
        of_protocols = any(action.dest == "protocol" and not action.option_strings for action in parser._actions)
        hint = "give one protocol at a time" if of_protocols else f"see {parser.prog} --help"
        return f"{given} is one argument too many: {hint}"
    options = [option for action in parser._actions for option in action.option_strings]
    near = get_close_matches(given.partition("=")[0], options, n=1)
    hint = f"did you mean {near[0]}?" if near else f"see {parser.prog} --help"
    return f"there is no option {given}: {hint}"


if __name__ == "__main__":
    sys.exit(main())
