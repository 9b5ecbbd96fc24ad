"""The published TLA+ examples, checked by Fencepost and compared with what TLC answers."""
