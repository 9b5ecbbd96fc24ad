"""Every decision of the ledger protocol, each a small pure function of numbers, sets and frozen records.

A rule does no input or output, reads no clock and draws no random number. The same function object runs in the protocol
``store`` that the checker explores, in the roles that the simulator runs, and in the servers.

Entry ids count up from any first id. Until something is confirmed, the LAC is the id before the first. BookKeeper's
wire uses 0 and -1, the published specifications 1 and 0. An ensemble is a sequence of bookies. Its order matters only
if it is larger than the write quorum; otherwise a set will do.

Some rules take :class:`Protections`. Turning one protection off shows what it is for.
"""
