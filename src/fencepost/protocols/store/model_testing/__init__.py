"""The roles of the store, driven along behaviours of the protocol ``store``: what the protocol does, the roles must be
able to do, and the state that they are in then must be the protocol's.

`mapping` translates between the two, `system` has the roles and their environment, `actions` has a handler for each
action of the protocol, `compare` compares the states, `walk` drives the roles along behaviours, and `table` takes
behaviours from a table of states.
"""
