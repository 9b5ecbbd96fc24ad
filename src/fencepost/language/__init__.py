"""The language of protocols: constants, state, actions, networks, properties. It imports no engine."""
