"""Who is at the other end of a connection (TLS, SASL, users), how many there may be, and the tasks that serve them."""
