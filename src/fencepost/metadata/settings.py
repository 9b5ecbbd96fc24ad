"""The settings of a metadata service: one TOML file, with ZooKeeper's names where ZooKeeper has the setting.

The help of each limit says what happens when it is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from fencepost.connections.tls import Files, Tls
from fencepost.errors import OptionError
from fencepost.ledger.settings import Count, FileOfSettings, HttpHost, HttpPort, LogFormat, Number, Port, Reload, Unit
from fencepost.quorum.driver.links import PeerTls

MIB = 1 << 20

_NAMES = {"jute_maxbuffer": "jute.maxbuffer", "words": "4lw.commands.whitelist",
"snap_retain_count": "autopurge.snapRetainCount",
    "container_check_interval": "znode.container.checkIntervalMs",
    "session_require_client_sasl_auth": "sessionRequireClientSASLAuth",
    "metrics_provider_http_host": "metricsProvider.httpHost",
    "metrics_provider_http_port": "metricsProvider.httpPort",
    "super_digest": "DigestAuthenticationProvider.superDigest",
    "ssl_key_store": "ssl.keyStore.location", "ssl_key_store_password": "ssl.keyStore.passwordPath",
    "ssl_trust_store": "ssl.trustStore.location", "ssl_client_auth": "ssl.clientAuth",
    "ssl_quorum_key_store": "ssl.quorum.keyStore.location",
    "ssl_quorum_key_store_password": "ssl.quorum.keyStore.passwordPath",
    "ssl_quorum_trust_store": "ssl.quorum.trustStore.location"}  # fmt: skip


SECRETS = (_NAMES["super_digest"],)
"""Settings that are never shown."""


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
        int, Unit("port"), Meta(ge=-1, le=65_535), "the port for TLS; 0: any free one; -1: none"
    ] = -1
    ssl_key_store: Annotated[
        str, Reload("its contents"), "the certificate of secureClientPort with its private key, in one file in PEM"
    ] = ""
    ssl_key_store_password: Annotated[
        str, Reload("its contents"), "a file with the password of that key, if it has one"
    ] = ""
    ssl_trust_store: Annotated[
        str, Reload("its contents"), "the authorities that sign certificates of clients, in PEM"
    ] = ""
    ssl_client_auth: Annotated[
        Literal["need", "none"],
        "need: clients of secureClientPort need a trusted certificate, and there is no clientPort; none: they need no"
        " certificate, and both ports are open",
    ] = "need"
    ssl_quorum: Annotated[
        bool, "whether members, fencepost quorum and Kafka's tools use TLS with certificates to talk to members"
    ] = False
    ssl_quorum_key_store: Annotated[
        str, Reload("its contents"), "the certificate for sslQuorum with its private key, in one file in PEM"
    ] = ""
    ssl_quorum_key_store_password: Annotated[
        str, Reload("its contents"), "a file with the password of that key, if it has one"
    ] = ""
    ssl_quorum_trust_store: Annotated[
        str, Reload("its contents"), "the authorities that sign certificates of members and operators, in PEM"
    ] = ""

    # -- sessions -----------------------------------------------------------------------------------------------------

    tick_time: Annotated[int, Unit("ms"), Meta(ge=10), "milliseconds between checks for expired sessions"] = 2_000
    min_session_timeout: Annotated[
        int, Unit("ms"), Meta(ge=-1), "milliseconds; the shortest timeout of a session; -1: two ticks"
    ] = -1
    max_session_timeout: Annotated[
        int, Unit("ms"), Meta(ge=-1), "milliseconds; the longest timeout of a session; -1: twenty ticks"
    ] = -1
    max_sessions: Annotated[
        Count, Unit("sessions"), "the most sessions; a client that opens one more has its connection closed"
    ] = 100_000

    # -- connections and their limits ---------------------------------------------------------------------------------

    max_cnxns: Annotated[
        Number,
        Unit("connections"),
        "the most connections, which ulimit -n limits too; above it, one that has sent nothing is closed, or else the"
        " new one; 0: no other limit",
    ] = 10_000
    max_client_cnxns: Annotated[
        Number, Unit("connections"), "the most connections from one address; one more is closed at once; 0: no limit"
    ] = 0
    sessionless_cnxn_timeout: Annotated[
        Count, Unit("ms"), "milliseconds after which a connection that has opened no session is closed"
    ] = 10_000
    jute_maxbuffer: Annotated[
        int,
        Unit("bytes"),
        Meta(ge=1_024, le=1 << 30),
        "bytes of the largest message; a connection that announces a larger one is closed",
    ] = MIB - 1
    max_identity_bytes: Annotated[
        int,
        Unit("bytes"),
        Meta(ge=64),
        "bytes of the identities that a connection may prove; the log has them with each of its changes; above it, the"
        " connection is closed with error -115, authentication failed",
    ] = 4_096
    global_outstanding_limit: Annotated[
        Count, Unit("requests"), "the most unanswered requests; above it, connections that have some are not read"
    ] = 1_000
    large_request_max_bytes: Annotated[
        int,
        Unit("bytes"),
        Meta(ge=1_024),
        "the most bytes of unanswered requests; above it, connections that have some are not read",
    ] = 100 * MIB
    max_outgoing_bytes: Annotated[
        int,
        Unit("bytes"),
        Meta(ge=1_024),
        "the most bytes that a client has not read; above it, its connection is closed",
    ] = 64 * MIB
    words: Annotated[tuple[str, ...], 'the four-letter words that are answered; ["*"]: all; others get a refusal'] = (
        "cons",
        "conf",
        "dump",
        "envi",
        "isro",
        "mntr",
        "ruok",
        "srvr",
        "stat",
        "wchs",
    )

    # -- how much it holds --------------------------------------------------------------------------------------------

    max_nodes: Annotated[
        int,
        Unit("znodes"),
        Meta(ge=8),
        "the most znodes; a create of one more is refused with ZooKeeper's error -125, quota exceeded",
    ] = 1_000_000
    max_data_bytes: Annotated[
        int,
        Unit("bytes"),
        Meta(ge=1_024),
        "the most bytes of paths, data and ACLs; changes that exceed it are refused with error -125",
    ] = 1_024 * MIB
    max_watches: Annotated[
        Count, Unit("watches"), "the most watches of all clients; a request for one more is refused with error -125"
    ] = 1_000_000
    container_check_interval: Annotated[
        Count,
        Unit("ms"),
        "milliseconds between checks for empty containers and znodes whose TTL is over, which are then deleted",
    ] = 60_000
    extended_types_enabled: Annotated[
        bool,
        "whether clients of this member can create znodes with a TTL; if not, that is refused with error -6,"
        " unimplemented; existing ones are deleted when their time is over in either case",
    ] = False
    super_digest: Annotated[
        str,
        "the superuser of the scheme digest: what fencepost user NAME --super prints, or user:hash, as in a digest ACL;"
        " empty: none; never shown",
    ] = ""

    sasl_users: Annotated[
        str,
        Reload("its contents"),
        "a file of users who may authenticate by SASL (DIGEST-MD5), with mode 0640 or stricter; it is read again when"
        " it changes; empty: nobody can",
    ] = ""
    session_require_client_sasl_auth: Annotated[
        bool, "whether a client must authenticate by SASL before it can do anything else"
    ] = False
    super_user: Annotated[str, "the superuser of SASL; empty: none"] = ""

    # -- log and snapshots --------------------------------------------------------------------------------------------

    snap_count: Annotated[int, Unit("entries"), Meta(ge=2), "log entries between snapshots"] = 100_000
    snap_retain_count: Annotated[
        Count, Unit("snapshots"), "snapshots to keep, each with the log since then; older ones are removed"
    ] = 3
    pre_alloc_size: Annotated[int, Unit("KiB"), Meta(ge=4), "KiB of disk that a log file allocates at once"] = 1_024

    # -- health, metrics and logs -------------------------------------------------------------------------------------

    metrics_provider_http_host: HttpHost = "127.0.0.1"
    metrics_provider_http_port: HttpPort = 0
    log_format: LogFormat = "text"

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"  # some settings are secret

    @property
    def timeouts(self) -> tuple[int, int]:
        """The shortest and longest session timeouts, in milliseconds."""
        least = 2 * self.tick_time if self.min_session_timeout < 0 else self.min_session_timeout
        most = 20 * self.tick_time if self.max_session_timeout < 0 else self.max_session_timeout
        return least, max(least, most)

    @property
    def ports(self) -> list[tuple[int, Tls | None]]:
        """The client ports, and their TLS. Raises :class:`fencepost.OptionError` for unusable files."""
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
        """The TLS between members, if it is on. Raises :class:`fencepost.OptionError` for unusable files."""
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
        """Raise if settings contradict each other."""
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
        """The value of a setting, by its name in a file of settings."""
        return next(getattr(self, field.name) for field in msgspec.structs.fields(self) if field.encode_name == name)

    @classmethod
    def named(cls, found: Mapping[str, Any]) -> dict[str, Any]:
        """See :class:`.FileOfSettings`."""
        return _flat(found)


def _flat(nested: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Restore dots in names: TOML reads a dotted name as nested tables."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[before + name] = value
    return flat
