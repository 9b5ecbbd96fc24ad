"""The settings of a metadata service: one TOML file, with ZooKeeper's names where ZooKeeper has one.

Every limit says what happens when it is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from fencepost.connections.tls import Files, Tls
from fencepost.errors import OptionError
from fencepost.ledger.settings import Count, FileOfSettings, Number, Port
from fencepost.quorum.driver.links import PeerTls

MIB = 1 << 20

_NAMES = {"jute_maxbuffer": "jute.maxbuffer", "words": "4lw.commands.whitelist",
"snap_retain_count": "autopurge.snapRetainCount",
    "container_check_interval": "znode.container.checkIntervalMs",
    "session_require_client_sasl_auth": "sessionRequireClientSASLAuth",
    "super_digest": "DigestAuthenticationProvider.superDigest",
    "ssl_key_store": "ssl.keyStore.location", "ssl_key_store_password": "ssl.keyStore.passwordPath",
    "ssl_trust_store": "ssl.trustStore.location", "ssl_client_auth": "ssl.clientAuth",
    "ssl_quorum_key_store": "ssl.quorum.keyStore.location",
    "ssl_quorum_key_store_password": "ssl.quorum.keyStore.passwordPath",
    "ssl_quorum_trust_store": "ssl.quorum.trustStore.location"}  # fmt: skip


SECRETS = (_NAMES["super_digest"],)
"""The settings that are told to nobody."""


def _name(field: str) -> str:
    first, *others = field.split("_")
    return _NAMES.get(field, first + "".join(map(str.capitalize, others)))


class MetadataSettings(FileOfSettings, frozen=True, kw_only=True, rename=_name, forbid_unknown_fields=True):
    """The settings of a metadata service. The help of ``fencepost metadata`` lists the fields."""

    command: ClassVar[str] = "fencepost metadata"

    # -- where --------------------------------------------------------------------------------------------------------

    client_port: Annotated[Port, "the port; 0: any free one"] = 2181
    client_port_address: Annotated[str, "the address to listen on; 0.0.0.0: all of them"] = "127.0.0.1"

    # -- TLS ----------------------------------------------------------------------------------------------------------

    secure_client_port: Annotated[
        int, Meta(ge=-1, le=65_535), "the port on which TLS is spoken; 0: any free one; -1: none"
    ] = -1
    ssl_key_store: Annotated[str, "the certificate of secureClientPort with its private key, in one file in PEM"] = ""
    ssl_key_store_password: Annotated[str, "a file with the password of that key, if it has one"] = ""
    ssl_trust_store: Annotated[str, "the authorities by which clients are known, in PEM"] = ""
    ssl_client_auth: Annotated[
        Literal["need", "none"],
        "need: clients of secureClientPort have a certificate that is trusted, and there is no clientPort; none: they"
        " need none, and both ports are there",
    ] = "need"
    ssl_quorum: Annotated[
        bool, "whether members, fencepost quorum and Kafka's tools speak TLS to members, with certificates"
    ] = False
    ssl_quorum_key_store: Annotated[str, "the certificate for sslQuorum with its private key, in one file in PEM"] = ""
    ssl_quorum_key_store_password: Annotated[str, "a file with the password of that key, if it has one"] = ""
    ssl_quorum_trust_store: Annotated[str, "the authorities by which members and operators are known, in PEM"] = ""

    # -- sessions -----------------------------------------------------------------------------------------------------

    tick_time: Annotated[int, Meta(ge=10), "milliseconds between two looks at which sessions have expired"] = 2_000
    min_session_timeout: Annotated[
        int, Meta(ge=-1), "milliseconds; a session gets no shorter timeout; -1: two ticks"
    ] = -1
    max_session_timeout: Annotated[
        int, Meta(ge=-1), "milliseconds; a session gets no longer timeout; -1: twenty ticks"
    ] = -1
    max_sessions: Annotated[Count, "sessions at a time; a client that wants one more has its connection closed"] = (
        100_000
    )

    # -- connections and their limits ---------------------------------------------------------------------------------

    max_cnxns: Annotated[
        Number, "connections at a time; for one more, one that has said nothing is closed, or the new one; 0: no limit"
    ] = 10_000
    max_client_cnxns: Annotated[
        Number, "connections of one address at a time; one more is closed at once; 0: any number"
    ] = 0
    sessionless_cnxn_timeout: Annotated[
        Count, "milliseconds after which a connection that has opened no session is closed"
    ] = 10_000
    jute_maxbuffer: Annotated[
        int,
        Meta(ge=1_024, le=1 << 30),
        "bytes of the largest message; a connection that announces a larger one is closed",
    ] = MIB - 1
    max_identity_bytes: Annotated[
        int,
        Meta(ge=64),
        "bytes of the identities that a connection proves, which the log has with each of its changes; for more the"
        " connection is closed by error -115, authentication failed",
    ] = 4_096
    global_outstanding_limit: Annotated[
        Count, "requests without an answer; with more, connections that have some are not read from"
    ] = 1_000
    large_request_max_bytes: Annotated[
        int,
        Meta(ge=1_024),
        "bytes of requests without an answer; with more, connections that have some are not read from",
    ] = 100 * MIB
    max_outgoing_bytes: Annotated[
        int, Meta(ge=1_024), "bytes that wait for a client to read them; with more, its connection is closed"
    ] = 64 * MIB
    words: Annotated[
        tuple[str, ...], 'the four-letter words that are answered, ["*"]: all; to others it is said that they are not'
    ] = ("cons", "conf", "dump", "envi", "isro", "mntr", "ruok", "srvr", "stat", "wchs")

    # -- how much it holds --------------------------------------------------------------------------------------------

    max_nodes: Annotated[
        int, Meta(ge=8), "znodes; a create of one more is refused with ZooKeeper's error -125, quota exceeded"
    ] = 1_000_000
    max_data_bytes: Annotated[
        int, Meta(ge=1_024), "bytes of all paths, data and ACLs; what adds to more is refused with error -125"
    ] = 1_024 * MIB
    max_watches: Annotated[Count, "watches of all clients; a request for one more is refused with error -125"] = (
        1_000_000
    )
    container_check_interval: Annotated[
        Count,
        "milliseconds between two looks at which containers are empty again and which TTLs are over, and these znodes"
        " are deleted",
    ] = 60_000
    extended_types_enabled: Annotated[
        bool,
        "whether clients of this member can create znodes with a TTL; if not, that is refused with error -6,"
        " unimplemented; those that are there go when their time is over, whatever is set",
    ] = False
    super_digest: Annotated[
        str,
        "of the one who may do everything, with the scheme digest: what fencepost user NAME --super prints, or"
        " user:hash, as a digest ACL has it; empty: nobody; never told",
    ] = ""

    sasl_users: Annotated[
        str,
        "a file of users, of the mode 0640 or stricter, who may authenticate by SASL (DIGEST-MD5); it is looked at"
        " again when it has changed; empty: nobody can",
    ] = ""
    session_require_client_sasl_auth: Annotated[
        bool, "whether a client can do nothing but authenticate by SASL before it has"
    ] = False
    super_user: Annotated[str, "the user of SASL who may do everything; empty: nobody"] = ""

    # -- log and snapshots --------------------------------------------------------------------------------------------

    snap_count: Annotated[int, Meta(ge=2), "entries of the log after which a snapshot is written"] = 100_000
    snap_retain_count: Annotated[
        Count, "snapshots that are kept, each with the log since then; older ones are removed"
    ] = 3
    pre_alloc_size: Annotated[int, Meta(ge=4), "KiB that a file of the log takes on the disk at once"] = 1_024

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"  # some are told to nobody

    @property
    def timeouts(self) -> tuple[int, int]:
        """The shortest and the longest timeout of a session, in milliseconds."""
        least = 2 * self.tick_time if self.min_session_timeout < 0 else self.min_session_timeout
        most = 20 * self.tick_time if self.max_session_timeout < 0 else self.max_session_timeout
        return least, max(least, most)

    @property
    def ports(self) -> list[tuple[int, Tls | None]]:
        """The ports for clients, and their TLS. Raises :class:`fencepost.OptionError` for unusable files."""
        if self.secure_client_port < 0:
            return [(self.client_port, None)]
        asks = self.ssl_client_auth == "need"
        files = Files(
            certificate=self.ssl_key_store, password=self.ssl_key_store_password, trusted=self.ssl_trust_store
        )
        secure = self.secure_client_port, Tls(files, is_server=True, asks=asks)
        return [secure] if asks else [(self.client_port, None), secure]

    @property
    def tls_of_quorum(self) -> PeerTls | None:
        """The TLS among members, if it is on. Raises :class:`fencepost.OptionError` for files that cannot be used."""
        if not self.ssl_quorum:
            return None
        return PeerTls.of(
            Files(
                certificate=self.ssl_quorum_key_store,
                password=self.ssl_quorum_key_store_password,
                trusted=self.ssl_quorum_trust_store,
            )
        )

    def check(self, origin: str) -> None:
        """Raise if settings are at odds with each other."""
        needed = {
            "secureClientPort": (self.secure_client_port >= 0, "ssl.keyStore.location", self.ssl_key_store),
            "ssl.clientAuth": (
                self.secure_client_port >= 0 and self.ssl_client_auth == "need",
                "ssl.trustStore.location",
                self.ssl_trust_store,
            ),
            "sslQuorum": (self.ssl_quorum, "ssl.quorum.keyStore.location", self.ssl_quorum_key_store),
            "sslQuorum = true": (self.ssl_quorum, "ssl.quorum.trustStore.location", self.ssl_quorum_trust_store),
        }
        for name, (is_on, other, value) in needed.items():
            if is_on and not value:
                raise OptionError(f"{origin}: {name} needs {other}: set it too")
            if not is_on and value and name != "ssl.clientAuth":
                raise OptionError(f"{origin}: {other} is for {name.partition(' ')[0]}: set that too")
        if self.session_require_client_sasl_auth and not self.sasl_users:
            raise OptionError(f"{origin}: with sessionRequireClientSASLAuth, saslUsers says who can authenticate")

    def value(self, name: str) -> object:
        """The value of a setting by its name in files of settings."""
        return next(getattr(self, field.name) for field in msgspec.structs.fields(self) if field.encode_name == name)

    @classmethod
    def named(cls, found: Mapping[str, Any]) -> dict[str, Any]:
        """See :class:`.FileOfSettings`."""
        return _flat(found)


def _flat(given: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """TOML reads a dot in a name as a table in a table: the names with their dots again."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[before + name] = value
    return found
