"""Certificates for tests. Their authorities are made once per test session."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from fencepost.connections.tls import Files, Tls


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="certificates-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=_folder(), check=True, capture_output=True, umask=0o077)


_NEW = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")


def authority(name: str = "authority") -> str:
    """The path of an authority's certificate."""
    file = _folder() / f"{name}.pem"
    if not file.exists():
        _openssl(*_NEW, "-subj", f"/CN={name}", "-keyout", f"{name}.key.pem", "-out", file.name)
    return str(file)


@functools.cache
def pair(name: str, host: str = "IP:127.0.0.1", by: str = "authority") -> tuple[str, str]:
    """The paths of a certificate that names a host, and of its key."""
    authority(by)
    _openssl(
        *_NEW,
        *("-subj", f"/CN={name}", "-addext", f"subjectAltName={host}", "-addext", "basicConstraints=critical,CA:FALSE"),
        *("-CA", f"{by}.pem", "-CAkey", f"{by}.key.pem", "-keyout", f"{name}.key.pem", "-out", f"{name}.pem"),
    )
    return str(_folder() / f"{name}.pem"), str(_folder() / f"{name}.key.pem")


def together(name: str, host: str = "IP:127.0.0.1", by: str = "authority") -> str:
    """The path of a file with a certificate and its key."""
    file = _folder() / f"{name}.both.pem"
    file.touch(0o600)
    file.write_text("".join(Path(each).read_text() for each in pair(name, host, by)))
    return str(file)


def server(name: str = "server", **options: bool) -> Tls:
    """The TLS settings of a server on 127.0.0.1 that trusts the authority."""
    certificate, key = pair(name)
    return Tls(Files(certificate=certificate, key=key, trusted=authority()), is_server=True, **options)


def client(name: str = "", **options: bool) -> Tls:
    """The TLS settings of a client that trusts the authority. With a name, it has a certificate."""
    certificate, key = pair(name) if name else ("", "")
    return Tls(Files(certificate=certificate, key=key, trusted=authority()), is_server=False, **options)


def replace(old: str, new: str) -> None:
    """Replace a file with another, as renewing a certificate does."""
    shutil.copy(new, f"{old}.new")
    os.replace(f"{old}.new", old)
