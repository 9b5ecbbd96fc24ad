"""Common parts of the commands that run or maintain a bookie or a metadata service."""

from __future__ import annotations

import argparse
import logging
import textwrap
from typing import Any

from fencepost.cli import arguments, output
from fencepost.ledger.settings import FileOfSettings, LogFormat, described
from fencepost.monitoring.sparing import Sparing


def log_to_standard_error(verbose: bool, form: LogFormat = "text", part: str = "") -> None:
    """Log warnings to standard error; with ``verbose``, also information. Of what strangers do, it logs not more than a
    little. ``form``: with "json", everything that this ``part`` prints is lines of JSON, its errors among them.
    """
    if not logging.getLogger().handlers:
        sparing = logging.StreamHandler()
        sparing.addFilter(Sparing())
        level = logging.INFO if verbose else logging.WARNING
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", handlers=[sparing])
    if form == "json":
        from fencepost.monitoring import logs

        for handler in logging.getLogger().handlers:
            handler.setFormatter(logs.JsonFormatter(part))
        logs.report_everything()
        output.speak_json(part)


def settings_help(kind: type[FileOfSettings]) -> str:
    """The end of a help text: every setting with its default and its purpose."""
    return "settings:\n" + "\n".join(
        f"  {each.name} = {each.default}\n{textwrap.indent(textwrap.fill(each.purpose, 100), '      ')}"
        for each in described(kind)
    )


def from_options(args: argparse.Namespace, **settings: str) -> dict[str, Any]:
    """The settings that were given as options, by name."""
    options = {name: getattr(args, option) for option, name in settings.items()}
    return {name: value for name, value in options.items() if value is not None}


def port_or_any(text: str) -> int:
    """Parse a port; 0 is any free port."""
    return 0 if text == "0" else arguments.port(text)
