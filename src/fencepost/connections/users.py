"""Files of users and passwords: the users of a server, and the credentials of a client.

The server's file has the format of ``htdigest``: a line ``user:fencepost:HASH`` for each user, where the hash is the
MD5 of ``user:fencepost:password`` in hex. The metadata service and bookies use the same file: both offer the realm
``fencepost``. The client's file is one line, ``user:password``. Neither file may be readable by all users of the
machine.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple, Self

from fencepost.connections import sasl
from fencepost.errors import OptionError
from fencepost.files import regular

REALM = "fencepost"
"""The realm of all users."""
CREDENTIALS = "FENCEPOST_CREDENTIALS"
"""The environment variable that names a client's credentials file."""

_MOST = 1 << 20
"""Bytes of the largest file."""

_log = logging.getLogger("fencepost.connections.users")


class Users:
    """The users of a server. Each authentication checks whether the file has changed, so users are added and removed
    without a restart. While the file is unusable, every authentication fails and the reason is logged.

    Raises :class:`fencepost.OptionError` if the file is unusable at the start.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._stamp = regular.stamp(path)
        self._secrets = _secrets(path)

    def secret_of(self, user: str) -> bytes | None:
        """The secret of a user, see :func:`fencepost.connections.sasl.secret`; None for an unknown user."""
        stamp = regular.stamp(self.path)
        if stamp != self._stamp or not stamp:
            self._stamp = stamp
            try:
                self._secrets = _secrets(self.path)
            except OptionError as error:
                self._secrets = {}
                _log.error("nobody can authenticate: %s", error)
        return self._secrets.get(user)


class Credentials(NamedTuple):
    """The user and the password of a client. Its repr hides the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"

    @classmethod
    def read(cls, path: str | Path | None = None) -> Self | None:
        """Read credentials from a file, by default the one that FENCEPOST_CREDENTIALS names; None without either.
        Raises :class:`fencepost.OptionError` if the file is missing or does not have a user and a password.
        """
        path = path or os.environ.get(CREDENTIALS)
        if not path:
            return None
        user, colon, password = _text(path, "credentials").rstrip("\r\n").partition(":")
        if not user or not colon or not password or "\n" in password:
            raise OptionError(f"credentials {path}: give one line, user:password")
        return cls(user, password)


def line(user: str, password: str) -> str:
    """A user's line in the file of a server. Raises :class:`fencepost.OptionError` for a name with a colon or a line
    break, and for an empty password."""
    if not user or any(each in ":\r\n" for each in user) or not user.isprintable() or not password:
        raise OptionError("a user has a name without colons and a password")
    return f"{user}:{REALM}:{sasl.secret(user, REALM, password).hex()}"


def salted(user: str, password: str, salt: bytes) -> str:
    """A user with the salted hash of the password, ``user:pbkdf2-sha256:SALT:HASH``. It does not authenticate a client,
    and hashes of equal passwords differ.
    """
    line(user, password)
    return ":".join((user, _SALTED, salt.hex(), _stretched(password, salt).hex()))


def is_salted(of: str) -> bool:
    """Whether this has the format of :func:`salted`."""
    return re.fullmatch(f"[^:]+:{_SALTED}:(?:[0-9a-f]{{2}})+:[0-9a-f]{{64}}", of) is not None


def proves(of: str, password: str) -> bool:
    """Whether a password matches a :func:`salted` user. Takes milliseconds."""
    _, _, salt, expected = of.split(":")
    return hmac.compare_digest(_stretched(password, bytes.fromhex(salt)).hex(), expected)


_SALTED = "pbkdf2-sha256"
_ROUNDS = 10_000


def _stretched(password: str, salt: bytes) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ROUNDS)


def _secrets(path: str | Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for number, each in enumerate(_text(path, "users").splitlines(), 1):
        if not each.strip() or each.startswith("#"):
            continue
        user, _, rest = each.partition(":")
        realm, _, hashed = rest.rpartition(":")
        try:
            secret = bytes.fromhex(hashed)
        except ValueError:
            secret = b""
        if not user or realm != REALM or len(secret) != 16:
            raise OptionError(f"users {path}, line {number}: a line is user:{REALM}:HASH, as htdigest writes it")
        if user in found:
            raise OptionError(f"users {path}, line {number}: {user} is there twice")
        found[user] = secret
    return found


def _text(path: str | Path, kind: str) -> str:
    """The contents of a file with secrets. Raises :class:`fencepost.OptionError` if others may read the file."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & 0o137:
                raise OptionError(
                    f"{kind} {path} has the mode {mode & 0o777:04o}, and secrets are kept from others: chmod 640 {path}"
                )
            data = file.read(_MOST + 1)
    except OSError as error:
        raise OptionError(f"{kind} {path} cannot be read: {error.strerror}") from error
    if len(data) > _MOST:
        raise OptionError(f"{kind} {path} has more than {_MOST:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"{kind} {path} is no UTF-8") from error
