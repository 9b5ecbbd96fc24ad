"""The arguments of commands as they are typed: the parser, one function for each kind of value, and the options that
several commands have.

A function of a value takes the text of an option and gives its value, or raises ``argparse.ArgumentTypeError`` with the
reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fencepost.cli import output
from fencepost.errors import OptionError


class Parser(argparse.ArgumentParser):
    """argparse, whose errors are ours: one line and exit code 151."""

    def print_help(self, file: Any = None) -> None:
        output.say(self.format_help().rstrip())

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
    name, given, value = text.partition("=")
    if not given or not name.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is no setting of Spark: give one like spark.executor.memory=4g")
    return name, value


def place(text: str) -> Path | str:
    """A folder, or a URL."""
    if not text:
        raise argparse.ArgumentTypeError("it is given no name: name a directory")
    return text if "://" in text else Path(text)


def port(text: str) -> int:
    number = count(text)
    if number > 65_535:
        raise argparse.ArgumentTypeError(f"{text} is no port: give at most 65535")
    return number


def names(text: str | None) -> tuple[str, ...]:
    """Names between commas."""
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
    """Declare an option as it is spelt: ``--json`` without a value, ``--depth N`` with one, ``--run NAME ...`` with a
    list of those of each time that it is given.

    ``kind``: the function of a value; ``more``: what else argparse is told. A word without dashes is an argument.
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
    """The constants of a protocol."""
    option(parser, "-D NAME=VALUE ...", "set a constant: bookies=3", dest="define")
    option(parser, "--config NAME", "one of the protocol's configurations; -D is applied on top of it")


def add_spark(parser: Any) -> None:
    """Where Spark is, and its settings."""
    option(
        parser,
        "--master URL",
        "where Spark is; by default where spark-submit or spark-defaults.conf says, or this machine",
    )
    option(parser, "--conf KEY=VALUE ...", "a setting of Spark; can be given several times", setting)
