"""The definition of every metric: what is served, and what the page on metrics says.

Names are those of BookKeeper for bookies and auto-recovery, of ZooKeeper's Prometheus provider for the metadata
service, of Kafka's JMX exporter (``kafka.server:type=raft-metrics``) for its quorum, and of Prometheus's own clients
for the process. What none of them has begins with ``fencepost_``.
"""

from __future__ import annotations

from fencepost.monitoring.metrics import Metric

_SUCCESS = ("success",)

PROCESS = (
    Metric("fencepost_build_info", "gauge", "1", "the part and its version, as labels", ("part", "version")),
    Metric("fencepost_ready", "gauge", "0 or 1", "whether /ready answers 200"),
    Metric("process_cpu_seconds_total", "counter", "seconds", "CPU time of all threads"),
    Metric("process_resident_memory_bytes", "gauge", "bytes", "memory in RAM"),
    Metric("process_open_fds", "gauge", "files", "open files and connections"),
    Metric("process_max_fds", "gauge", "files", "the most open files and connections (ulimit -n)"),
    Metric("process_start_time_seconds", "gauge", "seconds", "when the process started, since 1970"),
)
"""Those of every part."""

AUTORECOVERY = (
    Metric("auditor_elected", "gauge", "0 or 1", "1 for the auditor, 0 for the others"),
    Metric("auditor_NUM_UNDER_REPLICATED_LEDGERS", "counter", "ledgers", "ledgers that this auditor has published"),
    Metric("auditor_NUM_BOOKIE_AUDITS_DELAYED", "counter", "bookies", "lost bookies that the auditor waited for"),
    Metric("auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED", "counter", "bookies",
           "lost bookies that came back before the auditor published their ledgers"),
    Metric("auditor_NUM_LEDGERS_CHECKED", "counter", "ledgers", "ledgers whose first and last entries were checked"),
    Metric("auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY", "gauge", "ledgers",
           "ledgers with entries in fewer racks, zones or regions than the minimum, at the auditor's last check"),
    Metric("auditor_PLACEMENT_POLICY_CHECK_TIME", "summary", "milliseconds",
           "the time of a check of the racks, zones and regions of all ledgers"),
    Metric("auditor_AUDIT_BOOKIES_TIME", "summary", "milliseconds",
           "how long searches of all metadata for lost bookies took", _SUCCESS),
    Metric("auditor_CHECK_ALL_LEDGERS_TIME", "summary", "milliseconds",
           "how long checks of all ledgers took", _SUCCESS),
    Metric("replication_worker_rereplicate", "summary", "milliseconds",
           "how long ledgers took; success: whether they then had all copies", _SUCCESS),
    Metric("replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", "counter", "fragments",
           "how often fragments of a ledger were moved to other bookies"),
    Metric("replication_worker_NUM_ENTRIES_WRITTEN", "counter", "entries", "entries copied"),
    Metric("replication_worker_NUM_BYTES_WRITTEN", "counter", "bytes", "bytes of entries copied"),
    Metric("replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER", "counter", "times",
           "how often a ledger could not be replicated"),
    Metric("replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION", "counter", "times",
           "how often that was because of an unreadable entry"),
    Metric("replication_worker_ledgers_locked", "gauge", "ledgers", "ledgers that this worker has locked now"),
)  # fmt: skip
"""Those of auto-recovery, in a process of its own or beside a bookie."""

BOOKIE = (
    Metric("bookie_SERVER_STATUS", "gauge", "status", "1 writable, 0 read-only, -1 not registered"),
    Metric("bookkeeper_server_requests_total", "counter", "answers", "answers by operation and success",
           ("operation", "success")),
    Metric("bookkeeper_server_ADD_ENTRY_REQUEST", "summary", "milliseconds", "how long adds took", _SUCCESS),
    Metric("bookkeeper_server_READ_ENTRY_REQUEST", "summary", "milliseconds", "how long reads took", _SUCCESS),
    Metric("bookkeeper_server_ADD_ENTRY_IN_PROGRESS", "gauge", "requests", "adds under way"),
    Metric("bookkeeper_server_READ_ENTRY_IN_PROGRESS", "gauge", "requests", "reads under way"),
    Metric("bookkeeper_server_in_flight_bytes", "gauge", "bytes",
           "bytes of adds that are not durable, and of incomplete messages: what maxBytesInFlight limits"),
    Metric("bookkeeper_server_connections", "gauge", "connections", "open connections: what maxConnections limits"),
    Metric("bookie_ledgers_count", "gauge", "ledgers", "ledgers that the bookie knows"),
    Metric("bookie_WRITE_BYTES", "counter", "bytes", "bytes of entries stored"),
    Metric("bookie_READ_BYTES", "counter", "bytes", "bytes of entries served"),
    Metric("bookie_journal_JOURNAL_SYNC", "summary", "milliseconds", "how long syncs of the journal took", _SUCCESS),
    Metric("bookie_flush", "summary", "milliseconds", "how long checkpoints took", _SUCCESS),
    Metric("bookie_repair_ledgers_in_limbo", "gauge", "ledgers", "ledgers in limbo"),
    Metric("bookie_repair_ledgers_left", "gauge", "ledgers", "ledgers still to check in this round of a repair"),
    Metric("bookie_repair_entries_copied", "counter", "entries", "entries copied since the bookie started"),
    Metric("bookie_repair_entries_lacking", "gauge", "entries",
           "entries that no other bookie had in the last round of a repair"),
    Metric("bookie_gc_DELETED_LEDGER_TOTAL", "counter", "ledgers", "deleted ledgers that the bookie has forgotten"),
    Metric("bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES", "counter", "bytes", "bytes that garbage collection freed"),
    Metric("bookie_gc_COMPACT_RUNTIME", "summary", "milliseconds", "how long garbage collections took", _SUCCESS),
    Metric("fencepost_bookie_disk_usage", "gauge", "share",
           "the share in use of the fullest disk, as of the last check: what diskUsageThreshold limits"),
)  # fmt: skip
"""Those of a bookie."""

