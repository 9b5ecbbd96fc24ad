"""SHA-256 digests, which verify that a file reads as it was written.

Processors have instructions for SHA-256, so it costs less than writing the file.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

Digest = Any
"""A running digest of :mod:`hashlib`, with ``update``, ``copy`` and ``hexdigest``."""

_SEAL = re.compile(rb',"digest":"([0-9a-f]{64})"}\Z')


def running() -> Digest:
    """A new digest, to be updated with data."""
    return hashlib.sha256()


def digest(*parts: Any) -> str:
    """The digest of bytes or contiguous arrays, concatenated."""
    whole = running()
    for part in parts:
        whole.update(part)
    return str(whole.hexdigest())


def sealed(document: bytes) -> bytes:
    """An encoded JSON object with its own digest added as the last member."""
    return document[:-1] + b',"digest":"' + digest(document).encode() + b'"}'


def is_sealed(content: bytes) -> bool:
    """Whether a file's content is byte for byte a result of :func:`sealed`."""
    seal = _SEAL.search(content)
    return seal is not None and digest(content[: seal.start()] + b"}") == seal[1].decode()


def with_digest(content: bytes) -> bytes:
    """Bytes of any kind, followed by their own digest."""
    return content + bytes.fromhex(digest(content))


def without_digest(content: bytes) -> bytes | None:
    """What :func:`with_digest` was given; None if the content is no result of it."""
    before = content[: -running().digest_size]
    return before if with_digest(before) == content else None


def intact(path: str | Path) -> bool:
    """Whether a file can be read, and its content is a result of :func:`with_digest`."""
    try:
        return without_digest(Path(path).read_bytes()) is not None
    except OSError:
        return False
