"""The ledger client. :mod:`fencepost.api.client` builds on it."""
