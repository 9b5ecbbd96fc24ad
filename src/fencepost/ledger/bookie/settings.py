"""The settings of a bookie: one TOML file, with BookKeeper's names where BookKeeper has one.

Units are in the names or in the descriptions; every limit says what happens when it is reached.
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
from fencepost.ledger.settings import Count, Number, Port, Share

MIB = 1 << 20

_OF_STORAGE = {field.name: field.default for field in msgspec.structs.fields(StorageSettings)}
"""The defaults that the storage has for its own settings."""


class BookieSettings(RecoverySettings, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The settings of a bookie. The help of ``fencepost bookie`` lists the fields."""

    command: ClassVar[str] = "fencepost bookie"

    # -- who and where ------------------------------------------------------------------------------------------------

    bookie_id: Annotated[
        str, "the name by which clients and metadata know the bookie; by default its advertised address and port"
    ] = ""
    bookie_port: Annotated[Port, "the port; 0: any free one at the first start, and the same one ever after"] = 3181
    listening_interface: Annotated[
        str, "the address, or the name of the network interface, to listen on; 0.0.0.0: all of them"
    ] = "127.0.0.1"
    advertised_address: Annotated[
        str, "the host that clients are told; by default the address of listeningInterface"
    ] = ""
    allow_loopback: Annotated[bool, "whether clients may be told a loopback address"] = True
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
        int, Meta(ge=100), "milliseconds after which the metadata service gives a silent bookie's session up"
    ] = 10_000

    # -- connections and their limits ---------------------------------------------------------------------------------

    netty_max_frame_size_bytes: Annotated[
        int,
        Meta(ge=1_024, le=1 << 30),
        "bytes of the largest message; a larger add, of up to 64 MiB, is answered EUA, which ends its writer, and any"
        " other larger message closes its connection",
    ] = 5 * MIB
    max_connections: Annotated[
        Count,
        "connections at a time; for one more, the one that is idle for the longest time is closed, or the new one",
    ] = 10_000
    max_requests_per_connection: Annotated[
        Count, "requests of a connection without an answer; with that many, it is not read from until half are answered"
    ] = 5_000
    max_bytes_per_connection: Annotated[
        Count, "bytes of adds of a connection that are not durable; with that many, it is not read from"
    ] = 32 * MIB
    max_bytes_in_flight: Annotated[
        Count,
        "bytes of adds that are not durable, and of parts of messages, over all connections; with that many,"
        " connections with more than 64 KiB of them are not read from",
    ] = 256 * MIB
    max_pending_read_requests_per_thread: Annotated[
        Count, "reads of all connections that wait for storage; more are answered ETOOMANYREQUESTS"
    ] = 100_000
    max_long_polls: Annotated[
        Number, "long polls of all connections that wait for an entry; more are answered ETOOMANYREQUESTS"
    ] = 100_000
    max_long_polls_per_ledger: Annotated[
        Number, "long polls that wait for an entry of one ledger; more are answered ETOOMANYREQUESTS"
    ] = 10_000
    max_long_poll_timeout_ms: Annotated[
        Number, "milliseconds that a long poll waits at the most, whatever its client asked for"
    ] = 60_000
    max_batch_read_size: Annotated[
        Count,
        "bytes of the answer to a batch read at the most, if it has more than one entry, whatever its client asked for",
    ] = 5 * MIB
    max_batch_read_entries: Annotated[
        Count, "entries in the answer to a batch read at the most, whatever its client asked for"
    ] = 1_000
    write_buffer_bytes_per_connection: Annotated[
        Count, "bytes of answers that a client has not taken yet; with that many, its further requests wait"
    ] = 4 * MIB
    wait_timeout_on_response_backpressure_ms: Annotated[
        Count, "milliseconds without any of those answers being taken after which the connection is closed"
    ] = 30_000
    frame_timeout_ms: Annotated[
        Count,
        "milliseconds that a message may take to arrive as a whole, and that a connection may take until it asks for"
        " something that is served; then it is closed",
    ] = 30_000
    idle_connection_ms: Annotated[
        Count, "milliseconds without a message after which a connection counts as idle, for maxConnections"
    ] = 10_000
    num_read_worker_threads: Annotated[int, Meta(ge=1, le=256), "threads that read entries from disks"] = 4

    # -- TLS ----------------------------------------------------------------------------------------------------------

    tls_certificate_path: Annotated[str, "the bookie's certificate, in PEM; with tlsKeyStore: TLS is on"] = ""
    tls_key_store: Annotated[str, "the private key to the certificate, in PEM"] = ""
    tls_key_store_password_path: Annotated[str, "a file with the password of the key, if it has one"] = ""
    tls_trust_store: Annotated[str, "the certificates that are trusted, in PEM, to know clients by"] = ""
    tls_client_authentication: Annotated[
        bool, "whether a client must have a certificate that tlsTrustStore trusts; tlsRequired is on then"
    ] = False
    tls_required: Annotated[
        bool,
        "whether a client must start TLS before anything else; what it asks for in the clear is answered EUA, and the"
        " connection closed",
    ] = False

    sasl_users: Annotated[
        str,
        "a file of users, as htdigest writes it; with it, a client authenticates by BookKeeper's SASL (DIGEST-MD5)"
        " before anything else, and what others ask for is answered EUA, and the connection closed",
    ] = ""

    # -- the journal --------------------------------------------------------------------------------------------------

    journal_write_data: Annotated[
        bool,
        "whether entries are in the journal before an add is answered; without (BP-46), a bookie that is killed has"
        " its ledgers in limbo until they are repaired from others",
    ] = _OF_STORAGE["journal_write_data"]
    journal_sync_data: Annotated[
        bool, "whether adds are answered only after a sync; without, the machine's loss of power loses entries"
    ] = _OF_STORAGE["journal_sync_data"]
    journal_max_group_wait_msec: Annotated[
        float,
        Meta(ge=0, le=1_000),
        "milliseconds that an add waits at the most for others, to be made durable with them",
    ] = msgspec.field(default=_OF_STORAGE["journal_max_group_wait_msec"], name="journalMaxGroupWaitMSec")
    journal_buffered_writes_threshold: Annotated[
        Count,
        "bytes of adds that wait for no others to be made durable; of those that have come, up to 8 MiB are made so"
        " together",
    ] = _OF_STORAGE["journal_buffered_writes_threshold"]
    journal_buffered_entries_threshold: Annotated[Count, "adds that are made durable together, at the most"] = (
        _OF_STORAGE["journal_buffered_entries_threshold"]
    )
    journal_max_size_mb: Annotated[Count, "MiB of a file of the journal, after which the next one is begun"] = (
        msgspec.field(default=_OF_STORAGE["journal_max_size_mb"], name="journalMaxSizeMB")
    )
    journal_pre_alloc_size_mb: Annotated[Number, "MiB of a file of the journal that are taken at once"] = msgspec.field(
        default=_OF_STORAGE["journal_pre_alloc_size_mb"], name="journalPreAllocSizeMB"
    )

    # -- entries ------------------------------------------------------------------------------------------------------

    flush_interval: Annotated[
        int, Meta(ge=10), "milliseconds between checkpoints, which write entries to entry logs and free the journal"
    ] = _OF_STORAGE["flush_interval"]
    write_cache_max_size_mb: Annotated[
        Count, "MiB of memory for entries that are in no entry log yet; with that many, connections are not read from"
    ] = msgspec.field(default=_OF_STORAGE["write_cache_max_size_mb"], name="dbStorage_writeCacheMaxSizeMb")
    read_ahead_cache_max_size_mb: Annotated[
        Number,
        "MiB of memory for entries that are read from disks ahead of those who read one after another; 0: none are",
    ] = msgspec.field(default=_OF_STORAGE["read_ahead_cache_max_size_mb"], name="dbStorage_readAheadCacheMaxSizeMb")
    log_size_limit: Annotated[int, Meta(ge=MIB), "bytes of an entry log, after which the next one is begun"] = (
        _OF_STORAGE["log_size_limit"]
    )

    # -- garbage and room ---------------------------------------------------------------------------------------------

    gc_wait_time: Annotated[
        int, Meta(ge=10), "milliseconds between two looks for ledgers that are deleted, whose entries are forgotten"
    ] = _OF_STORAGE["gc_wait_time"]
    minor_compaction_threshold: Annotated[
        float, Meta(ge=0, le=1), "the share of an entry log in use up to which minor compactions write it anew; 0: none"
    ] = _OF_STORAGE["minor_compaction_threshold"]
    minor_compaction_interval: Annotated[Count, "seconds between minor compactions"] = _OF_STORAGE[
        "minor_compaction_interval"
    ]
    major_compaction_threshold: Annotated[float, Meta(ge=0, le=1), "the same for major compactions"] = _OF_STORAGE[
        "major_compaction_threshold"
    ]
    major_compaction_interval: Annotated[Count, "seconds between major compactions"] = _OF_STORAGE[
        "major_compaction_interval"
    ]
    compaction_rate_by_bytes: Annotated[Count, "bytes a second that a compaction writes at the most"] = _OF_STORAGE[
        "compaction_rate_by_bytes"
    ]
    disk_usage_threshold: Annotated[Share, "the share of a disk in use from which on the bookie is read-only"] = (
        _OF_STORAGE["disk_usage_threshold"]
    )
    disk_usage_warn_threshold: Annotated[Share, "the share of a disk in use from which on a warning is logged"] = (
        _OF_STORAGE["disk_usage_warn_threshold"]
    )
    disk_usage_lwm_threshold: Annotated[
        Share, "the share of every disk in use below which a read-only bookie takes adds again"
    ] = _OF_STORAGE["disk_usage_lwm_threshold"]
    disk_check_interval: Annotated[int, Meta(ge=10), "milliseconds between two looks at the room on disks"] = (
        _OF_STORAGE["disk_check_interval"]
    )
    read_only_mode_enabled: Annotated[bool, "whether a bookie without room goes on as read-only; otherwise it ends"] = (
        True
    )
    force_read_only_bookie: Annotated[bool, "whether the bookie takes no adds but those of recoveries"] = False

    # -- repair -------------------------------------------------------------------------------------------------------

    data_integrity_stamp_missing_cookies: Annotated[
        bool,
        "whether a bookie that has lost a directory starts all the same, with its ledgers in limbo until they are"
        " repaired from others; otherwise it does not start",
    ] = False
    auto_recovery_daemon_enabled: Annotated[
        bool,
        "whether the bookie's process does auto-recovery too, for all bookies of the cluster; it can have a process"
        " of its own",
    ] = False

    # -- traces -------------------------------------------------------------------------------------------------------

    trace_directory: Annotated[str, "a folder that a trace of what the bookie does is written to; empty: none is"] = ""

    # -- metrics ------------------------------------------------------------------------------------------------------

    prometheus_stats_http_address: Annotated[str, "where metrics are served"] = "127.0.0.1"
    prometheus_stats_http_port: Annotated[Port, "the port of metrics; 0: none are served"] = 0

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
        """Whether nothing is served in the clear."""
        return self.tls_required or self.tls_client_authentication

    def tls(self) -> Tls | None:
        """The TLS of the port; None if there is none. Raises :class:`fencepost.OptionError` for files that cannot be
        used."""
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
        """The users; None if nobody need authenticate. Raises :class:`fencepost.OptionError` for a file that cannot be
        used."""
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
        """Raise if settings are at odds with each other."""
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
