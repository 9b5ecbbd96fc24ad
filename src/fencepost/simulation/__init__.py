"""Shared parts of the simulators: virtual time, byte-level disks, campaigns of seeds, and traces of simulated
processes.
"""
