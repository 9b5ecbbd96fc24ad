"""Whole quorums under seeded faults in virtual time: the servers' role, on a simulated network and simulated disks."""
