"""The views of a running cluster: a live table in a terminal, a line for each change elsewhere, or JSON."""

from __future__ import annotations

import time
from typing import Any

from fencepost.cli import output
from fencepost.ledger.cluster.part import State
from fencepost.ledger.cluster.plan import BOOKIES
from fencepost.text import numbers
from fencepost.text.numbers import duration

HEADINGS = ("part", "address", "state", "process", "memory", "up for")

COLOURS = {
    State.DOWN: "red",
    State.STARTING: "yellow",
    State.SERVES: "green",
    State.READ_ONLY: "yellow",
    State.UNREGISTERED: "red",
    State.PAUSED: "yellow",
    State.SILENT: "red",
    State.STOPPING: "yellow",
}


class View:
    """A view of a cluster and its parts. This one shows nothing."""

    def changed(self, part: dict[str, Any], facts: dict[str, Any]) -> None:
        """The state of a part has changed."""

    def announced(self, text: str, facts: dict[str, Any]) -> None:
        """Show a message to the operator."""

    def drawn(self, facts: dict[str, Any]) -> None:
        """Draw the view again: time has passed."""

    def close(self) -> None:
        """Close the view."""


class Lines(View):
    """A line for every change."""

    def changed(self, part: dict[str, Any], facts: dict[str, Any]) -> None:
        output.say(change(part))

    def announced(self, text: str, facts: dict[str, Any]) -> None:
        output.say(text)


class Json(View):
    """The state of the cluster as one line of JSON, after every change."""

    def changed(self, part: dict[str, Any], facts: dict[str, Any]) -> None:
        from fencepost.behaviours.json import dumps

        output.put(dumps(facts) + "\n")


class Screen(View):
    """A table at the bottom of a terminal, and the changes above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=output.stdout(), highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def changed(self, part: dict[str, Any], facts: dict[str, Any]) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')}  {change(part)}", markup=False, soft_wrap=True)
        self.drawn(facts)

    def announced(self, text: str, facts: dict[str, Any]) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
        self.drawn(facts)

    def drawn(self, facts: dict[str, Any]) -> None:
        from rich.table import Table
        from rich.text import Text

        shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for heading in HEADINGS:
            shown.add_column(heading, header_style="bold")
        for part in facts["parts"]:
            name, address, state, *rest = row(part)
            shown.add_row(name, address, Text(state, COLOURS[State(part["state"])]), *rest)
        self._live.update(shown, refresh=True)

    def close(self) -> None:
        self._live.stop()


def title(part: dict[str, Any]) -> str:
    """The name of a part in views."""
    name = str(part["name"])
    return f"bookie {name}" if name.isdigit() else name


def change(part: dict[str, Any]) -> str:
    """The state of a part in one line."""
    reason = f": {part['reason']}" if part["reason"] else ""
    return f"{title(part)}  {part['address']}  {part['state']}{reason}"


def row(part: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a part in the table."""
    state = f"{part['state']}: {part['reason']}" if part["reason"] else part["state"]
    if part["pid"] is None:
        return title(part), part["address"], state, "", "", ""
    return (
        title(part),
        part["address"],
        state,
        str(part["pid"]),
        numbers.size(part["memory"]),
        duration(time.time() - part["since"]),
    )


def table(facts: dict[str, Any]) -> str:
    """The state of the cluster as lines."""
    rows = [HEADINGS, *map(row, facts["parts"])]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADINGS))]
    lines = [
        "   ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in rows
    ]
    return "\n".join([f"metadata {facts['metadata']}", "", *lines])


def introduction(facts: dict[str, Any]) -> str:
    """The addresses of a cluster, and commands to try."""
    uri, directory = facts["metadata"], facts["directory"]
    bookies = [part["address"] for part in facts["parts"] if part["name"].isdigit()]
    fewer = f" --ensemble {len(bookies)}" if len(bookies) < BOOKIES else ""
    return f"""\
metadata   {uri}
bookies    {" ".join(bookies)}
logs       {directory}/logs

To try next, in another terminal:
  export FENCEPOST_METADATA={uri}
  seq 1000 | fencepost ledger append{fewer}
  fencepost cluster kill {directory} 1
  fencepost ledger read 0
  fencepost ledger show 0
"""
