"""One log of many ledgers: ``store.log(name)`` gives its handle, see :class:`fencepost.log.log.Log`."""
