"""Mutants of the protocols: who notices when one rule is changed."""
