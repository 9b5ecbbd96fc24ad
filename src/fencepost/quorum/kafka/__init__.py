"""Kafka's protocol, as far as Kafka's own tools ask a controller how its quorum stands, and to change its voters.

The schemas (:mod:`.schema`, :mod:`.messages`) know nothing of a quorum. :mod:`.answers` says in Kafka's words what a
quorum is, and :mod:`.listener` has the connections.
"""
