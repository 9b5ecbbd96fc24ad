"""The common parts of the simulators: virtual time, a disk of bytes, many seeds, and traces of simulated processes."""
