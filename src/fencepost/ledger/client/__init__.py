"""The ledger client. :mod:`fencepost.client` builds on it."""
