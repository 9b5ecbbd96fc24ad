"""Command-line arguments: the parser, a function for each type of value, and options that several commands share.

A type function parses the text of an option, or raises ``argparse.ArgumentTypeError`` with the reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fencepost.cli import output
from fencepost.errors import OptionError


class Parser(argparse.ArgumentParser):
    """argparse with Fencepost's errors: one line and exit code 151."""

    def print_help(self, file: Any = None) -> None:
        output.say(self.format_help().rstrip())

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            return self._get_value(action, "--")  # argparse drops it, and gives an empty list
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required: PROTOCOL"):
            message = "give a protocol: a name that fencepost list shows, or a .py file"
        raise OptionError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")


def count(text: str) -> int:
    return number(text, least=1)


def number(text: str, least: int = 0) -> int:
    try:
        number = int(text.replace(",", "_"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{text} is too small: give at least {least}")
    return number


def seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    start = number(first)
    stop = number(last) if dots else start
    if stop < start:
        raise argparse.ArgumentTypeError(f"{text} has no seeds: give the smaller one first")
    return range(start, stop + 1)


def workers(text: str) -> int:
    number = count(text)
    if number > 1024:
        raise argparse.ArgumentTypeError(f"{text} is too many: give at most 1024")
    return number


def bits(text: str) -> int:
    if text not in ("64", "128"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither 64 nor 128")
    return int(text)


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting of Spark: give one like spark.executor.memory=4g")
    return name, value


def word(text: str) -> str:
    """A text that is not empty: an empty name would be that of the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the name is empty: name a directory")
    return Path(text)


def place(text: str) -> Path | str:
    """A folder, or a URL."""
    return text if "://" in text else folder(text)


def port(text: str) -> int:
    number = count(text)
    if number > 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: give at most 65535")
    return number


def names(text: str | None) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


# -- options -----------------------------------------------------------------------------------------------------------


def option(
    where: argparse._ActionsContainer,
    spelt: str,
    help: str,
    kind: Callable[[str], Any] = str,
    default: Any = None,
    **more: Any,
) -> None:
    """Declare an option: ``--json`` is a flag, ``--depth N`` takes a value, ``--run NAME ...`` may be repeated and
    collects a list.

    ``kind``: the type function; ``more``: further arguments for argparse. A word without dashes is a positional
    argument.
    """
    name, _, metavar = spelt.partition(" ")
    if metavar.endswith(" ..."):
        metavar, default = metavar.removesuffix(" ..."), []
        more["action"] = "append"
    if metavar:
        more["metavar"] = metavar
    if metavar or "choices" in more:
        where.add_argument(name, type=kind, default=default, help=help, **more)
    else:
        where.add_argument(name, action="store_true", help=help, **more)


def add_constants(parser: argparse._ActionsContainer) -> None:
    """Declare the options for constants of a protocol."""
    option(parser, "-D NAME=VALUE ...", "set a constant: bookies=3", dest="define")
    option(
        parser,
        "--config NAME",
        "use one of the protocol's configurations, or for FILE.tla a file in place of FILE.cfg; -D overrides its"
        " constants",
    )
    add_libraries(parser)


def add_libraries(parser: argparse._ActionsContainer) -> None:
    """Declare the option for folders of modules."""
    option(parser, "--library DIR ...", "another folder with modules that FILE.tla uses (repeatable)", dest="libraries")


def add_spark(parser: Any) -> None:
    """Declare the options for Spark's address and settings."""
    option(
        parser,
        "--master URL",
        "the Spark master; by default that of spark-submit or spark-defaults.conf, or this machine",
    )
    option(parser, "--conf KEY=VALUE ...", "a setting of Spark (repeatable)", setting)
