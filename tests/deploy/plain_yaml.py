"""A reader of the YAML that the files of deployments are written in: block mappings and lists, flow lists and mappings
of plain words, quoted and plain texts, and folded texts (``>-``). It refuses everything else.
"""

from __future__ import annotations

import json
import re
from typing import Any

Line = tuple[int, str]


def load(text: str) -> Any:
    """The value of a document. Raises ``ValueError`` for what it does not know."""
    lines: list[Line] = []
    for line in text.splitlines():
        content = re.sub(r'(^|\s)#[^"]*$', "", line)
        if "\t" in content:
            raise ValueError(f"a tab in {line!r}")
        if content.strip():
            lines.append((len(content) - len(content.lstrip()), content.strip()))
    value, rest = _block(lines, lines[0][0])
    if rest:
        raise ValueError(f"{rest[0][1]!r} is at no level")
    return value


def _block(lines: list[Line], indent: int) -> tuple[Any, list[Line]]:
    return (_list if lines[0][1].startswith("- ") else _mapping)(lines, indent)


def _list(lines: list[Line], indent: int) -> tuple[Any, list[Line]]:
    found: list[Any] = []
    while lines and lines[0][0] == indent and lines[0][1].startswith("- "):
        content = lines[0][1][2:]
        if re.match(r"[\w.]+:( |$)", content):
            value, lines = _mapping([(indent + 2, content), *lines[1:]], indent + 2)
        else:
            value, lines = _scalar(content), lines[1:]
        found.append(value)
    return found, lines


def _mapping(lines: list[Line], indent: int) -> tuple[Any, list[Line]]:
    found: dict[str, Any] = {}
    while lines and lines[0][0] == indent and not lines[0][1].startswith("- "):
        match = re.match(r"([\w.-]+):(?: (.*))?$", lines[0][1])
        if match is None or match[1] in found:
            raise ValueError(f"{lines[0][1]!r} is no new key")
        key, content, lines = match[1], match[2], lines[1:]
        deeper = bool(lines) and (lines[0][0] > indent or (lines[0][0] == indent and lines[0][1].startswith("- ")))
        if content == ">-":
            parts = []
            while lines and lines[0][0] > indent:
                parts.append(lines[0][1])
                lines = lines[1:]
            found[key] = " ".join(parts)
        elif content is None and deeper:
            found[key], lines = _block(lines, lines[0][0])
        else:
            found[key] = None if content is None else _scalar(content)
    return found, lines


def _scalar(text: str) -> Any:
    if text.startswith(("[", "{")):
        if re.fullmatch(r"\[[\w=., -]*\]", text) and '"' not in text:
            return [_scalar(each.strip()) for each in text[1:-1].split(",") if each.strip()]
        if re.fullmatch(r'\{(?:\w+: (?:\w+|"\w+")(?:, )?)*\}', text):
            return {key: _scalar(value) for key, value in re.findall(r'(\w+): (\w+|"\w+")', text)}
        return json.loads(text)
    if text.startswith('"'):
        return json.loads(text)
    if re.match(r"[&*!|>%@`'?]", text) or re.search(r": | #", text):
        raise ValueError(f"{text!r} is no plain text")
    return int(text) if re.fullmatch(r"\d+", text) else {"true": True, "false": False, "": None}.get(text, text)
