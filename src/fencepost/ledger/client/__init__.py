"""The ledger client, on which :mod:`fencepost.client` rests."""
