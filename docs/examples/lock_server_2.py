import asyncio


class LockServer:
    """``acquire`` returns when it is the client's turn. A client that hangs up cancels the call."""

    def __init__(self, log=lambda action, **parameters: None):
        self.holder, self.waiting = None, []
        self.log = log

    async def acquire(self, client):
        turn = asyncio.get_running_loop().create_future()
        self.waiting.append((client, turn))
        if self.holder is None:
            self.pass_on()
        self.log("acquires", client=client, holder=self.holder)
        try:
            await turn
        except asyncio.CancelledError:
            self.log("hangs_up", client=client, holder=self.holder)
            raise

    def release(self, client):
        if client != self.holder:
            raise PermissionError("only the holder can release the lock")
        self.pass_on()
        self.log("releases", client=client, holder=self.holder)

    def pass_on(self):
        self.waiting = [(client, turn) for client, turn in self.waiting if not turn.done()]
        self.holder, turn = self.waiting.pop(0) if self.waiting else (None, None)
        if turn and not turn.done():
            turn.set_result(None)
