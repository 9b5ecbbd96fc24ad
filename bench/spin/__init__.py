"""Protocols in Promela, for comparison with Spin."""
