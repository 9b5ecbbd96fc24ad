"""The commands of the ledger store, one module each: ``add_options(parser)`` for what is typed and ``run(given)`` for
the exit code.
"""
