"""Auto-recovery: copies the entries of lost bookies to other bookies. It can run alongside BookKeeper's
auto-recovery.
"""
