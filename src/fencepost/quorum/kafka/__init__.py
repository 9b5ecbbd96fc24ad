"""Kafka's protocol, as far as Kafka's tools need it to describe the quorum of a controller and change its voters.

The schemas (:mod:`.schema`, :mod:`.messages`) are independent of the quorum. :mod:`.answers` translates the quorum into
Kafka's terms, and :mod:`.listener` has the connections.
"""
