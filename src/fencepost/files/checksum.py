"""CRC32C, the checksum of all data on disk. Processors have instructions for it."""

from __future__ import annotations

import google_crc32c


def crc32c(data: bytes | memoryview, before: int = 0) -> int:
    """The CRC32C of data. ``before``: the CRC32C of the data before it."""
    if type(data) is memoryview:
        import numpy as np  # only bookies have views; a metadata service does not need NumPy

        data = np.frombuffer(data, np.uint8)  # type: ignore[assignment]  # the library takes no views
    value: int = google_crc32c.extend(before, data) if before else google_crc32c.value(data)
    return value
