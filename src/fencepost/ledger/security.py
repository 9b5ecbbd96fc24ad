"""TLS of the store's processes as clients of others, from one file: that which the variable FENCEPOST_CLIENT names, for
commands, programs, Spark's executors, bookies and auto-recovery alike.
"""

from __future__ import annotations

import os
from typing import Annotated, ClassVar

from msgspec import Meta

from fencepost.connections.tls import Files, Tls
from fencepost.errors import OptionError
from fencepost.ledger.settings import FileOfSettings

ENVIRONMENT = "FENCEPOST_CLIENT"
"""The variable of the environment that names the file."""


class Security(FileOfSettings, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How a client speaks to bookies, to the metadata service and to members of its quorum. Names are those of
    BookKeeper's clients."""

    command: ClassVar[str] = "docs/run/security.md"

    tls_trust_store: Annotated[
        str, Meta(description="the authorities that are trusted, in PEM; with it, TLS is spoken and nothing else")
    ] = ""
    tls_certificate_path: Annotated[str, Meta(description="the client's certificate, in PEM, if it has one")] = ""
    tls_key_store: Annotated[str, Meta(description="the private key to the certificate, in PEM")] = ""
    tls_key_store_password_path: Annotated[
        str, Meta(description="a file with the password of the key, if it has one")
    ] = ""
    tls_hostname_verification_enabled: Annotated[
        bool, Meta(description="whether a certificate must name the host that was connected to")
    ] = True
    metadata_tls: Annotated[
        bool, Meta(description="whether TLS is spoken to the metadata service, too, and not to bookies alone")
    ] = True

    @classmethod
    def of_environment(cls) -> Security:
        """That of the file which FENCEPOST_CLIENT names; without the variable, there is none. Raises
        :class:`fencepost.OptionError`, also for a file that is not there."""
        return cls.read(os.environ.get(ENVIRONMENT) or None)

    def tls(self) -> Tls | None:
        """The TLS to bookies, and to members of a quorum; None: in the clear."""
        if not self.tls_trust_store:
            return None
        files = Files(
            certificate=self.tls_certificate_path,
            key=self.tls_key_store,
            password=self.tls_key_store_password_path,
            trusted=self.tls_trust_store,
        )
        return Tls(files, is_server=False, checks_names=self.tls_hostname_verification_enabled)

    def check(self, origin: str) -> None:
        """Raise if settings are at odds with each other."""
        if bool(self.tls_certificate_path) != bool(self.tls_key_store):
            missing = "tlsKeyStore" if self.tls_certificate_path else "tlsCertificatePath"
            raise OptionError(f"{origin}: a certificate and its key belong together: set {missing} too")
        if self.tls_certificate_path and not self.tls_trust_store:
            raise OptionError(f"{origin}: TLS needs the authorities to trust: set tlsTrustStore too")
