"""The language a protocol is written in: constants, state, actions, networks, properties. Knows no engine."""
