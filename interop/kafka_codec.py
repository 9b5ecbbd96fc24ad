"""Our codec of Kafka's protocol and Kafka's own (``interop/java/kafka``), held together: tables, bytes and values.

``python -m interop.kafka_codec FILE`` writes messages and the bytes that Kafka makes of them, for tests that have no
Java.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fencepost.quorum.kafka import messages
from fencepost.quorum.kafka.messages import APIS, Api
from fencepost.quorum.kafka.schema import Array, Field, KafkaDecoder, Kind, Struct, default
from interop import jars

REQUEST, RESPONSE = "Request", "Response"

TYPES = {
    Kind.BOOL: "bool",
    Kind.INT8: "int8",
    Kind.INT16: "int16",
    Kind.UINT16: "uint16",
    Kind.INT32: "int32",
    Kind.INT64: "int64",
    Kind.UUID: "uuid",
    Kind.STRING: "string",
}
"""Kafka's names of what a field holds."""
_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.UINT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_TEXT = "abz09-_.: äλ字\N{GRINNING FACE}"


# -- the tables --------------------------------------------------------------------------------------------------------


def check_tables() -> int:
    """Compare our tables with the schemas in Kafka's jar; the number of fields. Raises ``AssertionError`` with the
    first difference.
    """
    fields = 0
    (jar,) = jars.KAFKA.glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as files:
        for api in APIS.values():
            for of, ours in ((REQUEST, api.request), (RESPONSE, api.response)):
                text = files.read(f"common/message/{api.name}{of}.json").decode()
                schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                first, _, last = schema["validVersions"].partition("-")
                versions = (int(schema["apiKey"]), int(first), int(last or first), schema["flexibleVersions"])
                expected = (api.key, api.oldest, api.newest, f"{api.flexible_since}+")
                assert versions == expected, f"{api.name}{of}: Kafka has {versions}, and ours {expected}"
                common = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}
                fields += _check(f"{api.name}{of}", schema["fields"], ours, common)
    return fields


def _check(where: str, theirs: list[dict[str, Any]], ours: Struct, common: dict[str, Any]) -> int:
    names = [each["name"] for each in theirs], [field.name for field in ours]
    assert names[0] == names[1], f"{where}: Kafka has the fields {names[0]}, and ours are {names[1]}"
    count = len(ours)
    for each, field in zip(theirs, ours, strict=True):
        place = f"{where}.{field.name}"
        of, inner = each["type"], field.of
        if isinstance(inner, Array):
            assert of.startswith("[]"), f"{place} is a {of}"
            of, inner = of[2:], inner.of
        if isinstance(inner, Struct):
            count += _check(place, each.get("fields") or common[of], inner, common)
        else:
            assert of == TYPES[inner], f"{place} is a {of}, and ours a {TYPES[inner]}"
        found = each["versions"], each.get("tag"), each.get("nullableVersions"), each.get("taggedVersions")
        since = f"{field.since}+"
        expected = since, field.tag, since if field.nullable else None, None if field.tag is None else since
        assert found == expected, f"{place}: Kafka has {found}, and ours {expected}"
        assert _default(each, field) == default(field), (
            f"{place} is {_default(each, field)} by default, and ours {default(field)}"
        )
    return count


def _default(theirs: dict[str, Any], field: Field) -> Any:
    if "default" not in theirs:
        return default(field._replace(default=...))
    return json.loads(str(theirs["default"]))


# -- messages ----------------------------------------------------------------------------------------------------------


def _drawn(field: Field, draw: random.Random, version: int) -> Any:
    of = field.of
    if field.nullable and draw.random() < 0.3:
        return None
    if isinstance(of, Struct):
        return drawn(of, draw, version)
    if isinstance(of, Array):
        return [
            _drawn(Field(field.name, of.of), draw, version)
            for _ in range(draw.choice((0, 1, 2, 3, 130 if draw.random() < 0.1 else 1)))
        ]
    if of is Kind.BOOL:
        return draw.random() < 0.5
    if of is Kind.UUID:
        return KafkaDecoder(draw.randbytes(16)).struct(Struct(Field("Id", Kind.UUID)), 0, False)["Id"]
    if of is Kind.STRING:
        return "".join(draw.choice(_TEXT) for _ in range(draw.choice((0, 1, 5, 20, 40))))
    bits = _BITS[of]
    low, high = (0, (1 << bits) - 1) if of is Kind.UINT16 else (-1 << bits - 1, (1 << bits - 1) - 1)
    return draw.choice((low, high, max(low, -1), 0, 1, draw.randint(low, high)))


