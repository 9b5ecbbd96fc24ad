"""The protocols that ship with Fencepost; :mod:`fencepost.language.loading` knows them by name.

Some are published by others: ``bookkeeper``, ``kraft``, ``ledger_chaining``. The others (``store``, ``log``,
``quorum``) explore the rules and roles that Fencepost itself runs, and validate its traces.
"""
