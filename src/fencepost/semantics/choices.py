"""The ways through the choices of an evaluation, one after the other."""

from __future__ import annotations

from collections.abc import Sequence


def next_script(choices: Sequence[tuple[int, int]]) -> list[int] | None:
    """The options that the next way takes, by number; None after the last way.

    ``choices``: how many options there were each time on the way before, and which one it took. The next way differs in
    the last choice that has an option left, and takes the first option from there on.
    """
    last = len(choices)
    while last and choices[last - 1][1] + 1 == choices[last - 1][0]:
        last -= 1
    if not last:
        return None
    return [taken for _, taken in choices[: last - 1]] + [choices[last - 1][1] + 1]