def drawn(fields: Struct, draw: random.Random, version: int) -> dict[str, Any]:
    """Some value of a structure: what the version does not have is at its default."""
    chosen = {}
    for field in fields:
        missing = version < field.since or (field.tag is not None and draw.random() < 0.4)
        chosen[field.name] = default(field) if missing else _drawn(field, draw, version)
    return chosen


def _as_json(fields: Struct, value: dict[str, Any], version: int) -> dict[str, Any]:
    """A value as Kafka's converters of JSON take it."""

    def one(of: Any, each: Any) -> Any:
        if isinstance(of, Struct):
            return _as_json(of, each, version)
        return [one(of.of, inner) for inner in each] if isinstance(of, Array) else each

    return {
        field.name[0].lower() + field.name[1:]: one(field.of, value[field.name])
        for field in fields
        if version >= field.since
    }


def _from_json(fields: Struct, value: dict[str, Any]) -> dict[str, Any]:
    def one(of: Any, each: Any) -> Any:
        if isinstance(of, Struct):
            return _from_json(of, each)
        return [one(of.of, inner) for inner in each] if isinstance(of, Array) else each

    found = {}
    for field in fields:
        name = field.name[0].lower() + field.name[1:]
        found[field.name] = one(field.of, value[name]) if name in value else default(field)
    return found


class Codec:
    """Kafka's codec, as a process."""

    def __init__(self) -> None:
        words = jars.java("-cp", jars.kafka_class_path(), "interop.Codec")
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, api: Api, of: str, version: int, **asked: Any) -> str:
        """Ask for the bytes of a header and a body, or for those of bytes. Raises ``AssertionError`` if it refuses."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"api": api.name, "of": of, "version": version, **asked}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        assert answer and not answer.startswith("refused"), (
            f"{api.name}{of} {version}: {answer or 'no answer'} to {asked}"
        )
        return answer

    def written(self, api: Api, of: str, version: int, body: dict[str, Any]) -> bytes:
        """The bytes that Kafka makes of a message, with the number 7 and the client "who"."""
        header: dict[str, Any] = {"correlationId": 7}
        if of == REQUEST:
            header |= {"requestApiKey": api.key, "requestApiVersion": version, "clientId": "who"}
        fields = api.request if of == REQUEST else api.response
        return bytes.fromhex(self.ask(api, of, version, header=header, body=_as_json(fields, body, version)))

    def read(self, api: Api, of: str, version: int, data: bytes) -> dict[str, Any]:
        """What Kafka reads in bytes."""
        found = json.loads(self.ask(api, of, version, bytes=data.hex()))
        assert found["header"]["correlationId"] == 7, found["header"]
        return _from_json(api.request if of == REQUEST else api.response, found["body"])

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)


def every_version() -> Iterator[tuple[Api, str, int]]:
    """Each message in each version."""
    for api in APIS.values():
        for version in range(api.oldest, api.newest + 1):
            yield api, REQUEST, version
            yield api, RESPONSE, version


def ours(api: Api, of: str, version: int, body: dict[str, Any]) -> bytes:
    """Our bytes of a message."""
    if of == REQUEST:
        return messages.encode_request(api, version, 7, "who", body)
    return messages.encode_response(api, version, 7, body)


def read_by_ours(api: Api, of: str, version: int, data: bytes) -> dict[str, Any]:
    """What ours reads in bytes."""
    if of == REQUEST:
        found = messages.decode_request(data)
        assert (found.api, found.version, found.correlation, found.client) == (api, version, 7, "who"), found
        return found.body
    correlation, body = messages.decode_response(api, version, data)
    assert correlation == 7
    return body


def check_bytes(count: int) -> int:
    """Compare ``count`` messages of each kind and version: bytes, and what either reads in them. The number of all."""
    draw = random.Random(20)
    codec = Codec()
    compared = 0
    try:
        for api, of, version in every_version():
            for _ in range(count):
                body = drawn(api.request if of == REQUEST else api.response, draw, version)
                theirs, mine = codec.written(api, of, version, body), ours(api, of, version, body)
                assert theirs == mine, f"{api.name}{of} {version} of {body}:\nKafka {theirs.hex()}\nours  {mine.hex()}"
                assert read_by_ours(api, of, version, theirs) == body
                assert codec.read(api, of, version, mine) == body
                compared += 1
    finally:
        codec.end()
    return compared


def main(file: Path) -> None:
    """Write some messages of each kind and version, with Kafka's bytes."""
    jars.fetch_kafka()
    draw = random.Random(21)
    codec = Codec()
    lines = []
    for api, of, version in every_version():
        for _ in range(3):
            body = drawn(api.request if of == REQUEST else api.response, draw, version)
            if len(str(body)) < 1_500:
                data = codec.written(api, of, version, body)
                lines.append(
                    json.dumps({"api": api.name, "of": of, "version": version, "bytes": data.hex(), "body": body})
                )
    codec.end()
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
