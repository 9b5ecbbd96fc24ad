"""A walk as one page that needs no server: the explorer's page with the answers that it would get.

It has the states of the walk, and those one step beside it. Searches and further steps need ``fencepost explore``.
"""

from __future__ import annotations

import re
import shlex
import zlib
from base64 import b64encode
from pathlib import Path
from typing import Any

from fencepost.behaviours.json import dumps
from fencepost.explorer.session import Node, Session
from fencepost.explorer.views import about, view
from fencepost.language.seam import language_of
from fencepost.report.svg import STYLE

_HERE = Path(__file__).parent
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def html(session: Session, tip: Node) -> str:
    """The page of the walk to ``tip``."""
    given = language_of(session.protocol).arguments(session.protocol)
    command = shlex.join(["fencepost", "explore", *given])  # with which a reader goes on
    said = dumps({**_answers(session, tip), "command": command})
    packed = b64encode(zlib.compress(said.encode(), 9)).decode()  # one step repeats most of another
    page = _file("index.html")
    for pattern, instead in (
        (r'<link rel="icon"[^>]*>\n', f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'),
        (
            r'<link rel="stylesheet" href="report.css">\n<link [^>]*>',
            f"<style>{_palette()}{STYLE}{_file('explorer.css')}</style>",
        ),
        (r"<script [^>]*></script>\n", ""),
        (r"<body ", '<body class="still" '),
        (
            r"</body>",
            f'<script type="text/plain" id="answers">{packed}</script>\n'
            f'<script type="module">{_file("explorer.js")}</script>\n</body>',
        ),
    ):
        page, found = re.subn(pattern, lambda _, text=instead: text, page, count=1)  # type: ignore[misc]
        assert found, pattern
    return page


def _answers(session: Session, tip: Node) -> dict[str, Any]:
    """The views by the numbers of their states, and the states to which steps lead, by state and step. A diagram stands
    apart, by its key: all views of the walk have the same.
    """
    diagrams: dict[str, Any] = {}

    def kept(end: Node, node: Node) -> dict[str, Any]:
        shown = view(session, end, node)
        for item in shown["items"]:
            item["branches"] = []  # to the steps beside the walk, which are found where they can be taken
        drawn = shown["diagram"]
        diagrams[drawn["key"]] = drawn
        return {**shown, "diagram": drawn["key"]}

    views = {node.number: kept(tip, node) for node in tip.line}
    steps: dict[str, int] = {}
    for node in tip.line:
        for action in session.enabled(node):
            for offer in action.offers:
                beside = session.child(node, offer.move)
                number, taken = offer.move
                steps[f"{node.number}:{','.join(map(str, (number, *taken)))}"] = beside.number
                if beside.number not in views:
                    views[beside.number] = kept(beside, beside)
    first = tip.line[0].number
    return {"about": about(session.protocol), "first": first, "views": views, "steps": steps, "diagrams": diagrams}


def _palette() -> str:
    return (_HERE.parent / "report" / "palette.css").read_text(encoding="utf-8")


def _file(name: str) -> str:
    return (_HERE / "static" / name).read_text(encoding="utf-8")
