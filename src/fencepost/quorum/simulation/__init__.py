"""Whole quorums under seeded faults, on virtual time: the same role that servers run, on a simulated network and
simulated disks."""
