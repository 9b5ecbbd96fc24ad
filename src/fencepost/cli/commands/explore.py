"""``fencepost explore``: walk through a protocol in the browser."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.errors import OptionError
from fencepost.files import regular
from fencepost.language import loading
from fencepost.language.seam import Model
from fencepost.text import units

if TYPE_CHECKING:
    from fencepost.behaviours.reading import Written
    from fencepost.explorer.session import Session


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost explore``."""
    option(
        parser,
        "protocol PROTOCOL",
        "a shipped name, FILE.py, FILE.py:ClassName or FILE.tla; by default the one of --trace",
        nargs="?",
    )
    arguments.add_constants(parser)
    where = parser.add_argument_group("where to begin")
    option(where, "--trace FILE", "at a counterexample: the JSON or ITF of a check, or a kept path")
    option(where, "--path PATH", "at a path: the part after # in a link")

    served = parser.add_argument_group("the page")
    option(served, "--port N", "its port; by default 8413, or any if that is taken", arguments.port)
    option(served, "--no-open", "open no browser")
    option(served, "--html FILE", "write the walk of --trace or --path as one page that needs no server, and end")

    limits = parser.add_argument_group("limits of a search")
    option(limits, "--max-memory SIZE", "memory of its process: 4GiB by default", units.size, 4 << 30)
    option(limits, "--timeout SECONDS", "seconds: 300 by default", units.seconds, 300.0)
    option(limits, "--workers N", "threads; by default one for each core", arguments.workers)


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C, or write it."""
    if sys.platform == "win32":
        raise errors.SystemFailure("fencepost explore needs Linux or macOS: on Windows, run it in WSL")
    if args.trace is not None and args.path is not None:
        raise OptionError("--trace and --path both say where to begin: leave one out")
    if args.html is not None and args.trace is None and args.path is None:
        raise OptionError("--html is of a walk: name it with --trace or --path")
    protocol, written = _walked(args)
    if not protocol.declared("action"):
        raise errors.NotAProtocol(
            f"{args.protocol} has no actions, so there is nothing to walk through: mark its steps with @action"
        )
    session, path = _begun(args, protocol, written)
    return _serve(args, session, path) if args.html is None else _keep(args.html, session, path)


def _begun(args: argparse.Namespace, protocol: Model, written: Written | None) -> tuple[Session, str]:
    """The session, and the path where its page begins."""
    from fencepost.behaviours.reading import replayed
    from fencepost.explorer.session import Session

    session = Session(protocol)
    try:
        path = (args.path or "").lstrip("#")
        if written is not None:
            path = session.path(session.graft(replayed(written, session.stepper))) + "@0"
        elif path:
            session.follow(path.partition("@")[0])
    except OptionError as error:
        raise OptionError(f"{'--path' if written is None else f'--trace {args.trace}'}: {error}") from error
    return session, path


def _keep(file: str, session: Session, path: str) -> int:
    """Write the page of a walk."""
    from fencepost.explorer.still import html

    output.must_be_writable("html", file)
    page = html(session, session.follow(path.partition("@")[0]))
    Path(file).write_text(page, encoding="utf-8")
    output.say(f"The walk as a page: {file}")
    return errors.HOLDS


def _serve(args: argparse.Namespace, session: Session, path: str) -> int:
    """Serve the page until Ctrl-C."""
    from fencepost.checker.engines.options import SearchOptions
    from fencepost.checker.engines.resources import cores
    from fencepost.explorer import app

    limits = SearchOptions(workers=args.workers or cores(), max_memory=args.max_memory, timeout=args.timeout)
    explorer = app.Explorer(session, path, limits)
    bound = app.listen(args.port)
    address = app.address(explorer, bound.getsockname()[1])
    output.say(f"{session.protocol.name}: {address}   (Ctrl-C ends it)")
    if not args.no_open:
        import webbrowser

        webbrowser.open(address)
    with contextlib.suppress(KeyboardInterrupt):
        app.server(explorer, bound).run(sockets=[bound])
    explorer.close()
    return errors.HOLDS


def _walked(args: argparse.Namespace) -> tuple[Model, Written | None]:
    """The protocol to explore, and the initial behaviour if one is given."""
    if args.trace is None:
        if args.protocol is None:
            raise OptionError("give a protocol, a name that fencepost list shows or a .py file; or --trace FILE")
        return loading.configured(
            loading.find(args.protocol, args.libraries), args.config, args.define, args.protocol
        ), None
    from fencepost.behaviours.reading import protocol_of, read

    if args.config is not None or args.define:
        raise OptionError("--trace has its own constants: leave out -D and --config")
    try:
        written = read(regular.content(args.trace))
        if args.protocol is None and written.protocol not in loading.SHIPPED:
            raise OptionError(
                f"its protocol{written.protocol and f', {written.protocol},'} is not shipped: name its file, as in "
                f"fencepost explore FILE.py --trace {args.trace}"
            )
        return protocol_of(written, loading.load(args.protocol or written.protocol)), written
    except OSError as error:
        raise OptionError(f"--trace {args.trace} cannot be read: {error.strerror}") from None
    except OptionError as error:
        raise OptionError(f"--trace {args.trace}: {error}") from error
