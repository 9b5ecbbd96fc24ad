"""Certificates for a cluster in which both sides of each connection show one, and nobody speaks without TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path

_NEW = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")


class Certificates:
    """An authority, and one certificate for servers and clients on loopback: settings of each part with them."""

    def __init__(self, folder: Path, hosts: int = 1) -> None:
        """``hosts``: how many addresses from 127.0.0.1 on the certificate names."""
        folder.mkdir()
        self.authority, self.certificate, self.key, self.both = (
            folder / name for name in ("authority.pem", "one.pem", "one.key.pem", "both.pem")
        )
        authority_key = folder / "authority.key.pem"
        # ZooKeeper's client looks up the name of an address, and compares that.
        names = ",".join(["DNS:localhost", *(f"IP:127.0.0.{number + 1}" for number in range(hosts))])
        _openssl(*_NEW, "-subj", "/CN=authority", "-keyout", str(authority_key), "-out", str(self.authority))
        _openssl(
            *_NEW,
            *(
                "-subj",
                "/CN=one",
                "-addext",
                f"subjectAltName={names}",
                "-addext",
                "basicConstraints=critical,CA:FALSE",
            ),
            *("-CA", str(self.authority), "-CAkey", str(authority_key)),
            *("-keyout", str(self.key), "-out", str(self.certificate)),
        )
        self.both.touch(0o600)
        self.both.write_text(self.key.read_text() + self.certificate.read_text())
        self.client = folder / "client.toml"
        self.client.write_text("".join(f'{name} = "{path}"\n' for name, path in self._ours().items()))

    def _ours(self) -> dict[str, object]:
        return {"tlsTrustStore": self.authority, "tlsCertificatePath": self.certificate, "tlsKeyStore": self.key}

    def of_bookies(self) -> dict[str, object]:
        """Settings of our bookies."""
        return {**self._ours(), "tlsClientAuthentication": "true"}

    def of_metadata(self, port: int) -> dict[str, object]:
        """Settings of our metadata service, which has no other port for clients."""
        return {
            "secureClientPort": port,
            "ssl.keyStore.location": str(self.both),
            "ssl.trustStore.location": str(self.authority),
        }

    def of_our_clients(self) -> tuple[str, ...]:
        """The beginning of a command line of ours."""
        return "env", f"FENCEPOST_CLIENT={self.client}"

    def of_zookeepers_client(self) -> tuple[str, ...]:
        """Words of a Java virtual machine in which ZooKeeper's client runs."""
        return (
            "-Dzookeeper.client.secure=true",
            "-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
            f"-Dzookeeper.ssl.keyStore.location={self.both}",
            f"-Dzookeeper.ssl.trustStore.location={self.authority}",
        )

    def of_broker(self) -> dict[str, object]:
        """Settings of Pulsar's broker, as a client of the bookies."""
        return {
            "bookkeeperTLSProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
            "bookkeeperTLSClientAuthentication": "true",
            "bookkeeperTLSKeyFileType": "PEM",
            "bookkeeperTLSTrustCertTypes": "PEM",
            "bookkeeperTLSKeyFilePath": self.key,
            "bookkeeperTLSCertificateFilePath": self.certificate,
            "bookkeeperTLSTrustCertsFilePath": self.authority,
        }


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, umask=0o077)
