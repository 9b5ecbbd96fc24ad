"""Checks a protocol again at each save of its files, and tells what has changed: for ``fencepost watch``."""

from __future__ import annotations

import dataclasses
import os
import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fencepost.editor.process import Event, Job
from fencepost.editor.worker import Request
from fencepost.files import regular
from fencepost.text.numbers import count, plural

POLL = 0.2
"""Seconds between two looks at the files."""


class Running(Protocol):
    """What :class:`Watch` needs of a check."""

    def end(self) -> None: ...


Start = Callable[[Request, Callable[[Event], None]], Running]
Stamps = dict[str, tuple[int, ...]]


class Watch:
    """Checks ``request`` at once and at each save. ``tell`` is called with each event of a check, and with ``saved``.

    Of ``checked`` it adds ``before``: the last result of the same configuration, or None; and ``is_new``: whether its
    story is another one. Of ``failed`` it adds ``is_new`` too.
    """

    def __init__(
        self,
        request: Request,
        tell: Callable[[Event], None],
        start: Start = Job,
        stamp: Callable[[str], tuple[int, ...]] = regular.stamp,
    ) -> None:
        self._request = request
        self._tell = tell
        self._start = start
        self._stamp = stamp
        self._before: dict[str, Event] = {}
        self._failed: list[Any] = []
        self._files = {os.path.abspath(request.file)}

    def run(self, rounds: int | None = None) -> None:
        """Check at each save, endlessly, or for some ``rounds``: one at once, and one after each save."""
        stamps = self._stamps()
        done = 0
        while rounds is None or done < rounds:
            stamps = self._round(stamps, wait=rounds is None or done + 1 < rounds)
            done += 1

    def _round(self, stamps: Stamps, wait: bool) -> Stamps:
        """One check, until a file is saved. Without ``wait``, until the check is over. Returns the files' stamps."""
        known = {title: event["distinct_states"] for title, event in self._before.items()}
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        job = self._start(dataclasses.replace(self._request, known=known), events.put)
        try:
            while True:
                try:
                    event = events.get(timeout=POLL)
                except queue.Empty:
                    event = None
                if event is not None:
                    self._hear(event)
                    if event["event"] == "ended" and not wait:
                        return stamps
                now = self._stamps()
                # Files that a check has just named have no stamp yet.
                changed = sorted(each for each in now if each in stamps and now[each] != stamps[each])
                stamps = {**now, **{each: stamps[each] for each in changed}}
                if changed:
                    break
        finally:
            job.end()
        stamps = self._settled()
        self._tell({"event": "saved", "files": changed})
        return stamps

    def _stamps(self) -> Stamps:
        return {file: self._stamp(file) for file in self._files}

    def _settled(self) -> Stamps:
        """The files' stamps, once two looks in a row have the same: an editor may still be writing."""
        last = self._stamps()
        pause: queue.SimpleQueue[None] = queue.SimpleQueue()
        while True:
            try:
                pause.get(timeout=POLL / 2)
            except queue.Empty:
                now = self._stamps()
            if now == last:
                return now
            last = now

    def _hear(self, event: Event) -> None:
        kind = event["event"]
        self._files |= {*event.get("files", ())}
        if kind == "checked":
            title = event["title"]
            before = self._before.get(title)
            event = {**event, "before": before and _brief(before), "is_new": _is_new(event, before)}
            self._before[title] = event
            self._failed = []
        elif kind == "failed":
            found = [(each["line"], each["message"]) for each in event["diagnostics"]]
            event = {**event, "is_new": found != self._failed}
            self._failed = found
        self._tell(event)


def _brief(event: Event) -> Event:
    return {name: event[name] for name in ("verdict", "violated", "distinct_states", "steps", "as_expected")}


def _is_new(event: Event, before: Event | None) -> bool:
    return before is None or event["told"] != before["told"]


# -- in words ----------------------------------------------------------------------------------------------------------


class Words:
    """The events in lines of text, for ``say``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._width = self._verdicts = 0

    def tell(self, event: Event) -> None:
        """Say what an event means to a user. Some mean nothing."""
        told = getattr(self, f"_{event['event']}", None)
        if told is not None:
            told(event)

    def _saved(self, event: Event) -> None:
        names = [os.path.relpath(each) for each in event["files"]]
        self._say(f"\n{', '.join(names)} {'was' if len(names) == 1 else 'were'} saved")

    def _loaded(self, event: Event) -> None:
        self._width = max((len(each["title"]) for each in event["cases"]), default=0)
        self._verdicts = max((len(wanted(each)) for each in event["cases"]), default=0)
        for each in event["notices"]:
            self._say(f"  note: {each}")

    def _failed(self, event: Event) -> None:
        for each in event["diagnostics"]:
            again = "" if event["is_new"] else "   as before"
            self._say(f"  {os.path.relpath(each['file'])}:{each['line']}: {each['message']}{again}")

    def _skipped(self, event: Event) -> None:
        self._say(f"  {event['title']:<{self._width}}  not checked: {event['why']}")

    def _checked(self, event: Event) -> None:
        states = plural(event["distinct_states"], "state")
        line = f"  {event['title']:<{self._width}}  {verdict(event):<{self._verdicts}}  {states}"
        self._say(f"{line}   {changes(event, event['before'])}".rstrip())
        if event["as_expected"] is False and event["is_new"]:
            self._say("\n" + "\n".join(f"    {each}".rstrip() for each in event["told"].rstrip().split("\n")) + "\n")

    def _ended(self, event: Event) -> None:
        if event["why"]:
            self._say(f"  {event['why']}")

    def _fault(self, event: Event) -> None:
        self._say(f"  {event['message']}")


def verdict(event: Mapping[str, Any]) -> str:
    """The verdict of a check in a few words."""
    if event["verdict"] == "raised":
        return "raised"
    if event["violated"]:
        expected = ", as expected" if event["as_expected"] else ""
        first = event["violated"][0]
        return ("deadlock" if first == "deadlock" else f"violates {first}") + expected
    if event["verdict"] == "not complete":
        return "not violated so far"
    wanted = " although a violation is expected" if event["as_expected"] is False else ""
    return f"{event['verdict']}{wanted}"


def wanted(case: Mapping[str, Any]) -> str:
    """The verdict that a configuration expects, in the same words."""
    violated = [case["expect"]] if case["expect"] not in ("holds", "reached") else []
    return verdict({"verdict": case["expect"], "violated": violated, "as_expected": True})


def changes(event: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """What has changed since the last check of a configuration: "" if this is the first."""
    if before is None:
        return ""
    said: Sequence[str] = [
        *([verdict(before)] if verdict(before) != verdict(event) else []),
        *([f"{count(before['distinct_states'])}"] if before["distinct_states"] != event["distinct_states"] else []),
    ]
    if said:
        return f"before: {', '.join(said)}"
    return "as before" if not event["is_new"] or event["as_expected"] is not False else "by another behaviour"
