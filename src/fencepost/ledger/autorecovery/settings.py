"""The settings of auto-recovery, with BookKeeper's names."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from fencepost.ledger.settings import Count, FileOfSettings, Number, Port

MIB = 1 << 20


class RecoverySettings(FileOfSettings, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The settings of auto-recovery wherever it runs: in a process of its own, or in a bookie's."""

    lost_bookie_recovery_delay: Annotated[
        Number,
        "seconds that a single bookie that is lost may take to come back before its ledgers are replicated; what is"
        " set in the metadata comes before it",
    ] = 0
    auditor_periodic_bookie_check_interval: Annotated[
        Number, "seconds between two looks through all metadata for bookies that are lost; 0: only one at the start"
    ] = 86_400
    auditor_periodic_check_interval: Annotated[
        Number,
        "seconds between two looks at whether bookies have the first and the last entry of what should be on them; 0:"
        " none",
    ] = 604_800
    open_ledger_rereplication_grace_period: Annotated[
        Number,
        "milliseconds that the writer of a ledger has to replace a bookie that is lost; then the ledger is closed by"
        " a recovery",
    ] = 30_000
    rereplication_entry_batch_size: Annotated[Count, "entries that are copied at once"] = 100
    replication_rate_by_bytes: Annotated[Count, "bytes a second of entries that a repair copies at the most"] = 64 * MIB
    rw_rereplicate_backoff_ms: Annotated[
        Count,
        "milliseconds until more is replicated when there is no bookie to copy to, or the metadata service is away",
    ] = 5_000
    lock_release_of_failed_ledger_grace_period: Annotated[
        Count,
        "milliseconds until a ledger is tried again that could not be replicated, at the most; at first a"
        " thirty-second of it, and twice as long each time",
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
        int, Meta(ge=100), "milliseconds after which the metadata service gives a silent process up, with its locks"
    ] = 10_000
    prometheus_stats_http_address: Annotated[str, "where metrics are served"] = "127.0.0.1"
    prometheus_stats_http_port: Annotated[Port, "the port of metrics; 0: none are served"] = 0
