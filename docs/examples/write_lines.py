import random
import time

import fencepost

LINES = ["a ledger ends", "a log goes on", "a bookie may end and a log goes on", "an entry stays"]

with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store:
    log = store.log("lines")
    chosen = random.Random(1).choices(LINES, k=2000)
    with log.writer(ledger_entries=500) as writer:
        for first in range(0, len(chosen), 20):
            writer.append_many([line.encode() for line in chosen[first : first + 20]])
            time.sleep(0.1)
    log.seal()
    print(f"{len(chosen):,} lines in {len(log.chain().links)} ledgers")
