"""The thread behind the synchronous client, without a store."""

from __future__ import annotations

import asyncio
import threading

from patience import PATIENCE

from fencepost.errors import OptionError
from fencepost.ledger.client.sync import Loop


def test_who_waits_in_another_thread_when_the_loop_ends_is_told() -> None:
    loop, began, outcome = Loop(), threading.Event(), []

    async def endless() -> None:
        began.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            loop.wait(endless())
        except OptionError as error:
            outcome.append(str(error))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert began.wait(PATIENCE)
    loop.stop()
    waiting.join(PATIENCE)
    assert outcome == ["the store was closed meanwhile"]
