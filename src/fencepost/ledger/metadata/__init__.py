"""The metadata of ledgers, bookies and cookies in a metadata service that speaks ZooKeeper's protocol, in the
layout of BookKeeper.

`paths` has the paths of nodes, `serialization` and `registration` have their formats, and `client` reads, writes and
watches them.
"""
