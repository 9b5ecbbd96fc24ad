"""The search: a protocol's steps compiled to tables, engines that explore every state with them, and the judge of
liveness.
"""
