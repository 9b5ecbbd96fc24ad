"""The common parts of commands that run a process of the store or of its metadata service, or look after one."""

from __future__ import annotations

import argparse
import logging
import textwrap
from typing import Any

from fencepost.cli import arguments
from fencepost.ledger.settings import FileOfSettings, described


def log_to_standard_error(verbose: bool) -> None:
    """Log what is wrong and, if this is ``verbose``, what happens."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    be_quiet_about_connections()


def be_quiet_about_connections() -> None:
    """Leave out what kazoo logs of every attempt to connect: who waits for the metadata service says so."""
    logging.getLogger("fencepost.ledger.metadata.kazoo").setLevel(logging.ERROR)


def settings_help(kind: type[FileOfSettings]) -> str:
    """The end of a help: every setting with its default and its purpose."""
    return "settings:\n" + "\n".join(
        f"  {name} = {default}\n{textwrap.indent(textwrap.fill(purpose, 100), '      ')}"
        for name, default, purpose in described(kind)
    )


def typed(given: argparse.Namespace, **settings: str) -> dict[str, Any]:
    """The options that stand for a setting, where they were typed, by the names of these settings."""
    options = {name: getattr(given, option) for option, name in settings.items()}
    return {name: value for name, value in options.items() if value is not None}


def port_or_any(text: str) -> int:
    """A port as it is typed; 0 is any free one."""
    return 0 if text == "0" else arguments.port(text)
