"""The checksum of all that is on disk: CRC32C, as processors have it."""

from __future__ import annotations

import google_crc32c


def crc32c(data: bytes | memoryview, before: int = 0) -> int:
    """The CRC32C of data that follows data with the CRC32C ``before``."""
    if type(data) is memoryview:
        import numpy as np  # whoever has views has it already; a metadata service does without

        data = np.frombuffer(data, np.uint8)  # type: ignore[assignment]  # the library takes no views
    value: int = google_crc32c.extend(before, data) if before else google_crc32c.value(data)
    return value
