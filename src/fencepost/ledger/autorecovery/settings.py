"""The settings of auto-recovery, with BookKeeper's names."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from fencepost.ledger.settings import Count, FileOfSettings, HttpHost, HttpPort, LogFormat, Number, Reload, Unit

MIB = 1 << 20


class RecoverySettings(FileOfSettings, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The settings of auto-recovery, in its own process or in a bookie's process."""

    lost_bookie_recovery_delay: Annotated[
        Number,
        Unit("s"),
        Reload("in the metadata"),
        "seconds that a single lost bookie may take to come back before its ledgers are replicated; a value in the"
        " metadata takes precedence",
    ] = 0
    auditor_periodic_bookie_check_interval: Annotated[
        Number, Unit("s"), "seconds between searches of all metadata for lost bookies; 0: only one at the start"
    ] = 86_400
    auditor_periodic_check_interval: Annotated[
        Number,
        Unit("s"),
        "seconds between checks whether bookies have the first and the last of their entries; 0: none",
    ] = 604_800
    auditor_periodic_placement_policy_check_interval: Annotated[
        Number,
        Unit("s"),
        "seconds between searches of all metadata for entries in fewer racks, zones or regions than the minimum; 0:"
        " none",
    ] = 0
    repaired_placement_policy_not_adhering_bookie_enabled: Annotated[
        bool, "whether such entries are then moved to other bookies, as far as there are some in other racks"
    ] = False
    open_ledger_rereplication_grace_period: Annotated[
        Number,
        Unit("ms"),
        "milliseconds that a ledger's writer has to replace a lost bookie; then a recovery closes the ledger",
    ] = 30_000
    rereplication_entry_batch_size: Annotated[Count, Unit("entries"), "the number of entries copied at once"] = 100
    replication_rate_by_bytes: Annotated[
        Count, Unit("bytes/s"), "the most bytes of entries a second that a repair copies"
    ] = 64 * MIB
    rw_rereplicate_backoff_ms: Annotated[
        Count,
        Unit("ms"),
        "milliseconds to wait when there is no bookie to copy to, or the metadata service is unreachable",
    ] = 5_000
    lock_release_of_failed_ledger_grace_period: Annotated[
        Count,
        Unit("ms"),
        "the most milliseconds until a ledger that could not be replicated is retried; at first a thirty-second of it,"
        " doubled each time",
    ] = 300_000


class AutoRecoverySettings(RecoverySettings, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The settings of auto-recovery in a process of its own. The help of ``fencepost autorecovery`` lists the
    fields."""

    command: ClassVar[str] = "fencepost autorecovery"

    bookie_id: Annotated[
        str, "the name by which others know this process, in locks and in the election; by default that of the machine"
    ] = ""
    metadata_service_uri: Annotated[
        str, "the metadata service: zk://HOST:PORT[,HOST:PORT]/ledgers, or as BookKeeper writes it"
    ] = ""
    zk_timeout: Annotated[
        int,
        Unit("ms"),
        Meta(ge=100),
        "milliseconds after which the metadata service ends the session of a silent process, with its locks",
    ] = 10_000
    prometheus_stats_http_address: HttpHost = "127.0.0.1"
    prometheus_stats_http_port: HttpPort = 0
    log_format: LogFormat = "text"
