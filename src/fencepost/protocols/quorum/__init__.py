"""The protocol `quorum`: what the rules of a quorum come to, explored."""
