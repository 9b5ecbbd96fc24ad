"""A recorder: a proxy between any clients and any bookies that records the messages, and can inject faults.

:mod:`~fencepost.ledger.recording.observer` reads messages, :mod:`~fencepost.ledger.recording.faults` chooses the
messages that are delayed, dropped or cut off, :mod:`~fencepost.ledger.recording.proxy` passes messages on,
:mod:`~fencepost.ledger.recording.ledgers` follows the metadata of ledgers, and
:mod:`~fencepost.ledger.recording.redirects` has clients connect to the proxy. ``docs/hold/record.md`` has the
vocabulary of the trace.
"""
