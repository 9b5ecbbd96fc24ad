"""Mutants of a small system: which of them are found by driving it, and which by a stateful test of Hypothesis."""
