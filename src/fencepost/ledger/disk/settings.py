"""The settings of a storage. What stands in a file of settings is in :mod:`fencepost.ledger.bookie.settings`."""

from __future__ import annotations

import msgspec

MIB = 1 << 20


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a storage. Sizes are in the unit that the name says, of which there may be parts, otherwise in
    bytes; times in milliseconds unless said.
    """

    journal_directory: str
    ledger_directory: str
    """The directory of the entry logs. It may be the directory of the journal too."""
    journal_write_data: bool = True
    """Whether entries go to the journal. Fences, keys and limbo always do."""
    journal_sync_data: bool = True
    """Whether a group of records is answered only after a sync."""
    journal_max_group_wait_msec: float = 2
    """The longest that a record waits for others to share its group. It never waits while nothing else is under way."""
    journal_buffered_writes_threshold: int = 512 * 1024
    """The bytes at which a group waits for no other records. Of those that are there it takes up to 8 MiB."""
    journal_buffered_entries_threshold: int = 20_000
    """The records at which a group is closed."""
    journal_max_size_mb: float = 2048
    """The size at which a journal goes on in its next file. Every checkpoint begins a new one too."""
    journal_pre_alloc_size_mb: float = 16
    """Room that is taken at once for a journal file."""
    write_cache_max_size_mb: float = 64
    """Memory for entries that are not in an entry log yet. Half of it fills while the other half is flushed."""
    read_ahead_cache_max_size_mb: int = 16
    """Memory for entries that are read ahead of those who read a ledger from one entry to the next; 0: none are."""
    flush_interval: int = 10_000
    """The longest time between checkpoints, if something was added."""
    log_size_limit: int = 1024 * MIB
    """The size at which a new entry log is begun."""
    gc_wait_time: int = 900_000
    """The time between collections of garbage."""
    minor_compaction_threshold: float = 0.2
    """Entry logs of which at most this share is in use are compacted at every minor compaction; 0: none."""
    minor_compaction_interval: int = 3_600
    """Seconds between minor compactions."""
    major_compaction_threshold: float = 0.8
    """As the one above, for major compactions."""
    major_compaction_interval: int = 86_400
    """Seconds between major compactions."""
    compaction_rate_by_bytes: int = 32 * MIB
    """Bytes a second that compaction writes at most."""
    disk_usage_threshold: float = 0.95
    """The share of a disk in use from which on the storage says that it is full."""
    disk_usage_warn_threshold: float = 0.90
    """The share of a disk in use from which on a warning is logged."""
    disk_usage_lwm_threshold: float = 0.90
    """The share of every disk in use below which a full storage says that there is room again."""
    disk_check_interval: int = 10_000
    """The time between looks at the room on the disks."""
