"""The serialised metadata of a ledger, as BookKeeper's ``LedgerMetadataSerDe`` reads and writes them.

The first line is ``BookieMetadataFormatVersion<tab>VERSION``. In version 3, a protobuf ``LedgerMetadataFormat`` after
its length follows; in version 2, the same as text; in version 1, plain lines. A ledger keeps the version it was created
with.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from fencepost.ledger.protobuf import message_classes
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import NOT_CLOSED, DigestType, LedgerMetadata, LedgerStatus
from fencepost.ledger.wire.varint import varint

_HEADER = b"BookieMetadataFormatVersion\t"

_FORMAT = message_classes(
    "metadata",
    {
        "LedgerMetadataFormat": {
            "quorumSize": (1, "required int32"),
            "ensembleSize": (2, "required int32"),
            "length": (3, "required int64"),
            "lastEntryId": (4, "optional int64"),
            "state": (5, "required State"),
            "segment": (6, "repeated Segment"),
            "digestType": (7, "optional DigestType"),
            "password": (8, "optional bytes"),
            "ackQuorumSize": (9, "optional int32"),
            "ctime": (10, "optional int64"),
            "customMetadata": (11, "repeated CustomMetadata"),
            "cToken": (12, "optional int64"),
        },
        "Segment": {"ensembleMember": (1, "repeated string"), "firstEntryId": (2, "required int64")},
        "CustomMetadata": {"key": (1, "optional string"), "value": (2, "optional bytes")},
    },
    {
        "State": {"OPEN": 1, "IN_RECOVERY": 2, "CLOSED": 3},
        "DigestType": {each.name: each.value for each in DigestType},
    },
)["LedgerMetadataFormat"]

_STATES = {LedgerStatus.OPEN: 1, LedgerStatus.IN_RECOVERY: 2, LedgerStatus.CLOSED: 3}
_STATUSES = {number: status for status, number in _STATES.items()}

_IN_RECOVERY = -102
"""The last entry with which version 1 marks a ledger in recovery."""


class MetadataFormatError(ValueError):
    """The bytes are not a ledger's metadata."""


def to_bytes(metadata: LedgerMetadata) -> bytes:
    """Encode metadata in their ``format_version``. Raises ``ValueError`` for an unknown version."""
    if metadata.format_version == 3:
        message = _message(metadata)
        message.cToken = metadata.creation_token
        data: bytes = message.SerializeToString()
        return _HEADER + b"3\n" + varint(len(data)) + data
    if metadata.format_version == 2:
        text: str = text_format.MessageToString(_message(metadata))
        return _HEADER + b"2\n" + text.encode()
    if metadata.format_version == 1:
        return _HEADER + b"1\n" + _lines(metadata).encode()
    raise ValueError(f"metadata of ledgers have no format version {metadata.format_version}, only 1, 2 and 3")


def from_bytes(data: bytes) -> LedgerMetadata:
    """Decode metadata. Raises :class:`MetadataFormatError` if the bytes are none."""
    line, newline, rest = data.partition(b"\n")
    if not line.startswith(_HEADER) or not newline:
        raise MetadataFormatError("they do not begin with a version")
    version = line.removeprefix(_HEADER)
    try:
        if version == b"3":
            message = _FORMAT()
            message.ParseFromString(_delimited(rest))
            return _metadata(message, 3)
        if version == b"2":
            return _metadata(text_format.Parse(rest, _FORMAT()), 2)
        if version == b"1":
            return _of_lines(rest.decode())
    except (DecodeError, text_format.ParseError, ValueError, IndexError) as error:
        raise MetadataFormatError(f"version {version.decode()} of them cannot be read: {error}") from error
    raise MetadataFormatError(
        f"they have the version {version.decode(errors='replace')}, and only 1, 2 and 3 can be read"
    )


# -- versions 2 and 3 -------------------------------------------------------------------------------------------------


def _message(metadata: LedgerMetadata) -> Any:
    message = _FORMAT(
        quorumSize=metadata.write_quorum,
        ackQuorumSize=metadata.ack_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry,
        state=_STATES[metadata.status],
        segment=[
            {"firstEntryId": fragment.first_entry_id, "ensembleMember": fragment.ensemble}
            for fragment in metadata.fragments
        ],
        customMetadata=[{"key": key, "value": value} for key, value in metadata.custom_metadata],
    )
    if metadata.password is not None:
        message.digestType, message.password = metadata.digest_type.value, metadata.password
    if metadata.creation_time is not None:
        message.ctime = metadata.creation_time
    return message


def _metadata(message: Any, version: int) -> LedgerMetadata:
    status = _STATUSES[message.state]
    is_closed = status is LedgerStatus.CLOSED
    if not message.segment:
        raise ValueError("there is no ensemble in them")
    return LedgerMetadata(
        message.ensembleSize,
        message.quorumSize,
        message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
        _fragments((each.firstEntryId, tuple(each.ensembleMember)) for each in message.segment),
        status,
        message.lastEntryId if is_closed else NOT_CLOSED,
        message.length if is_closed else 0,
        DigestType(message.digestType),
        message.password if message.HasField("password") else None,
        tuple(sorted((each.key, each.value) for each in message.customMetadata)),
        message.cToken,
        message.ctime if message.HasField("ctime") else None,
        version,
    )


def _fragments(segments: Any) -> tuple[Fragment, ...]:
    return tuple(Fragment(first, ensemble) for first, ensemble in sorted(segments))


def _delimited(data: bytes) -> bytes:
    """The bytes after a length. Any further bytes are ignored, as in Java."""
    size = shift = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            end = place + 1 + size
            if end > len(data):
                raise ValueError(f"{size} bytes should follow, but {len(data) - place - 1} do")
            return data[place + 1 : end]
    raise ValueError("there is no length")


# -- version 1 --------------------------------------------------------------------------------------------------------


def _lines(metadata: LedgerMetadata) -> str:
    lines = [str(metadata.write_quorum), str(metadata.ensemble_size), str(metadata.length)]
    lines += ["\t".join([str(each.first_entry_id), *each.ensemble]) for each in metadata.fragments]
    if metadata.status is LedgerStatus.IN_RECOVERY:
        lines.append(f"{_IN_RECOVERY}\tCLOSED")
    elif metadata.status is LedgerStatus.CLOSED:
        lines.append(f"{metadata.last_entry}\tCLOSED")
    else:
        lines.append("")
    return "\n".join(lines)


def _of_lines(text: str) -> LedgerMetadata:
    quorum, ensemble, length, *rest = text.splitlines()
    status, last_entry, segments = LedgerStatus.OPEN, NOT_CLOSED, []
    for line in rest:
        first, *members = line.split("\t")
        if members == ["CLOSED"]:
            in_recovery = int(first) == _IN_RECOVERY
            status = LedgerStatus.IN_RECOVERY if in_recovery else LedgerStatus.CLOSED
            last_entry = NOT_CLOSED if in_recovery else int(first)
            break
        segments.append((int(first), tuple(members)))
    if not segments:
        raise ValueError("there is no ensemble in them")
    return LedgerMetadata(
        int(ensemble),
        int(quorum),
        int(quorum),
        _fragments(segments),
        status,
        last_entry,
        int(length) if status is LedgerStatus.CLOSED else 0,
        password=None,
        format_version=1,
    )