METADATA = (
    Metric("fencepost_metadata_request_duration_seconds", "histogram", "seconds",
           "from the arrival of a request to its answer, by kind", ("kind",)),
    Metric("outstanding_requests", "gauge", "requests", "unanswered requests: what globalOutstandingLimit limits"),
    Metric("fencepost_metadata_outstanding_bytes", "gauge", "bytes",
           "bytes of unanswered requests: what largeRequestMaxBytes limits"),
    Metric("packets_received", "counter", "messages", "messages received from clients"),
    Metric("packets_sent", "counter", "messages", "messages sent to clients"),
    Metric("num_alive_connections", "gauge", "connections", "open connections of clients: what maxCnxns limits"),
    Metric("connection_rejected", "counter", "connections", "connections above maxCnxns or maxClientCnxns"),
    Metric("global_sessions", "gauge", "sessions", "open sessions, of clients of all members"),
    Metric("stale_sessions_expired", "counter", "sessions", "sessions that this member has expired as the leader"),
    Metric("znode_count", "gauge", "znodes", "znodes: what maxNodes limits"),
    Metric("ephemerals_count", "gauge", "znodes", "znodes that go with their session"),
    Metric("approximate_data_size", "gauge", "bytes", "bytes of paths and data of all znodes"),
    Metric("watch_count", "gauge", "watches", "watches of clients of this member: what maxWatches limits"),
    Metric("last_zxid", "gauge", "zxid", "the number of the last change that this member has applied"),
    Metric("uptime", "counter", "milliseconds", "how long the service has run"),
    Metric("fsynctime", "summary", "milliseconds", "how long writes and syncs of the log took", _SUCCESS),
    Metric("snapshottime", "summary", "milliseconds", "how long snapshots took to write", _SUCCESS),
    Metric("looking_count", "counter", "times", "how often this member has known no leader"),
)  # fmt: skip
"""Those of a metadata service."""

RAFT = "kafka_server_raft_metrics_"

QUORUM = (
    Metric(f"{RAFT}current_state", "gauge", "1",
           "the role, as a label: leader, candidate, prospective, voted, follower, unattached, resigned or observer",
           ("current_state",)),
    Metric(f"{RAFT}current_leader", "gauge", "id", "the id of the leader; -1: none is known"),
    Metric(f"{RAFT}current_epoch", "gauge", "epoch", "the epoch"),
    Metric(f"{RAFT}current_vote", "gauge", "id", "the id of the candidate that has this member's vote; -1: none"),
    Metric(f"{RAFT}log_end_offset", "gauge", "offset", "the end of the log"),
    Metric(f"{RAFT}log_end_epoch", "gauge", "epoch", "the epoch of the last entry of the log"),
    Metric(f"{RAFT}high_watermark", "gauge", "offset", "the offset up to which entries are committed"),
    Metric("kafka_controller_KafkaController_LastAppliedRecordOffset", "gauge", "offset",
           "the offset up to which this member has applied entries"),
    Metric(f"{RAFT}number_of_voters", "gauge", "members", "voters"),
    Metric(f"{RAFT}number_of_observers", "gauge", "members", "observers; only on the leader"),
    Metric("fencepost_quorum_follower_lag", "gauge", "entries",
           "how far the log of another member is behind; only on the leader", ("member",)),
    Metric("kafka_controller_KafkaController_NewActiveControllersCount", "counter", "times",
           "how often this member has seen a new leader"),
    Metric("fencepost_quorum_leader_silence_seconds", "gauge", "seconds",
           "since a leader answered this member; 0 on the leader"),
    Metric("kafka_server_SnapshotEmitter_LatestSnapshotGeneratedAgeMs", "gauge", "milliseconds",
           "since the last snapshot of this member, or since its start"),
    Metric("fencepost_quorum_log_bytes", "gauge", "bytes", "the size of the log's files"),
    Metric("fencepost_quorum_snapshot_bytes", "gauge", "bytes", "the size of all snapshots"),
)  # fmt: skip
"""Those of the quorum that a metadata service is a member of. A single service is a quorum of one."""

PARTS = {
    "bookie": (*PROCESS, *BOOKIE, *AUTORECOVERY),
    "metadata": (*PROCESS, *METADATA, *QUORUM),
    "autorecovery": (*PROCESS, *AUTORECOVERY),
}
"""The metrics of each part. A bookie has those of auto-recovery if that runs beside it."""
