"""Faults: rules for the messages that a proxy drops, delays, or cuts the connection at, typed or drawn from a seed.

A rule is a line of words: the action, the direction (request or response), the kind of message, and conditions.

    drop response add bookie=2 after=10 count=1
    delay request read fence=yes by=200ms count=all
    cut response any ledger=7 entry=5..9

Rules are tried in order, and the first one due acts. Each rule counts its matching messages over all connections: the
first ``after`` of them pass, and the next ``count`` are hit.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Callable, Sequence

import msgspec

from fencepost.errors import OptionError
from fencepost.ledger.recording.observer import ADD, BATCH_READ, KINDS, READ, START_TLS, ObservedMessage
from fencepost.ledger.rules.codes import Code

DROP, DELAY, CUT = "drop", "delay", "cut"
ACTIONS = (DROP, DELAY, CUT)
REQUEST, RESPONSE = "request", "response"
DIRECTIONS = (REQUEST, RESPONSE)
ANY = "any"
_KINDS = (*(kind for kind in KINDS if kind != START_TLS), ANY)

BY = 0.1
"""The default delay, in seconds."""
LONGEST = 3_600.0
"""The longest delay, in seconds."""
MOST_RULES = 1_000

SPREAD = 100
"""A random fault hits one of this many first matching messages."""


class Rule(msgspec.Struct, frozen=True):
    """One rule. ``bookie``: its id. ``entries``: first and last. ``count``: None for all. ``by``: the delay in
    seconds.
    """

    action: str
    direction: str
    kind: str = ANY
    bookie: str | None = None
    ledger: int | None = None
    entries: tuple[int, int] | None = None
    recovery: bool | None = None
    fence: bool | None = None
    code: str | None = None
    after: int = 0
    count: int | None = 1
    by: float = BY

    def fits(self, direction: str, bookie: str, message: ObservedMessage) -> bool:
        """Whether the rule matches a message."""
        return (
            direction == self.direction
            and self.kind in (ANY, message.kind)
            and self.bookie in (None, bookie)
            and self.ledger in (None, message.ledger)
            and (
                self.entries is None
                or (message.entry is not None and self.entries[0] <= message.entry <= self.entries[1])
            )
            and (self.recovery is None or message.flags.get("recovery", False) is self.recovery)
            and (self.fence is None or message.flags.get("fence", False) is self.fence)
            and self.code in (None, message.code)
        )

    def __str__(self) -> str:
        """The line that :func:`parse` reads as this rule."""
        words = [self.action, self.direction, self.kind]
        if self.bookie is not None:
            words.append(f"bookie={self.bookie}")
        if self.ledger is not None:
            words.append(f"ledger={self.ledger}")
        if self.entries is not None:
            first, last = self.entries
            words.append(f"entry={first}" if first == last else f"entry={first}..{last}")
        words += [
            f"{name}={'yes' if value else 'no'}"
            for name in ("recovery", "fence")
            if (value := getattr(self, name)) is not None
        ]
        if self.code is not None:
            words.append(f"code={self.code}")
        words += [f"after={self.after}", f"count={'all' if self.count is None else self.count}"]
        if self.action == DELAY:
            words.append(f"by={round(self.by * 1000)}ms")
        return " ".join(words)


class Faults:
    """Rules, and how often each has matched and acted."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self.fitted = [0] * len(self.rules)
        self.acted = [0] * len(self.rules)

    def due(self, direction: str, bookie: str, message: ObservedMessage) -> int | None:
        """The index of the rule that acts on a message; None if the message passes. Call this once per message, because
        it counts.
        """
        chosen = None
        for place, rule in enumerate(self.rules):
            if not rule.fits(direction, bookie, message):
                continue
            self.fitted[place] += 1
            if (
                chosen is None
                and self.fitted[place] > rule.after
                and (rule.count is None or self.acted[place] < rule.count)
            ):
                self.acted[place] += 1
                chosen = place
        return chosen


# -- rules as they are typed -------------------------------------------------------------------------------------------


def parse(text: str, bookies: Sequence[str]) -> Rule:
    """Parse a rule. ``bookies``: the ids of the recorded bookies, which a rule can also name by number from 1.

    Raises :class:`fencepost.OptionError`, which names the wrong word and the allowed words.
    """
    words = text.split()
    plain = [word for word in words if "=" not in word]
    if any("=" in word for word in words[: len(plain)]):
        raise _wrong(text, "first come what is done, to which direction and to which kind, then conditions as bookie=2")
    if len(plain) < 2:
        raise _wrong(
            text,
            f"say what is done ({_either(ACTIONS)}) and to what ({_either(DIRECTIONS)}), as in: drop response add"
            " bookie=2",
        )
    if len(plain) > 3:
        raise _wrong(text, f"{plain[3]} is one word too many: a condition is written with =, as bookie=2")
    given: dict[str, object] = {
        "action": _one_of(text, plain[0], ACTIONS),
        "direction": _one_of(text, plain[1], DIRECTIONS),
    }
    if len(plain) == 3:
        given["kind"] = _one_of(text, plain[2], _KINDS)
    for word in words[len(plain) :]:
        name, _, value = word.partition("=")
        name = _one_of(text, name, _CONDITIONS)
        field = "entries" if name == "entry" else name
        if field in given:
            raise _wrong(text, f"{name} is given twice")
        given[field] = _CONDITIONS_OF[name](text, value) if name != "bookie" else _bookie(text, value, bookies)
    rule = msgspec.convert(given, Rule)
    _check(text, rule, given)
    return rule


