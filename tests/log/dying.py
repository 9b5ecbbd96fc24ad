"""Commands that kill themselves, as ``kill -9`` does, at one of their writes: to the metadata service, or to an object
store.

As a script it reads a line of JSON for each command, and runs it in a process of its own, which it forks: that is
faster than to start Python. It prints the exit status of each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

WRITES = "create_node create_nodes write_node delete_node delete_nodes delete_ledger close_ledger".split()


class Deaths:
    """Kills this process at write number ``at``: before it, or with ``half`` in the midst of it."""

    def __init__(self, at: int, half: bool) -> None:
        self.left = at
        self.half = half

    def plant(self) -> None:
        """Count all writes from now on."""
        from fencepost.files.storage import Remote, Storage
        from fencepost.ledger.archive import layout
        from fencepost.ledger.metadata.client import MetadataClient

        for name in WRITES:
            if hasattr(MetadataClient, name):
                self._count(MetadataClient, name, None)
        self._count(layout, "put", _put_half)
        for kind in (Storage, Remote):
            self._count(kind, "create", None)
            self._count(kind, "delete", _delete_half)

    def _step(self, begin: Callable[..., object] | None, arguments: Any) -> None:
        self.left -= 1
        if self.left < 0:
            if self.half and begin is not None:
                begin(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)

    def _count(self, owner: Any, name: str, begin: Callable[..., object] | None) -> None:
        real = getattr(owner, name)
        if asyncio.iscoroutinefunction(real):

            async def counted_async(*arguments: Any, **more: Any) -> Any:
                self._step(begin, arguments)
                return await real(*arguments, **more)

            setattr(owner, name, counted_async)
            return

        def counted(*arguments: Any, **more: Any) -> Any:
            self._step(begin, arguments)
            return real(*arguments, **more)

        setattr(owner, name, counted)


def _put_half(storage: Any, name: str, content: bytes) -> None:
    file = storage._created(name if storage.is_remote else f"{name}.new")
    file.write(content[: len(content) // 2])
    file.flush()


def _delete_half(storage: Any) -> None:
    with contextlib.suppress(IndexError):
        storage.remove(sorted(storage.names())[0])


def _main() -> None:
    import fencepost.cli.commands.log
    from fencepost.cli.main import main

    assert fencepost.cli.commands.log
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.environ.update(asked["environment"])
            Deaths(asked["at"], asked["half"]).plant()
            code = 99
            with contextlib.suppress(BaseException):
                code = main(asked["command"])
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _main()
