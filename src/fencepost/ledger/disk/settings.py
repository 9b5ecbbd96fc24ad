"""The settings of a storage. The settings file is in :mod:`fencepost.ledger.bookie.settings`."""

from __future__ import annotations

import msgspec

MIB = 1 << 20


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a storage. The unit of a size is in its name, and may be fractional; otherwise it is bytes. Times
    are in milliseconds unless stated.
    """

    journal_directory: str
    ledger_directory: str
    """The directory of the entry logs. It may also be that of the journal."""
    journal_write_data: bool = True
    """Whether entries go to the journal. Fences, keys and limbo always do."""
    journal_sync_data: bool = True
    """Whether records are acknowledged only after a sync."""
    journal_max_group_wait_msec: float = 2
    """The longest wait of a record for others to share its group. It never waits while the journal is idle."""
    journal_buffered_writes_threshold: int = 512 * 1024
    """A group of this many bytes does not wait for more records. It takes up to 8 MiB of those already queued."""
    journal_buffered_entries_threshold: int = 20_000
    """A group is closed at this many records."""
    journal_max_size_mb: float = 2048
    """The journal rolls to its next file at this size. Every checkpoint also begins a new file."""
    journal_pre_alloc_size_mb: float = 16
    """The space by which a journal file grows."""
    write_cache_max_size_mb: float = 64
    """Memory for entries that are not yet in an entry log. One half fills while the other is flushed."""
    read_ahead_cache_max_size_mb: int = 16
    """Memory for entries read ahead for sequential readers; 0 disables it."""
    flush_interval: int = 10_000
    """The longest time between checkpoints, if something was added."""
    log_size_limit: int = 1024 * MIB
    """A new entry log begins at this size."""
    gc_wait_time: int = 900_000
    """The time between garbage collections."""
    minor_compaction_threshold: float = 0.2
    """A minor compaction compacts entry logs whose live share is at most this; 0: none."""
    minor_compaction_interval: int = 3_600
    """Seconds between minor compactions."""
    major_compaction_threshold: float = 0.8
    """The same for major compactions."""
    major_compaction_interval: int = 86_400
    """Seconds between major compactions."""
    compaction_rate_by_bytes: int = 32 * MIB
    """The most bytes per second that compaction writes."""
    disk_usage_threshold: float = 0.95
    """The storage reports that it is full when this share of a disk is in use."""
    disk_usage_warn_threshold: float = 0.90
    """A warning is logged when this share of a disk is in use."""
    disk_usage_lwm_threshold: float = 0.90
    """A full storage reports space again when every disk's share in use is below this."""
    disk_check_interval: int = 10_000
    """The time between checks of free disk space."""
