"""Access control of znodes: permissions, identities, and the schemes ``world``, ``ip``, ``digest`` and ``sasl``, as in
ZooKeeper.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from fencepost.metadata.codes import Code, Refusal

READ = 1
WRITE = 2
CREATE = 4
DELETE = 8
ADMIN = 16
ALL = 31


class Id(NamedTuple):
    """An identity: a scheme, and a name by the rules of that scheme."""

    scheme: str | None
    id: str | None


class ACL(NamedTuple):
    """The permissions of an identity, as a sum of flags."""

    perms: int
    id: Id


ACLs = tuple[ACL, ...]
Ids = tuple[Id, ...]

ANYONE = Id("world", "anyone")
SUPER = Id("super", "")
"""The identity of the superuser."""
OPEN: ACLs = (ACL(ALL, ANYONE),)
READABLE: ACLs = (ACL(READ, ANYONE),)
_ENTRY = 16
"""Bytes of an ACL entry in the clients' encoding: its permissions, two lengths, and an allowance for the log."""


def permits(acl: ACLs, perms: int, ids: Ids) -> bool:
    """Return whether one of these identities has one of the permissions."""
    if acl == OPEN:
        return True
    permitted = [entry.id for entry in acl if entry.perms & perms]
    if ANYONE in permitted or not acl or SUPER in ids or not set(ids).isdisjoint(permitted):
        return True
    addresses = [identity.id or "" for identity in ids if identity.scheme == "ip"]
    return any(
        _in_network(address, each.id or "") for each in permitted if each.scheme == "ip" for address in addresses
    )


def resolved(acl: ACLs | None, ids: Ids) -> ACLs:
    """The ACL that a znode gets: without duplicates, and with the caller's identities in place of the scheme ``auth``.

    Raises :class:`Refusal` with INVALID_ACL if it is empty, or has an identity that no scheme accepts.
    """
    if acl == OPEN:
        return OPEN
    entries: list[ACL] = []
    for entry in dict.fromkeys(acl or ()):
        if entry.id == ANYONE:
            entries.append(entry)
        elif entry.id.scheme == "auth":
            authenticated = [ACL(entry.perms, identity) for identity in proven(ids)]
            if not authenticated:
                raise Refusal(Code.INVALID_ACL)
            entries += authenticated
        elif _is_valid(entry.id):
            entries.append(entry)
        else:
            raise Refusal(Code.INVALID_ACL)
    if not entries:
        raise Refusal(Code.INVALID_ACL)
    return tuple(entries)


def proven(ids: Ids) -> Ids:
    """The identities that a client has proved. The scheme ``auth`` of an ACL stands for them."""
    return tuple(identity for identity in ids if identity.scheme in ("digest", "sasl"))


def size(acl: ACLs | None, ids: Ids) -> int:
    """The size in bytes of an ACL once it is :func:`resolved`, in the clients' encoding. The ACL that is open to all
    counts as 0.
    """
    if not acl or acl == OPEN:
        return 0
    own = size_of(entry.id for entry in acl)
    of_auth = sum(entry.id.scheme == "auth" for entry in acl)
    return own + of_auth * size_of(proven(ids)) if of_auth else own


def size_of(ids: Iterable[Id]) -> int:
    """The size in bytes of identities, in the clients' encoding of an ACL."""
    return sum(_ENTRY + len(each.scheme or "") + len(each.id or "") for each in ids)


def masked(acl: ACLs) -> ACLs:
    """An ACL as shown to clients without the ADMIN permission: without password hashes."""
    return tuple(
        ACL(entry.perms, Id("digest", re.sub(":.*", ":x", entry.id.id or ""))) if entry.id.scheme == "digest" else entry
        for entry in acl
    )


def digest(credentials: bytes) -> Id:
    """The identity that ``user:password`` proves: the user and a hash of both."""
    text = credentials.decode("utf-8", "replace")
    hashed = base64.b64encode(hashlib.sha1(text.encode()).digest()).decode()
    return Id("digest", f"{text.split(':', 1)[0]}:{hashed}")


def _is_valid(identity: Id) -> bool:
    text = identity.id or ""
    if identity.scheme == "digest":
        parts = text.split(":")
        while parts and not parts[-1]:
            parts.pop()
        return len(parts) == 2
    if identity.scheme == "ip":
        address, _, bits = text.partition("/")
        return _address(address) is not None and ("/" not in text or _number(bits, 32) is not None)
    return identity.scheme == "sasl" and text != ""


@functools.lru_cache(4_096)
def _in_network(address: str, network: str) -> bool:
    base, slash, width = network.partition("/")
    own, others, bits = _address(address), _address(base), _number(width, 32) if slash else 32
    if own is None or others is None or bits is None:
        return False
    return own >> (32 - bits) == others >> (32 - bits)


def _address(text: str) -> int | None:
    parts = [_number(part, 255) for part in text.split(".")]
    if len(parts) != 4 or None in parts:
        return None
    value = 0
    for part in parts:
        value = value << 8 | (part or 0)
    return value


def _number(text: str, most: int) -> int | None:
    """Parse a number from 0 to ``most``, as Java does. None for other text."""
    if re.fullmatch("[+-]?[0-9]+", text) is None or not 0 <= int(text) <= most:
        return None
    return int(text)
