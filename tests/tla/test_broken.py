"""Whatever is broken gets one message with its place."""

from __future__ import annotations

import re
from collections.abc import Callable

from tla.broken import CONFIG, MODULE, broken

from fencepost.tla import config, syntax
from fencepost.tla.errors import SpecificationError

NUMBER = 200
STILL_MODULES = {11, 29, 48, 53, 64, 71, 73, 74, 101, 123, 126, 146, 151, 161, 191, 198}
"""Those of the broken modules that SANY parses, too."""


def test_a_broken_module_is_refused_as_sany_does() -> None:
    assert parsed(MODULE, "A.tla", syntax.parse) == STILL_MODULES


def test_a_broken_configuration_gives_one_message() -> None:
    assert len(parsed(CONFIG, "A.cfg", config.read)) < NUMBER / 2


def parsed(text: str, file: str, read: Callable[[bytes, str], object]) -> set[int]:
    """The numbers of the broken texts that are read. All others are refused with a place."""
    good = set()
    for number, each in enumerate(broken(text, NUMBER)):
        try:
            read(each.encode(), file)
            good.add(number)
        except SpecificationError as error:
            first, *excerpt = str(error).split("\n")
            assert re.fullmatch(rf"{file}:\d+:\d+: [^\n]+", first)
            assert len(excerpt) in (0, 2)
    return good
