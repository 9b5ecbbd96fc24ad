"""``fencepost watch``: checks a protocol again at each save, and shows what has changed."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.language import loading
from fencepost.text import units


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost watch``."""
    option(parser, "protocol PROTOCOL", "FILE.py, FILE.py:ClassName or FILE.tla")
    arguments.add_constants(parser)
    limits = parser.add_argument_group("limits of each check")
    option(limits, "--timeout SECONDS", "time: 10 seconds by default", units.seconds, 10.0)
    option(limits, "--max-memory SIZE", "memory of its process: 2GiB by default", units.size, 2 << 30)
    option(parser, "--once", "check once, and end with the exit code of the first verdict that is not expected")
    option(parser, "--json", "events as JSON, one object a line")


def run(args: argparse.Namespace) -> int:
    """Check until Ctrl-C, which is how it ends."""
    from fencepost.cli.progress import Configuration
    from fencepost.editor.process import Event
    from fencepost.editor.watch import Watch, Words
    from fencepost.editor.worker import Request

    file = loading.split(args.protocol)[0]
    if args.protocol in loading.SHIPPED or not file.endswith((".py", loading.SPECIFICATION)):
        raise errors.NotAProtocol(f"{args.protocol} is no file that can be saved: give FILE.py or FILE.tla")
    with loading.missing_is_an_error(file):
        os.stat(file)
    request = Request(
        args.protocol,
        config=args.config,
        definitions=args.define,
        libraries=args.libraries,
        seconds=args.timeout,
        memory=args.max_memory,
        width=min(output.width() if output.is_terminal() else 80, 100) - 4,
    )
    words, codes = Words(output.say), [errors.HOLDS]
    with Configuration(None if args.json else sys.stderr) as line:

        def tell(event: Event) -> None:
            line.hear(event)
            codes.append(event.get("exit_code", errors.SYSTEM_FAILED if event.get("why") else errors.HOLDS))
            if not args.json:
                words.tell(event)
            elif event["event"] != "progress":
                output.put(json.dumps(event, ensure_ascii=False) + "\n")

        if not (args.json or args.once):
            output.say(f"{args.protocol}: checked at each save, from the smallest configuration (Ctrl-C ends it)")
        with contextlib.suppress(KeyboardInterrupt):
            Watch(request, tell).run(1 if args.once else None)
    return next(filter(None, codes), errors.HOLDS) if args.once else errors.HOLDS
