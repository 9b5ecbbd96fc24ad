"""The ledger client, on which :mod:`fencepost.api.client` rests."""
