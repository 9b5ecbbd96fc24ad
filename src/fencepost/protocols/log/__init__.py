"""Protocols that explore the rules of a log."""
