"""Digests: what is read from a file again must be what was written to it.

SHA-256 everywhere: processors have instructions for it, so it costs less than writing the file does.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

Digest = Any
"""A running digest, as `hashlib` has it: ``update``, ``copy``, ``hexdigest``."""

_SEAL = re.compile(rb',"digest":"([0-9a-f]{64})"}\Z')


def running() -> Digest:
    """The digest of what is yet to come."""
    return hashlib.sha256()


def digest(*parts: Any) -> str:
    """The digest of some bytes or contiguous arrays, one after the other."""
    whole = running()
    for part in parts:
        whole.update(part)
    return str(whole.hexdigest())


def sealed(document: bytes) -> bytes:
    """A JSON object, as it is encoded, with its own digest as the last member."""
    return document[:-1] + b',"digest":"' + digest(document).encode() + b'"}'


def is_sealed(content: bytes) -> bool:
    """Whether a file is, to the byte, what :func:`sealed` gave."""
    seal = _SEAL.search(content)
    return seal is not None and digest(content[: seal.start()] + b"}") == seal[1].decode()
