"""``fencepost user``: prints a user's line for a server's file of users. The password is not echoed."""

from __future__ import annotations

import argparse
import getpass
import os
import sys

from fencepost import errors
from fencepost.cli import output
from fencepost.cli.arguments import option
from fencepost.connections import users

_SALT = 16
"""The size of a salt in bytes."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost user``."""
    parser.description = (
        "Ask for a password, or read it from standard input, and print the line of the user for the file that the"
        " setting saslUsers names: fencepost user ann >> users; chmod 640 users."
    )
    option(parser, "name NAME", "the user")
    option(
        parser,
        "--super",
        "print the value of the metadata service's setting DigestAuthenticationProvider.superDigest instead, with the"
        " password salted",
        dest="is_super",
    )


def run(args: argparse.Namespace) -> int:
    """Print the line."""
    password = _password()
    if args.is_super:
        output.say(users.salted(args.name, password, os.urandom(_SALT)))
    else:
        output.say(users.line(args.name, password))
    return errors.HOLDS


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass()
    if getpass.getpass("again: ") != password:
        raise errors.OptionError("the two passwords differ")
    return password
