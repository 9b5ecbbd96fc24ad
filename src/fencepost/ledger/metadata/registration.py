"""The registration of a bookie: ``BookieServiceInfo``, with its services and their addresses."""

from __future__ import annotations

import msgspec

from fencepost.ledger.protobuf import message_classes

BOOKIE_RPC = "bookie-rpc"
"""The protocol of the endpoint for adds and reads."""

_CLASSES = message_classes(
    "registration",
    {
        "BookieServiceInfoFormat": {
            "endpoints": (6, "repeated Endpoint"),
            "properties": (7, "repeated Property"),
        },
        "Endpoint": {
            "id": (1, "required string"),
            "port": (2, "required int32"),
            "host": (3, "required string"),
            "protocol": (4, "required string"),
            "auth": (5, "repeated string"),
            "extensions": (6, "repeated string"),
        },
        "Property": {"key": (1, "optional string"), "value": (2, "optional string")},
    },
)


class Endpoint(msgspec.Struct, frozen=True):
    """An address where a bookie offers a service. ``extensions`` contains ``tls`` if it supports an upgrade to TLS."""

    id: str
    host: str
    port: int
    protocol: str = BOOKIE_RPC
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


class BookieServiceInfo(msgspec.Struct, frozen=True):
    """The endpoints and properties of a bookie."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    def rpc(self) -> Endpoint | None:
        """The endpoint for entries; None if the registration has none."""
        return next((endpoint for endpoint in self.endpoints if endpoint.protocol == BOOKIE_RPC), None)


def to_bytes(info: BookieServiceInfo) -> bytes:
    """Encode a registration."""
    message = _CLASSES["BookieServiceInfoFormat"](
        endpoints=[msgspec.structs.asdict(endpoint) for endpoint in info.endpoints],
        properties=[{"key": key, "value": value} for key, value in info.properties],
    )
    made: bytes = message.SerializeToString()
    return made


def from_bytes(data: bytes) -> BookieServiceInfo:
    """Decode a registration. Raises ``ValueError`` if the bytes are none."""
    message = _CLASSES["BookieServiceInfoFormat"]()
    try:
        message.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError is a direct subclass of Exception
        raise ValueError(f"the registration of a bookie cannot be read: {error}") from error
    endpoints = tuple(
        Endpoint(each.id, each.host, each.port, each.protocol, tuple(each.auth), tuple(each.extensions))
        for each in message.endpoints
    )
    return BookieServiceInfo(endpoints, tuple(sorted((each.key, each.value) for each in message.properties)))


def address_of(bookie: str, info: BookieServiceInfo | None) -> tuple[str, int]:
    """The host and port of a bookie, from its registration or else its id. Raises ``ValueError`` if neither has
    them.
    """
    endpoint = info.rpc() if info is not None else None
    if endpoint is not None:
        return endpoint.host, endpoint.port
    host, colon, port = bookie.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"the bookie {bookie} is not registered with an address, and its id is not host:port")
    return host, int(port)
