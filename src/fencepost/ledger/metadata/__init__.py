"""The metadata of ledgers, bookies and cookies, in the layout of BookKeeper, in a metadata service that speaks the
ZooKeeper protocol.

`paths` has the paths of nodes, `serialization` and `registration` their formats; `client` reads, writes and watches
them.
"""
