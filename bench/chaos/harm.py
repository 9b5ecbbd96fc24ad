"""What is done to whom and when, from a seed alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

KILL, STOP, PAUSE, WIPE = "kill", "stop", "pause", "wipe"

"""``WIPE``: a bookie is killed, and its directory of entries is gone."""

BETWEEN = 1.5
"""Mean seconds between two harms."""

LASTS = 3.0
"""Mean seconds after which a harm is healed."""

LONG = (12.0, 25.0)
"""Seconds that a long harm lasts: sessions with the metadata service expire."""


@dataclass(frozen=True)
class Harm:
    """Something that is done to a part of the cluster or to a client, for some seconds, after some seconds of
    waiting.
    """

    after: float
    how: str
    whom: str
    lasts: float


class Schedule:
    """Draws harms. At most ``tolerated`` bookies are hurt at the same time, and one of the ``members`` of the metadata
    service. ``wipes`` is the share of killed bookies that also lose their entries.
    """

    def __init__(
        self,
        seed: int,
        bookies: list[str],
        clients: list[str],
        tolerated: int,
        wipes: float = 0.0,
        members: Sequence[str] = ("metadata",),
    ) -> None:
        self._random = random.Random(seed)
        self._members = members
        self._bookies = bookies
        self._clients = clients
        self._tolerated = tolerated
        self._wipes = wipes

    def next(self, hurt: set[str]) -> Harm | None:
        """The next harm, when those are hurt already; None if nobody is to be hurt this time."""
        draw = self._random
        after, kind, how = draw.expovariate(1 / BETWEEN), draw.random(), draw.random()
        lasts = draw.uniform(*LONG) if draw.random() < 0.1 else min(10.0, draw.expovariate(1 / LASTS))
        bookie, client = draw.choice(self._bookies), draw.choice(self._clients)
        if kind < 0.6:
            spared = sum(name in hurt for name in self._bookies) >= self._tolerated
            kills = WIPE if how < 0.5 * self._wipes else KILL
            harm = Harm(after, kills if how < 0.5 else STOP if how < 0.65 else PAUSE, bookie, lasts)
            return None if spared or bookie in hurt else harm
        if kind < 0.75:
            member = draw.choice(self._members)
            harm = Harm(after, KILL if how < 0.6 else STOP if how < 0.7 else PAUSE, member, lasts)
            return None if hurt & {*self._members} else harm
        return None if client in hurt else Harm(after, KILL if how < 0.6 else PAUSE, client, lasts / 3)
