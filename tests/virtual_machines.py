"""How tests start Java."""

from __future__ import annotations

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of all virtual machines: they run too briefly for optimized compilation to pay."""
