"""Simulated logs: writers that all believe that they lead, batches, readers, cursors and trims, in seeded worlds."""
