"""Drives the roles of the store along behaviours of the protocol ``store``. The roles must be able to follow the
protocol, and be in the same state after each step.

`mapping` translates between the two. `system` has the roles and their environment. `actions` has a handler for each
action of the protocol. `compare` compares the states, `driver` lets the roles take a step, and `table` takes behaviours
from a table of states.
"""
