import asyncio

from aiorwlock import RWLock


async def main():
    lock = RWLock()
    await lock.reader.acquire()
    writer = asyncio.create_task(lock.writer.acquire())
    await asyncio.sleep(0)
    reader = asyncio.create_task(lock.reader.acquire())
    await asyncio.sleep(0)
    writer.cancel()
    await asyncio.wait({reader}, timeout=1)
    print("the second reader reads:", reader.done())


asyncio.run(main())
