"""A recorder: a proxy between clients and bookies that records their messages and can inject faults.

:mod:`~fencepost.ledger.recording.observer` decodes messages. :mod:`~fencepost.ledger.recording.faults` chooses those to
delay, drop or cut off. :mod:`~fencepost.ledger.recording.proxy` forwards messages.
:mod:`~fencepost.ledger.recording.ledgers` follows the metadata of ledgers. :mod:`~fencepost.ledger.recording.redirects`
makes clients connect to the proxy. ``docs/hold/record.md`` documents the trace.
"""
