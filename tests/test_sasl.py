"""DIGEST-MD5 against the examples of RFC 2831, client and server against each other, and files of users."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fencepost import errors
from fencepost.connections import sasl, users

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'  # RFC 2831, 4
)
RESPONSE = (
    b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",nc=00000001,'
    b'cnonce="OA6MHXh6VqTrRk",digest-uri="imap/elwood.innosoft.com",response=d388dad90d4bbd760a152321f2143af7,qop=auth'
)
RSPAUTH = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def server(user: str = "chris", password: str = "secret", nonce: str = "OA6MG9tEQGm2hh") -> sasl.Server:
    realm = "elwood.innosoft.com"
    known = {user: sasl.secret(user, realm, password)}
    return sasl.Server("imap", realm, realm, nonce, known.get)


def client(user: str = "chris", password: str = "secret") -> sasl.Client:
    return sasl.Client("imap", "elwood.innosoft.com", user, password, "OA6MHXh6VqTrRk")


def test_the_example_of_the_rfc() -> None:
    of_server, of_client = server(), client()
    of_server.step(b"")
    assert of_server.user is None
    assert of_server.step(RESPONSE) == RSPAUTH
    assert of_server.user == "chris"
    assert of_client.step(b"") == b""
    assert b"response=d388dad90d4bbd760a152321f2143af7" in of_client.step(CHALLENGE)
    assert not of_client.is_complete
    assert of_client.step(RSPAUTH) == b""
    assert of_client.is_complete


@pytest.mark.parametrize("user", ["chris", 'a "b" \\c', "Jürgen", "日本"])
def test_both_sides_convince_each_other(user: str) -> None:
    of_server, of_client = server(user, "geheim: ü"), client(user, "geheim: ü")
    challenge = of_server.step(of_client.step(b""))
    assert of_client.step(of_server.step(of_client.step(challenge))) == b""
    assert of_client.is_complete
    assert of_server.user == user


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (RESPONSE.replace(b"d388", b"d389"), "password is wrong"),
        (RESPONSE.replace(b"chris", b"christ"), "password is wrong"),
        (RESPONSE.replace(b"OA6MG9tEQGm2hh", b"OA6MG9tEQGm2hi"), "nonce"),
        (RESPONSE.replace(b"nc=00000001", b"nc=00000002"), "nc"),
        (RESPONSE.replace(b"imap/", b"smtp/"), "client means"),
        (RESPONSE + b',authzid="root"', "authzid"),
        (RESPONSE + b",nc=00000001", "twice"),
        (RESPONSE.replace(b"qop=auth", b"qop=auth-int"), "quality of protection"),
        (b"\xff\xfe, charset=utf-8", "UTF-8"),
        (b"", "nonce"),
        (b"no directive", "no directive"),
        (RESPONSE + b"," * 5_000, "bytes"),
    ],
)
def test_what_proves_nothing_is_refused(token: bytes, why: str) -> None:
    of_server = server()
    of_server.step(b"")
    with pytest.raises(sasl.SaslError, match=why) as raised:
        of_server.step(token)
    assert "secret" not in str(raised.value)
    with pytest.raises(sasl.SaslError, match="over"):
        of_server.step(RESPONSE)
    assert of_server.user is None


def test_a_stranger_is_not_let_in_by_the_secret_of_nobody() -> None:
    realm = "elwood.innosoft.com"
    of_server = sasl.Server("imap", realm, realm, "OA6MG9tEQGm2hh", lambda _: None)
    of_server.step(b"")
    key = sasl._key(bytes(16), "OA6MG9tEQGm2hh", "OA6MHXh6VqTrRk", None)
    forged = sasl._response(key, "AUTHENTICATE", "OA6MG9tEQGm2hh", "OA6MHXh6VqTrRk", "imap/elwood.innosoft.com")
    with pytest.raises(sasl.SaslError, match="not known"):
        of_server.step(RESPONSE.replace(b"d388dad90d4bbd760a152321f2143af7", forged.encode()))


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    of_client = client()
    of_client.step(CHALLENGE)
    with pytest.raises(sasl.SaslError, match="does not know"):
        of_client.step(b"rspauth=" + b"0" * 32)
    assert not of_client.is_complete


def secrets_in(path: Path, text: str, mode: int = 0o640) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_users_come_and_go_without_a_restart(tmp_path: Path) -> None:
    path = secrets_in(tmp_path / "users", "# those of the bank\n\n" + users.line("ann", "a password") + "\n")
    known = users.Users(path)
    assert known.secret_of("ann") == sasl.secret("ann", "fencepost", "a password")
    assert known.secret_of("bob") is None
    secrets_in(path, users.line("bob", "another") + "\n")
    assert known.secret_of("ann") is None
    assert known.secret_of("bob") is not None
    path.chmod(0o644)
    assert known.secret_of("bob") is None
    path.chmod(0o600)
    assert known.secret_of("bob") is not None
    path.unlink()
    assert known.secret_of("bob") is None


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("ann:fencepost:" + "0" * 32, 0o644, "chmod 640"),
        ("ann:fencepost:" + "0" * 30, 0o600, "line 1"),
        ("ann:elsewhere:" + "0" * 32, 0o600, "line 1"),
        (":fencepost:" + "0" * 32, 0o600, "line 1"),
        (2 * ("ann:fencepost:" + "0" * 32 + "\n"), 0o600, "twice"),
    ],
)
def test_a_file_of_users_that_is_none_is_refused(tmp_path: Path, text: str, mode: int, why: str) -> None:
    with pytest.raises(errors.OptionError, match=why) as raised:
        users.Users(secrets_in(tmp_path / "users", text, mode))
    assert "0" * 30 not in str(raised.value)
    with pytest.raises(errors.OptionError, match="cannot be read"):
        users.Users(tmp_path / "absent")


def test_credentials_are_in_a_file_and_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(users.CREDENTIALS, raising=False)
    assert users.Credentials.read() is None
    path = secrets_in(tmp_path / "credentials", "ann:a:b\n", 0o600)
    monkeypatch.setenv(users.CREDENTIALS, str(path))
    found = users.Credentials.read()
    assert found == ("ann", "a:b")
    assert repr(found) == str(found) == "Credentials(user='ann')"
    for text in ("ann", ":b", "ann:", "ann:b\nbob:c\n"):
        with pytest.raises(errors.OptionError, match="one line"):
            users.Credentials.read(secrets_in(path, text, 0o600))
    path.chmod(0o604)
    with pytest.raises(errors.OptionError, match="chmod"):
        users.Credentials.read()


def test_a_salted_user_tells_nothing_and_is_known_again() -> None:
    first, second = (users.salted("root", "a password", bytes([salt] * 16)) for salt in (1, 2))
    assert first != second and "password" not in first
    for each in (first, second):
        assert users.is_salted(each) and users.proves(each, "a password") and not users.proves(each, "another")
    assert not users.is_salted("root:D/InIHSb7yEEbrWz8b9l71RjZJU=") and not users.is_salted("")


@pytest.mark.parametrize("options", [[], ["--super"]])
def test_a_line_is_made_from_a_password_that_is_no_argument(options: list[str]) -> None:
    def said(password: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fencepost", "user", "ann", *options]
        return subprocess.run(command, input=password, capture_output=True, text=True, timeout=60)

    right = said("a password\n")
    assert right.returncode == 0 and "password" not in right.stdout
    if options:
        assert users.proves(right.stdout.strip(), "a password")
    else:
        assert right.stdout.strip() == users.line("ann", "a password")
        assert said("\n").returncode == errors.WRONG_OPTIONS