def _check(text: str, rule: Rule, given: dict[str, object]) -> None:
    """Raise for conditions that can never hold together."""
    if "by" in given and rule.action != DELAY:
        raise _wrong(text, f"by= is for delays, and this is to {rule.action}")
    if rule.code is not None and rule.direction == REQUEST:
        raise _wrong(text, "a request has no code: code= is for responses")
    if rule.recovery is not None and rule.kind not in (ADD, ANY):
        raise _wrong(text, f"recovery= is for adds, and this is for {rule.kind}")
    if rule.fence is not None and rule.kind not in (READ, BATCH_READ, ANY):
        raise _wrong(text, f"fence= is for reads, and this is for {rule.kind}")
    if rule.entries is not None and rule.kind not in (ADD, READ, BATCH_READ, ANY):
        raise _wrong(text, f"entry= is for adds and reads, and this is for {rule.kind}")


def _wrong(text: str, reason: str) -> OptionError:
    return OptionError(f"fault {text!r}: {reason}")


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _one_of(text: str, word: str, words: Sequence[str]) -> str:
    if word not in words:
        near = difflib.get_close_matches(word, words, n=1)
        raise _wrong(
            text, f"there is no {word!r}: " + (f"did you mean {near[0]}?" if near else f"write {_either(words)}")
        )
    return word


def _number(text: str, value: str, least: int = 0) -> int:
    if not re.fullmatch(r"-?\d{1,19}", value) or not least <= int(value) < 1 << 63:
        raise _wrong(text, f"{value!r} is no number from {least} on")
    return int(value)


def _entries(text: str, value: str) -> tuple[int, int]:
    first, dots, last = value.partition("..")
    start = _number(text, first, -1)
    stop = _number(text, last, -1) if dots else start
    if stop < start:
        raise _wrong(text, f"entry={value} is no entry: give the smaller one first")
    return start, stop


def _yes_or_no(text: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise _wrong(text, f"{value!r} is neither yes nor no")
    return value == "yes"


def _code(text: str, value: str) -> str:
    return _one_of(text, value.upper(), [code.name for code in Code])


def _count(text: str, value: str) -> int | None:
    return None if value == "all" else _number(text, value, 1)


def _seconds(text: str, value: str) -> float:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s)", value)
    seconds = float(found[1]) / (1000 if found[2] == "ms" else 1) if found else -1.0
    if not 0 < seconds <= LONGEST:
        raise _wrong(text, f"by={value} is no time: write 200ms or 1.5s, at most {LONGEST:.0f}s")
    return seconds


def _bookie(text: str, value: str, bookies: Sequence[str]) -> str:
    if value in bookies:
        return value
    if value.isdecimal() and 0 < int(value) <= len(bookies):
        return bookies[int(value) - 1]
    numbered = ", ".join(f"{number} ({bookie})" for number, bookie in enumerate(bookies, 1))
    raise _wrong(text, f"there is no bookie {value}: there is {numbered}")


_CONDITIONS_OF: dict[str, Callable[[str, str], object]] = {
    "ledger": _number,
    "entry": _entries,
    "recovery": _yes_or_no,
    "fence": _yes_or_no,
    "code": _code,
    "after": _number,
    "count": _count,
    "by": _seconds,
}
_CONDITIONS = ("bookie", *_CONDITIONS_OF)


# -- rules from a seed -------------------------------------------------------------------------------------------------


def drawn(number: int, seed: int, bookies: Sequence[str]) -> list[Rule]:
    """Draw ``number`` rules of one fault each: the same for the same seed and bookies, on every version of Python."""
    chance = random.Random(seed)

    def one_of(choices: Sequence[str]) -> str:
        return choices[int(chance.random() * len(choices))]

    rules = []
    for _ in range(number):
        action, direction = one_of((DROP, DROP, DELAY, CUT)), one_of(DIRECTIONS)
        kind, bookie = one_of((ADD, ADD, READ, ANY)), one_of(bookies)
        after, by = int(chance.random() * SPREAD), round(0.01 * 200 ** chance.random(), 3)
        rules.append(Rule(action, direction, kind, bookie, after=after, by=by if action == DELAY else BY))
    return rules
