"""A bookie's process: sockets, settings, cookies, registration and metrics around the role and its storage."""
