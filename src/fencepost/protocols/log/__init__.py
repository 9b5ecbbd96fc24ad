"""Protocols that are explored by the rules of a log."""
