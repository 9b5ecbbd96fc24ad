"""The tools of ``fencepost mcp``, called by a scripted client: time to the answer, and its size.

python -m bench.mcp
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
TIMES = 5

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("check", {"protocol": "lost_update.py"}),
    ("check", {"protocol": "two_phase.py"}),
    ("check", {"protocol": "LostUpdate.tla"}),
    ("check", {"protocol": "bookkeeper-4.13", "config": "defect-1-small"}),
    ("witness", {"protocol": "lost_update.py", "where": "counter == 2"}),
    ("explain", {"protocol": "lost_update.py"}),
    ("explain", {"protocol": "lost_update.py", "path": "0/0/1/3/2"}),
    ("drive", {"protocol": "locks.py", "system": "drive_locks.py:Calls"}),
]


async def main() -> None:
    """Call each tool, and print a table."""
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "fencepost", "mcp"], cwd=EXAMPLES, env=dict(os.environ)
    )
    async with Client(stdio_client(started)) as client:
        tools = await client.list_tools()
        described = sum(len(each.model_dump_json()) for each in tools.tools)
        print(f"the descriptions of the tools: {described:,} characters\n")
        print("| call | seconds | lines | characters |\n|---|---|---|---|")
        for tool, arguments in CALLS:
            seconds, text = [], ""
            for _ in range(TIMES):
                began = time.perf_counter()
                (content,) = (await client.call_tool(tool, arguments)).content
                seconds.append(time.perf_counter() - began)
                text = content.text if content.type == "text" else ""
            said = " ".join([tool, *map(str, arguments.values())])
            print(f"| `{said}` | {statistics.median(seconds):.2f} | {text.count(chr(10)) + 1} | {len(text):,} |")


if __name__ == "__main__":
    asyncio.run(main())
