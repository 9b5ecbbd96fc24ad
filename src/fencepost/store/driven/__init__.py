"""The roles of the store, driven along behaviours of the protocol ``store``: what the protocol does, the roles must be
able to do, and the state that they are in then must be the protocol's.

`mapping` translates between the two, `system` has the roles and all that is around them, `actions` knows what each
action of the protocol is for the roles, `compare` compares the states, `walk` goes along behaviours, and `table` takes
these from a table of states.
"""
