"""Traces of running systems, held to the protocols that were checked."""
