"""A recorder: a proxy between any clients and any bookies that writes down what passes, and can make faults.

:mod:`~fencepost.store.record.observer` tells what a message is, :mod:`~fencepost.store.record.faults` which messages
are to suffer, :mod:`~fencepost.store.record.proxy` passes them on, :mod:`~fencepost.store.record.ledgers` follows the
metadata of ledgers, and :mod:`~fencepost.store.record.redirects` has clients come through the proxy. ``docs/record.md``
has the vocabulary of the trace.
"""
