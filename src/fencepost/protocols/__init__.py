"""The protocols that ship with Fencepost, which :mod:`fencepost.language.loading` knows by name: those that others have
published (``bookkeeper``, ``kraft``, ``ledger_chaining``), and those over the rules and roles that Fencepost itself
runs (``store``, ``log``, ``quorum``), which are explored, and to which traces are held.
"""
