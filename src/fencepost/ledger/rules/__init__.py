"""Every decision of the ledger protocol, each a small pure function of numbers, sets and frozen records.

A rule does no input or output, reads no clock and draws no random number. The same function object is called by the
protocol ``store``, which the checker explores, by the roles that the simulator runs, and by the servers.

Entry ids count up from any first one and a LAC is the id before it until something is confirmed: 0 and -1 on
BookKeeper's wire, 1 and 0 in the published specifications. An ensemble is a sequence of bookies, whose order counts
where it is larger than the write quorum; where it is not, a set will do.

Rules whose protection can be taken away, to see what it is there for, take :class:`Protections`.
"""
