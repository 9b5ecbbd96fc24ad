"""Connections of servers and clients: TLS, SASL, users, limits, and background tasks."""
