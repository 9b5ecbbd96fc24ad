"""The SASL mechanism DIGEST-MD5 (RFC 2831, quality of protection ``auth``), both sides, without I/O.

The client begins with an empty token. The server's first token is a challenge. The client's answer proves that it knows
the password, and the server's second token proves that the server knows it too. The caller draws the nonces. ZooKeeper
and BookKeeper carry these tokens in messages of their own.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable

_MOST = 4_096
"""The largest token in bytes (RFC 2831, 2.1.2)."""
_DIRECTIVE = re.compile(
    r'[ \t\r\n,]*([!#-\'*+\-.0-9A-Z^-z|~]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s",=]+))[ \t\r\n]*'
)
_ONCE = "00000001"
"""The nonce count. A server nonce is used once: reauthentication without a challenge is not offered."""


class SaslError(Exception):
    """A token is malformed or fails authentication. The message gives the reason and contains no secret."""


def secret(user: str, realm: str, password: str) -> bytes:
    """What a server stores instead of a password: the MD5 hash of ``user:realm:password`` (RFC 2831, 2.1.2.1), 16
    bytes.

    It must stay secret: it is enough to authenticate as the user in this realm.
    """
    return _md5(b":".join(map(_latin, (user, realm, password))))


class Server:
    """The server side. Clients must authenticate for ``service`` at ``host``, in ``realm``. ``secret_of`` returns the
    :func:`secret` of a user, None for an unknown user.
    """

    def __init__(
        self, service: str, host: str, realm: str, nonce: str, secret_of: Callable[[str], bytes | None]
    ) -> None:
        self.user: str | None = None
        """The authenticated user."""
        self._uri = f"{service}/{host}"
        self._realm = realm
        self._nonce = nonce
        self._secret_of = secret_of
        self._step = 0

    def step(self, token: bytes) -> bytes:
        """The answer to the client's next token. Sets :attr:`user` once authentication succeeds. Raises
        :class:`SaslError`, and again for every later token.
        """
        step, self._step = self._step, self._step + 1
        if step == 0:
            if token:
                raise SaslError("a client of DIGEST-MD5 waits for a challenge")
            realm, nonce = _quoted(self._realm), _quoted(self._nonce)
            return f'realm={realm},nonce={nonce},qop="auth",charset=utf-8,algorithm=md5-sess'.encode()
        if step > 1:
            raise SaslError("the authentication is over")
        given = _directives(token)
        user = given.get("username", "")
        for name, expected in (("realm", self._realm), ("nonce", self._nonce), ("nc", _ONCE), ("authzid", user)):
            if given.get(name, expected if name in ("realm", "authzid") else None) != expected:
                raise SaslError(f"the {name} is not the one expected")
        if given.get("qop", "auth") != "auth" or "cnonce" not in given:
            raise SaslError("only the quality of protection auth is offered")
        uri = given.get("digest-uri", "")
        if uri.lower() != self._uri.lower():
            raise SaslError(f"the client means {uri[:100]!r}, and this is {self._uri}")
        known = self._secret_of(user)
        key = _key(known or bytes(16), self._nonce, given["cnonce"], given.get("authzid"))
        right = _response(key, "AUTHENTICATE", self._nonce, given["cnonce"], uri)
        if not hmac.compare_digest(right.encode(), given.get("response", "").encode()) or known is None:
            raise SaslError("the user is not known, or the password is wrong")
        self.user = user
        return b"rspauth=" + _response(key, "", self._nonce, given["cnonce"], uri).encode()


class Client:
    """The client side: authenticates a user at a server named ``service`` and ``host``."""

    def __init__(self, service: str, host: str, user: str, password: str, cnonce: str) -> None:
        self.is_complete = False
        """Whether the server has proved that it knows the password."""
        self._uri = f"{service}/{host}"
        self._user = user
        self._password = password
        self._cnonce = cnonce
        self._expected: str | None = None

    def step(self, token: bytes) -> bytes:
        """The answer to the server's next token; to an empty one at the beginning. Raises :class:`SaslError`."""
        if not token and self._expected is None:
            return b""
        given = _directives(token)
        if self._expected is not None:
            if not hmac.compare_digest(self._expected.encode(), given.get("rspauth", "").encode()):
                raise SaslError("the server does not know the password")
            self.is_complete = True
            return b""
        nonce, realm = given.get("nonce"), given.get("realm", "")
        if nonce is None or given.get("algorithm") != "md5-sess":
            raise SaslError("the server sent what is no challenge of DIGEST-MD5")
        if "auth" not in re.split("[ ,]+", given.get("qop", "auth")):
            raise SaslError("the server does not offer the quality of protection auth")
        key = _key(secret(self._user, realm, self._password), nonce, self._cnonce, None)
        self._expected = _response(key, "", nonce, self._cnonce, self._uri)
        response = _response(key, "AUTHENTICATE", nonce, self._cnonce, self._uri)
        return (
            f"charset=utf-8,username={_quoted(self._user)},realm={_quoted(realm)},nonce={_quoted(nonce)},nc={_ONCE},"
            f"cnonce={_quoted(self._cnonce)},digest-uri={_quoted(self._uri)},response={response},qop=auth"
        ).encode()


def _directives(token: bytes) -> dict[str, str]:
    """The values of a token by name; the first of several realms."""
    if len(token) > _MOST:
        raise SaslError(f"a token has {len(token):,} bytes, and {_MOST:,} are the most")
    is_utf8 = re.search(rb"(?i)charset *= *\"?utf-8", token) is not None
    try:
        text = token.decode("utf-8" if is_utf8 else "latin-1")
    except UnicodeDecodeError:
        raise SaslError("a token is no UTF-8") from None
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise SaslError("a token has what is no directive")
        name, at = match[1].lower(), match.end()
        if name in found and name != "realm":
            raise SaslError(f"a token says {name} twice")
        found.setdefault(name, match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2]))
        at += text[at:] == ","
    return found


def _key(of_user: bytes, nonce: str, cnonce: str, authzid: str | None) -> str:
    parts = [of_user, nonce.encode(), cnonce.encode(), *([] if authzid is None else [authzid.encode()])]
    return _md5(b":".join(parts)).hex()


def _response(key: str, method: str, nonce: str, cnonce: str, uri: str) -> str:
    of_method = _md5(f"{method}:{uri}".encode()).hex()
    return _md5(f"{key}:{nonce}:{_ONCE}:{cnonce}:auth:{of_method}".encode()).hex()


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _latin(text: str) -> bytes:
    """The encoding in which names are hashed: ISO 8859-1 if it has all characters, else UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
