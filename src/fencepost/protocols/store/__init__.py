"""Protocols over the rules of the store: what the checker explores is what the store runs. Here and nowhere else both
are imported.
"""
