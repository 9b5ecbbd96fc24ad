"""Protocols over the rules of the store: the checker explores the code that the store runs. No other package imports
both.
"""
