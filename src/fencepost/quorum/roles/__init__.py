"""State machines without I/O: events in, effects out."""
