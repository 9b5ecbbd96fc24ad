"""Enumerates the combinations of choices of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence


def next_script(choices: Sequence[tuple[int, int]]) -> list[int] | None:
    """The options of the next combination, by number. None after the last one.

    ``choices``: for each choice of the previous evaluation, the number of options and the one taken. The next script
    takes the next option at the last choice that has one left. Every later choice takes its first option.
    """
    last = len(choices)
    while last and choices[last - 1][1] + 1 == choices[last - 1][0]:
        last -= 1
    if not last:
        return None
    return [taken for _, taken in choices[: last - 1]] + [choices[last - 1][1] + 1]
