"""A verdict as Markdown, for the summary of a job: GitHub and GitLab draw its sequence diagram."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fencepost.behaviours import Trace
from fencepost.checker.findings import Findings
from fencepost.language.values import constant_text
from fencepost.report.explore_command import explore_command
from fencepost.report.sequence import mermaid
from fencepost.report.text import story_lines
from fencepost.report.verdict import verdict
from fencepost.text import numbers

LARGEST = 50_000
"""The most characters of a diagram that Mermaid draws by default."""

MOST_LINES = 1_000
"""The most lines of a story. The summary of a step on GitHub holds 1 MiB."""


def markdown(result: Findings, trace: Trace | None, expectation: str = "") -> str:
    """The verdict, the diagram of ``trace``, and the whole story, folded. ``expectation``: a line about it."""
    found = verdict(result)
    given = [f"{name}={constant_text(value)}" for name, value in result.constants.items()]
    parts = [heading(f"{found.word} {found.subject}"), code(" ".join([result.protocol.name, *given]))]
    # A sentence that begins with a blank is a line of a file.
    parts += [escaped(each) for each in found.sentences if not each.startswith(" ")]
    if result.distinct_states:
        counted = numbers.plural(result.distinct_states, "distinct state")
        parts.append(f"{counted}, depth {numbers.count(result.depth)}, {numbers.seconds(result.seconds)}")
    if expectation:
        parts.append(f"**{escaped(expectation)}**")
    if trace is not None:
        parts.append(diagram(mermaid(trace, f"{found.word.lower()} {found.subject}".strip())))
        command = explore_command(trace)
        parts += ["To walk through it:", block([command])] if command else []
    parts.append(folded("The whole story", [line.text for line in story_lines(result)]))
    return document(parts)


def summary(story: str, drawn: str) -> str:
    """A story whose first two lines say the verdict and what it is about, and a diagram in Mermaid, or ""."""
    lines = story.rstrip("\n").split("\n")
    return document(
        [heading(lines[0]), code(" ".join(lines[1].split())), diagram(drawn), folded("The whole story", lines)]
    )


def document(parts: Iterable[str]) -> str:
    """Paragraphs as a document."""
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(text: str) -> str:
    """A heading of the second level."""
    return f"## {escaped(' '.join(text.split()))}"


def diagram(text: str) -> str:
    """A diagram in Mermaid; "" for none."""
    if len(text) > LARGEST:
        return f"The sequence diagram has {len(text):,} characters, and Mermaid draws {LARGEST:,}: it is left out."
    return f"```mermaid\n{text}```" if text else ""


def folded(title: str, lines: list[str]) -> str:
    """Lines as they are, to be unfolded."""
    more = len(lines) - MOST_LINES
    shown = lines if more <= 0 else [*lines[:MOST_LINES], f"... and {more:,} more lines"]
    return f"<details><summary>{escaped(title)}</summary>\n\n{block(shown)}\n\n</details>"


def block(lines: list[str]) -> str:
    """Lines as they are, in a fence that is longer than any in them."""
    text = "\n".join(lines)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def code(text: str) -> str:
    """Text as code within a line."""
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks} {text} {ticks}" if "`" in text else f"{ticks}{text}{ticks}"


def escaped(text: str) -> str:
    """Text in which nothing means anything to Markdown or HTML."""
    return re.sub(r"([\\`*\[\]<>#|~&$@]|(?<!\w)_|_(?!\w))", r"\\\1", text)
