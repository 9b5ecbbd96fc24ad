"""Durable files with digests, in a local folder or at a URL."""
