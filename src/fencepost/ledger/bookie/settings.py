"""The settings of a bookie: one TOML file, with BookKeeper's names where BookKeeper has the setting.

Units are in the names or in the descriptions. Every limit's description says what happens when it is reached.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from fencepost.connections.tls import Files, Tls
from fencepost.connections.users import Users
from fencepost.errors import OptionError
from fencepost.ledger.autorecovery.settings import RecoverySettings
from fencepost.ledger.disk.settings import StorageSettings
from fencepost.ledger.roles.bookie import Limits
from fencepost.ledger.settings import Count, HttpHost, HttpPort, LogFormat, Number, Port, Reload, Share, Unit

MIB = 1 << 20

_OF_STORAGE = {field.name: field.default for field in msgspec.structs.fields(StorageSettings)}
"""The storage's defaults for its own settings."""


class BookieSettings(RecoverySettings, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The settings of a bookie. The help of ``fencepost bookie`` lists the fields."""

    command: ClassVar[str] = "fencepost bookie"

    # -- who and where ------------------------------------------------------------------------------------------------

    bookie_id: Annotated[
        str, "the name by which clients and metadata know the bookie; by default its advertised address and port"
    ] = ""
    bookie_port: Annotated[Port, "the port; 0: any free port at the first start, and the same port afterwards"] = 3181
    listening_interface: Annotated[
        str, "the address, or the name of the network interface, to listen on; 0.0.0.0: all of them"
    ] = "127.0.0.1"
    advertised_address: Annotated[
        str, "the host advertised to clients; by default the address of listeningInterface"
    ] = ""
    allow_loopback: Annotated[bool, "whether a loopback address may be advertised"] = True
    journal_directories: Annotated[
        tuple[str, ...], Meta(max_length=1), "where the journal is; by default journal in the bookie's directory"
    ] = ()
    ledger_directories: Annotated[
        tuple[str, ...], Meta(max_length=1), "where entries are; by default ledgers in the bookie's directory"
    ] = ()

    # -- metadata -----------------------------------------------------------------------------------------------------

    metadata_service_uri: Annotated[
        str, "the metadata service: zk://HOST:PORT[,HOST:PORT]/ledgers, or as BookKeeper writes it"
    ] = ""
    zk_timeout: Annotated[
        int,
        Unit("ms"),
        Meta(ge=100),
        "milliseconds after which the metadata service ends the session of a silent bookie",
    ] = 10_000

    # -- connections and their limits ---------------------------------------------------------------------------------

    netty_max_frame_size_bytes: Annotated[
        int,
        Unit("bytes"),
        Meta(ge=1_024, le=1 << 30),
        "bytes of the largest message; a larger add, of up to 64 MiB, is answered EUA, which ends its writer, and any"
        " other larger message closes its connection",
    ] = 5 * MIB
    max_connections: Annotated[
        Count,
        Unit("connections"),
        "connections at a time; a further one replaces the connection idle longest, or is refused",
    ] = 10_000
    max_requests_per_connection: Annotated[
        Count,
        Unit("requests"),
        "unanswered requests per connection; at the limit, it is not read from until half are answered",
    ] = 5_000
    max_bytes_per_connection: Annotated[
        Count, Unit("bytes"), "bytes of adds per connection that are not durable; at the limit, it is not read from"
    ] = 32 * MIB
    max_bytes_in_flight: Annotated[
        Count,
        Unit("bytes"),
        "bytes of adds that are not durable, and of incomplete messages, over all connections; at the limit,"
        " connections with more than 64 KiB of them are not read from",
    ] = 256 * MIB
    max_pending_read_requests_per_thread: Annotated[
        Count, Unit("requests"), "reads of all connections that wait for storage; more are answered ETOOMANYREQUESTS"
    ] = 100_000
    max_long_polls: Annotated[
        Number,
        Unit("requests"),
        "long polls of all connections that wait for an entry; more are answered ETOOMANYREQUESTS",
    ] = 100_000
    max_long_polls_per_ledger: Annotated[
        Number, Unit("requests"), "long polls that wait for an entry of one ledger; more are answered ETOOMANYREQUESTS"
    ] = 10_000
    max_long_poll_timeout_ms: Annotated[
        Number, Unit("ms"), "the longest wait of a long poll in milliseconds, whatever its client requests"
    ] = 60_000
    max_batch_read_size: Annotated[
        Count,
        Unit("bytes"),
        "the most bytes of an answer to a batch read with more than one entry, whatever its client requests",
    ] = 5 * MIB
    max_batch_read_entries: Annotated[
        Count, Unit("entries"), "the most entries of an answer to a batch read, whatever its client requests"
    ] = 1_000
    write_buffer_bytes_per_connection: Annotated[
        Count,
        Unit("bytes"),
        "bytes of answers that a client has not taken yet; at the limit, its further requests wait",
    ] = 4 * MIB
    wait_timeout_on_response_backpressure_ms: Annotated[
        Count, Unit("ms"), "milliseconds after which a connection that takes none of those answers is closed"
    ] = 30_000
    frame_timeout_ms: Annotated[
        Count,
        Unit("ms"),
        "milliseconds for a message to arrive completely, and for a connection to send its first valid request;"
        " a slower connection is closed",
    ] = 30_000
    idle_connection_ms: Annotated[
        Count, Unit("ms"), "milliseconds without a message after which a connection counts as idle, for maxConnections"
    ] = 10_000
    num_read_worker_threads: Annotated[
        int, Unit("threads"), Meta(ge=1, le=256), "threads that read entries from disks"
    ] = 4

    # -- TLS ----------------------------------------------------------------------------------------------------------

    tls_certificate_path: Annotated[
        str, Reload("its contents"), "the bookie's certificate, in PEM; with tlsKeyStore: TLS is on"
    ] = ""
    tls_key_store: Annotated[str, Reload("its contents"), "the private key to the certificate, in PEM"] = ""
    tls_key_store_password_path: Annotated[
        str, Reload("its contents"), "a file with the password of the key, if it has one"
    ] = ""
    tls_trust_store: Annotated[
        str, Reload("its contents"), "the trusted certificates, in PEM, by which clients are verified"
    ] = ""
    tls_client_authentication: Annotated[
        bool, "whether a client must have a certificate that tlsTrustStore trusts; tlsRequired is on then"
    ] = False
    tls_required: Annotated[
        bool,
        "whether a client must start TLS before anything else; an unencrypted request is answered EUA, and its"
        " connection closed",
    ] = False

    sasl_users: Annotated[
        str,
        Reload("its contents"),
        "a file of users, as htdigest writes it; with it, a client must first authenticate by BookKeeper's SASL"
        " (DIGEST-MD5); a request without that is answered EUA, and its connection closed",
    ] = ""

    # -- the journal --------------------------------------------------------------------------------------------------

    journal_write_data: Annotated[
        bool,
        "whether entries are in the journal before an add is answered; without this (BP-46), the ledgers of a killed"
        " bookie are in limbo until they are repaired from other bookies",
    ] = _OF_STORAGE["journal_write_data"]
    journal_sync_data: Annotated[
        bool, "whether adds are answered only after a sync; without this, a power failure loses entries"
    ] = _OF_STORAGE["journal_sync_data"]
    journal_max_group_wait_msec: Annotated[
        float,
        Unit("ms"),
        Meta(ge=0, le=1_000),
        "the longest time in milliseconds that an add waits for others to be synced with it",
    ] = msgspec.field(default=_OF_STORAGE["journal_max_group_wait_msec"], name="journalMaxGroupWaitMSec")
    journal_buffered_writes_threshold: Annotated[
        Count,
        Unit("bytes"),
        "bytes of adds that start a sync without waiting for more; up to 8 MiB are synced together",
    ] = _OF_STORAGE["journal_buffered_writes_threshold"]
    journal_buffered_entries_threshold: Annotated[Count, Unit("adds"), "the most adds that are synced together"] = (
        _OF_STORAGE["journal_buffered_entries_threshold"]
    )
    journal_max_size_mb: Annotated[Count, Unit("MiB"), "MiB of a journal file, after which the next one begins"] = (
        msgspec.field(default=_OF_STORAGE["journal_max_size_mb"], name="journalMaxSizeMB")
    )
    journal_pre_alloc_size_mb: Annotated[Number, Unit("MiB"), "MiB of a journal file that are allocated at once"] = (
        msgspec.field(default=_OF_STORAGE["journal_pre_alloc_size_mb"], name="journalPreAllocSizeMB")
    )

    # -- entries ------------------------------------------------------------------------------------------------------

    flush_interval: Annotated[
        int,
        Unit("ms"),
        Meta(ge=10),
        "milliseconds between checkpoints, which write entries to entry logs and free the journal",
    ] = _OF_STORAGE["flush_interval"]
    write_cache_max_size_mb: Annotated[
        Count,
        Unit("MiB"),
        "MiB of memory for entries that are in no entry log yet; at the limit, connections are not read from",
    ] = msgspec.field(default=_OF_STORAGE["write_cache_max_size_mb"], name="dbStorage_writeCacheMaxSizeMb")
    read_ahead_cache_max_size_mb: Annotated[
        Number,
        Unit("MiB"),
        "MiB of memory for entries read ahead for sequential readers; 0: no read-ahead",
    ] = msgspec.field(default=_OF_STORAGE["read_ahead_cache_max_size_mb"], name="dbStorage_readAheadCacheMaxSizeMb")
    log_size_limit: Annotated[
        int, Unit("bytes"), Meta(ge=MIB), "bytes of an entry log, after which the next one begins"
    ] = _OF_STORAGE["log_size_limit"]

    # -- garbage and room ---------------------------------------------------------------------------------------------

    gc_wait_time: Annotated[
        int,
        Unit("ms"),
        Meta(ge=10),
        "milliseconds between searches for deleted ledgers, whose entries are then removed",
    ] = _OF_STORAGE["gc_wait_time"]
    minor_compaction_threshold: Annotated[
        float,
        Unit("share"),
        Meta(ge=0, le=1),
        "the share of an entry log in use up to which minor compactions rewrite it; 0: none",
    ] = _OF_STORAGE["minor_compaction_threshold"]
    minor_compaction_interval: Annotated[Count, Unit("s"), "seconds between minor compactions"] = _OF_STORAGE[
        "minor_compaction_interval"
    ]
    major_compaction_threshold: Annotated[float, Unit("share"), Meta(ge=0, le=1), "the same for major compactions"] = (
        _OF_STORAGE["major_compaction_threshold"]
    )
    major_compaction_interval: Annotated[Count, Unit("s"), "seconds between major compactions"] = _OF_STORAGE[
        "major_compaction_interval"
    ]
    compaction_rate_by_bytes: Annotated[Count, Unit("bytes/s"), "the most bytes a second that a compaction writes"] = (
        _OF_STORAGE["compaction_rate_by_bytes"]
    )
    disk_usage_threshold: Annotated[Share, "the share of a disk in use at which the bookie becomes read-only"] = (
        _OF_STORAGE["disk_usage_threshold"]
    )
    disk_usage_warn_threshold: Annotated[Share, "the share of a disk in use at which a warning is logged"] = (
        _OF_STORAGE["disk_usage_warn_threshold"]
    )
    disk_usage_lwm_threshold: Annotated[
        Share, "the share of every disk in use below which a read-only bookie takes adds again"
    ] = _OF_STORAGE["disk_usage_lwm_threshold"]
    disk_check_interval: Annotated[int, Unit("ms"), Meta(ge=10), "milliseconds between checks of free disk space"] = (
        _OF_STORAGE["disk_check_interval"]
    )
    read_only_mode_enabled: Annotated[
        bool, "whether a bookie with full disks continues read-only; otherwise it exits"
    ] = True
    force_read_only_bookie: Annotated[bool, "whether the bookie takes adds only from recoveries"] = False

    # -- repair -------------------------------------------------------------------------------------------------------

    data_integrity_stamp_missing_cookies: Annotated[
        bool,
        "whether a bookie that has lost a directory still starts, with its ledgers in limbo until they are repaired"
        " from other bookies",
    ] = False
    auto_recovery_daemon_enabled: Annotated[
        bool,
        "whether the bookie's process also runs auto-recovery, for all bookies of the cluster, instead of a separate"
        " process",
    ] = False

    # -- traces -------------------------------------------------------------------------------------------------------

    trace_directory: Annotated[str, "the folder for the bookie's trace; empty: no trace"] = ""

    # -- health, metrics and logs --------------------------------------------------------------------------------------

    prometheus_stats_http_address: HttpHost = "127.0.0.1"
    prometheus_stats_http_port: HttpPort = 0
    log_format: LogFormat = "text"

    def of_storage(self, journal_directory: str, ledger_directory: str) -> StorageSettings:
        """The settings of the storage, with these directories."""
        shared = [name for name in self.__struct_fields__ if name in _OF_STORAGE]
        return StorageSettings(
            journal_directory=journal_directory,
            ledger_directory=ledger_directory,
            **{name: getattr(self, name) for name in shared},
        )

    @property
    def requires_tls(self) -> bool:
        """Whether unencrypted connections are refused."""
        return self.tls_required or self.tls_client_authentication

    def tls(self) -> Tls | None:
        """The TLS of the port; None if there is none. Raises :class:`fencepost.OptionError` for unusable files."""
        if not self.tls_certificate_path:
            return None
        files = Files(
            certificate=self.tls_certificate_path,
            key=self.tls_key_store,
            password=self.tls_key_store_password_path,
            trusted=self.tls_trust_store,
        )
        return Tls(files, is_server=True, asks=self.tls_client_authentication)

    def users(self) -> Users | None:
        """The users; None if clients need not authenticate. Raises :class:`fencepost.OptionError` for an unusable
        file.
        """
        return Users(self.sasl_users) if self.sasl_users else None

    def of_role(self) -> Limits:
        """The limits of the role."""
        return Limits(
            lookups=self.max_pending_read_requests_per_thread,
            polls=self.max_long_polls,
            polls_of_ledger=self.max_long_polls_per_ledger,
            poll_wait=self.max_long_poll_timeout_ms * 1_000,
            batch_entries=self.max_batch_read_entries,
            batch_size=min(self.max_batch_read_size, self.netty_max_frame_size_bytes),
        )

    def check(self, origin: str) -> None:
        """Raise :class:`fencepost.OptionError` if settings contradict each other."""
        if bool(self.tls_certificate_path) != bool(self.tls_key_store):
            missing = "tlsKeyStore" if self.tls_certificate_path else "tlsCertificatePath"
            raise OptionError(f"{origin}: TLS needs tlsCertificatePath and tlsKeyStore: set {missing} too")
        if self.tls_client_authentication and not self.tls_key_store:
            raise OptionError(
                f"{origin}: tlsClientAuthentication is for TLS: set tlsCertificatePath and tlsKeyStore too"
            )
        if self.tls_required and not self.tls_key_store:
            raise OptionError(f"{origin}: tlsRequired needs TLS: set tlsCertificatePath and tlsKeyStore too")
        if self.tls_client_authentication and not self.tls_trust_store:
            raise OptionError(
                f"{origin}: tlsClientAuthentication needs the certificates to trust: set tlsTrustStore too"
            )
        if self.disk_usage_lwm_threshold > self.disk_usage_threshold:
            raise OptionError(
                f"{origin}: diskUsageLwmThreshold is above diskUsageThreshold: give at most {self.disk_usage_threshold}"
            )
