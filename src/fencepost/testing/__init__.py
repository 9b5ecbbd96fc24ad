"""Model-based testing: drives a system of your own along behaviours of its protocol, and tests with pytest."""
