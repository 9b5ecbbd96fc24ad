"""Closed ledgers as files: exported to a folder or an object store, and imported into a cluster."""
