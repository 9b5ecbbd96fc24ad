"""The whole story in one go: what `make run` shows."""
