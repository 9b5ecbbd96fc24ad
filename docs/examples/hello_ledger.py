import fencepost

with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store:
    with store.create_ledger(ensemble=3, write_quorum=3, ack_quorum=2) as ledger:
        ledger.append(b"hello, ledger")
    with store.open_ledger(ledger.id) as reader:
        for entry in reader.read():
            print(entry.id, entry.data)
