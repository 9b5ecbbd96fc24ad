"""Users and their passwords, in files: those that a server knows, and the one as whom a client authenticates.

The server's file is one of ``htdigest``: a line ``user:fencepost:HASH`` for each user, the hash being the MD5 of
``user:fencepost:password`` in hex. It serves the metadata service and bookies alike, as both offer the realm
``fencepost``. The client's file is one line, ``user:password``. Neither may be read by everybody on the machine.
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
"""The environment variable that names the file with the user and the password of a client."""

_MOST = 1 << 20
"""Bytes of the largest file."""

_log = logging.getLogger("fencepost.connections.users")


class Users:
    """The users of a server, from a file that is looked at again for each authentication: a user is added or removed
    without a restart. Nobody gets in while the file cannot be used; the log says why.

    Raises :class:`fencepost.OptionError` if it cannot be used at the start.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._stamp = regular.stamp(path)
        self._secrets = _secrets(path)

    def secret_of(self, user: str) -> bytes | None:
        """The secret of a user, see :func:`fencepost.connections.sasl.secret`; None for a stranger."""
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
    """As whom a client authenticates. It does not show the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"

    @classmethod
    def read(cls, path: str | Path | None = None) -> Self | None:
        """The user and the password in a file, by default the one that FENCEPOST_CREDENTIALS names; None without
        either. Raises :class:`fencepost.OptionError` if there is no such file, or no user and password in it.
        """
        path = path or os.environ.get(CREDENTIALS)
        if not path:
            return None
        user, colon, password = _text(path, "credentials").rstrip("\r\n").partition(":")
        if not user or not colon or not password or "\n" in password:
            raise OptionError(f"credentials {path}: give one line, user:password")
        return cls(user, password)


def line(user: str, password: str) -> str:
    """The line of a user in the file of a server. Raises :class:`fencepost.OptionError` for a name with a colon or a
    line's end, and an empty password."""
    if not user or any(each in ":\r\n" for each in user) or not user.isprintable() or not password:
        raise OptionError("a user has a name without colons and a password")
    return f"{user}:{REALM}:{sasl.secret(user, REALM, password).hex()}"


def salted(user: str, password: str, salt: bytes) -> str:
    """A user and what proves the password, ``user:pbkdf2-sha256:SALT:HASH``: nothing can be done with it but to look
    for the password, and two with the same one do not look alike.
    """
    line(user, password)
    return ":".join((user, _SALTED, salt.hex(), _stretched(password, salt).hex()))


def is_salted(of: str) -> bool:
    """Whether this is what :func:`salted` gives."""
    return re.fullmatch(f"[^:]+:{_SALTED}:(?:[0-9a-f]{{2}})+:[0-9a-f]{{64}}", of) is not None


def proves(of: str, password: str) -> bool:
    """Whether a password is the one of a :func:`salted` user. Takes milliseconds."""
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
    """The contents of a file with secrets."""
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
