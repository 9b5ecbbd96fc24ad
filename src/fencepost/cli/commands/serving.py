"""Common parts of the commands that run or maintain a bookie or a metadata service."""

from __future__ import annotations

import argparse
import logging
import textwrap
from typing import Any

from fencepost.cli import arguments
from fencepost.ledger.settings import FileOfSettings, described


def log_to_standard_error(verbose: bool) -> None:
    """Log warnings to standard error; with ``verbose``, also information."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    be_quiet_about_connections()


def be_quiet_about_connections() -> None:
    """Silence kazoo's log of every connection attempt: the command itself reports that it waits."""
    logging.getLogger("fencepost.ledger.metadata.kazoo").setLevel(logging.ERROR)


def settings_help(kind: type[FileOfSettings]) -> str:
    """The end of a help text: every setting with its default and its purpose."""
    return "settings:\n" + "\n".join(
        f"  {name} = {default}\n{textwrap.indent(textwrap.fill(purpose, 100), '      ')}"
        for name, default, purpose in described(kind)
    )


def from_options(args: argparse.Namespace, **settings: str) -> dict[str, Any]:
    """The settings that were given as options, by name."""
    options = {name: getattr(args, option) for option, name in settings.items()}
    return {name: value for name, value in options.items() if value is not None}


def port_or_any(text: str) -> int:
    """Parse a port; 0 is any free port."""
    return 0 if text == "0" else arguments.port(text)
