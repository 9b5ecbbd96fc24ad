"""Measurements of the checker, printed side by side: ``python -m bench``."""
