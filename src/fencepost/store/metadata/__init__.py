"""The metadata of ledgers, bookies and cookies in a metadata service that speaks ZooKeeper's protocol, laid out as
BookKeeper does it.

`paths` says where things are, `serialization` and `registration` what their bytes are, and `client` reads, writes and
watches them.
"""
