"""TLA+ specifications, as TLC reads them: from ``.tla`` and ``.cfg`` files to a protocol that every engine explores."""
