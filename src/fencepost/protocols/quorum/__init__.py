"""The protocol `quorum`: it explores the rules of a quorum."""
