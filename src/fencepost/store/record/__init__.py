"""A recorder: a proxy between any clients and any bookies that records the messages, and can inject faults.

:mod:`~fencepost.store.record.observer` reads messages, :mod:`~fencepost.store.record.faults` chooses the messages that
are delayed, dropped or cut off, :mod:`~fencepost.store.record.proxy` passes messages on,
:mod:`~fencepost.store.record.ledgers` follows the metadata of ledgers, and :mod:`~fencepost.store.record.redirects`
has clients connect to the proxy. ``docs/record.md`` has the vocabulary of the trace.
"""
