from threading import Thread

from fakeredis import FakeStrictRedis

lock = FakeStrictRedis().lock("lock", timeout=2)


def other():
    for call in (lock.owned, lock.release):
        try:
            print(call())
        except Exception as error:
            print(repr(error))


thread = Thread(target=other)
thread.start()
thread.join()
