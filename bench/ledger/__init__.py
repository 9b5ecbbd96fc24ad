"""The store beside Java's BookKeeper, in one run: ``python -m bench.ledger``."""
