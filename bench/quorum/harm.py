"""What is done to members, when and for how long, from a seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

KILL, STOP, FREEZE, ISOLATE, DEAF, MUTE, CUT, SLOW, WIPE, VOTERS, ALL = (
    "kill -9", "clean end", "freeze", "isolated", "hears nobody", "is heard by nobody", "cut from one", "slow disk",
    "lost disk",
    "another voter", "kill -9 of all",
)  # fmt: skip

LEADER, ANY = "the leader", "a member"

_SHARES: tuple[tuple[float, str], ...] = (
    (22, KILL), (6, STOP), (16, FREEZE), (14, ISOLATE), (7, DEAF), (7, MUTE), (10, CUT), (8, SLOW), (5, WIPE),
    (4, VOTERS), (3, ALL),
)  # fmt: skip

BETWEEN = 0.8
"""Mean seconds between two harms."""
CALMS = 0.04
"""The share of harms before which it is calm for a while: long enough for a session to expire, if it were wrongly taken
to be silent. A new leader gives all their whole timeout.
"""
CALM = 10.0
"""Seconds of that."""
LASTS = 2.0
"""Mean seconds after which a harm is healed."""
LONGEST = 6.0
TOGETHER = 0.15
"""The share of harms that may take the majority."""
LONGEST_TOGETHER = 2.0


@dataclass(frozen=True)
class Harm:
    """Something that is done to the leader or to any member, after some seconds, for some seconds. ``dice`` says to
    which, where there is a choice; ``together``: even if others are hurt. ``breaks``: connections break where something
    was held up.
    """

    after: float
    how: str
    whom: str
    lasts: float
    dice: float
    together: bool
    breaks: bool


class Schedule:
    """Draws harms of some kinds, or of all."""

    def __init__(self, seed: int, kinds: Sequence[str] = ()) -> None:
        self._random = Random(f"{seed} harm")
        self._shares = [(share, how) for share, how in _SHARES if not kinds or how in kinds]

    def next(self) -> Harm:
        """The next one."""
        draw = self._random
        how = draw.choices([how for _, how in self._shares], [share for share, _ in self._shares])[0]
        together = how is ALL or draw.random() < TOGETHER
        return Harm(
            after=CALM if draw.random() < CALMS else draw.expovariate(1 / BETWEEN),
            how=how,
            whom=LEADER if draw.random() < 0.6 else ANY,
            lasts=min(LONGEST_TOGETHER if together else LONGEST, draw.expovariate(1 / LASTS)),
            dice=draw.random(),
            together=together,
            breaks=draw.random() < 0.5,
        )
