"""``fencepost warm``: compiles the loops of the compiled engine, so that the first check does not have to."""

from __future__ import annotations

import argparse
import sys

from fencepost import errors
from fencepost.checker.engines.ahead import PARTS, Ahead, Cache
from fencepost.cli import output
from fencepost.errors import SystemFailure
from fencepost.text.numbers import duration


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost warm``."""
    parser.description = (
        "Compile the loops of the compiled engine, on two cores, unless they are compiled for these sources and this"
        " kind of processor. Run it after an installation or in the build of an image. NUMBA_CACHE_DIR says where they"
        " are kept; without it, that is next to the installed package or, if nothing can be written there, in"
        " ~/.cache/numba."
    )


def run(args: argparse.Namespace) -> int:
    """Compile what is missing, and say where it is."""
    cache = Cache()
    try:
        folder = cache.folder
    except OSError as error:
        raise SystemFailure(f"{error}: set NUMBA_CACHE_DIR to a folder for the compiled loops") from None
    missing = cache.missing(PARTS)
    if not missing:
        output.say(f"the loops are compiled already, in {folder}")
        return errors.HOLDS
    print("compiling the loops", file=sys.stderr, flush=True)
    compiling = Ahead(missing)
    seconds = compiling.wait(lambda: None, None)
    if compiling.failed:
        raise SystemFailure(
            f"the loops cannot be compiled: {sys.executable} -m fencepost.checker.engines.warm says why"
        )
    output.say(f"the loops are compiled, in {folder}: {duration(seconds)}")
    return errors.HOLDS
