"""Auto-recovery: what was on bookies that are lost is copied to others, by itself and together with BookKeeper's own
auto-recovery."""
