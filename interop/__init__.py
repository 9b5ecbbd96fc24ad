"""The store examined against Apache BookKeeper and ZooKeeper, every piece swapped for the real one: ``python -m
interop``.
"""
