"""The settings of a metadata service: one TOML file, with ZooKeeper's names where ZooKeeper has one.

Every limit says what happens when it is reached.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from fencepost.errors import OptionError

MIB = 1 << 20

_NAMES = {"jute_maxbuffer": "jute.maxbuffer", "words": "4lw.commands.whitelist",
"snap_retain_count": "autopurge.snapRetainCount",
    "container_check_interval": "znode.container.checkIntervalMs",
    "super_digest": "DigestAuthenticationProvider.superDigest"}  # fmt: skip


def _name(field: str) -> str:
    first, *others = field.split("_")
    return _NAMES.get(field, first + "".join(map(str.capitalize, others)))


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=_name, forbid_unknown_fields=True):
    """What can be set of a metadata service. The help of ``fencepost metadata`` lists the fields."""

    # -- where --------------------------------------------------------------------------------------------------------

    client_port: Annotated[int, Meta(ge=0, le=65_535, description="the port; 0: any free one")] = 2181
    client_port_address: Annotated[str, Meta(description="the address to listen on; 0.0.0.0: all of them")] = (
        "127.0.0.1"
    )

    # -- sessions -----------------------------------------------------------------------------------------------------

    tick_time: Annotated[
        int, Meta(ge=10, description="milliseconds between two looks at which sessions have expired")
    ] = 2_000
    min_session_timeout: Annotated[
        int, Meta(ge=-1, description="milliseconds; a session gets no shorter timeout; -1: two ticks")
    ] = -1
    max_session_timeout: Annotated[
        int, Meta(ge=-1, description="milliseconds; a session gets no longer timeout; -1: twenty ticks")
    ] = -1
    max_sessions: Annotated[
        int, Meta(ge=1, description="sessions at a time; a client that wants one more has its connection closed")
    ] = 100_000

    # -- connections and their limits ---------------------------------------------------------------------------------

    max_cnxns: Annotated[
        int, Meta(ge=0, description="connections at a time; one more is closed at once; 0: any number")
    ] = 10_000
    max_client_cnxns: Annotated[
        int, Meta(ge=0, description="connections of one address at a time; one more is closed at once; 0: any number")
    ] = 0
    sessionless_cnxn_timeout: Annotated[
        int, Meta(ge=1, description="milliseconds after which a connection that has opened no session is closed")
    ] = 10_000
    jute_maxbuffer: Annotated[
        int,
        Meta(
            ge=1_024,
            le=1 << 30,
            description="bytes of the largest message; a connection that announces a larger one is closed",
        ),
    ] = MIB - 1
    global_outstanding_limit: Annotated[
        int,
        Meta(ge=1, description="requests without an answer; with more, connections that have some are not read from"),
    ] = 1_000
    large_request_max_bytes: Annotated[
        int,
        Meta(
            ge=1_024,
            description="bytes of requests without an answer; with more, connections that have some are not read from",
        ),
    ] = 100 * MIB
    max_outgoing_bytes: Annotated[
        int,
        Meta(ge=1_024, description="bytes that wait for a client to read them; with more, its connection is closed"),
    ] = 64 * MIB
    words: Annotated[
        tuple[str, ...],
        Meta(description='the four-letter words that are answered, ["*"]: all; to others it is said that they are not'),
    ] = ("cons", "conf", "dump", "envi", "isro", "mntr", "ruok", "srvr", "stat", "wchs")

    # -- how much it holds --------------------------------------------------------------------------------------------

    max_nodes: Annotated[
        int,
        Meta(ge=8, description="znodes; a create of one more is refused with ZooKeeper's error -125, quota exceeded"),
    ] = 1_000_000
    max_data_bytes: Annotated[
        int, Meta(ge=1_024, description="bytes of all paths and data; what adds to more is refused with error -125")
    ] = 1_024 * MIB
    max_watches: Annotated[
        int, Meta(ge=1, description="watches of all clients; a request for one more is refused with error -125")
    ] = 1_000_000
    container_check_interval: Annotated[
        int,
        Meta(ge=1, description="milliseconds between two looks at which containers are empty again, and are deleted"),
    ] = 60_000
    super_digest: Annotated[
        str, Meta(description="user:hash, as a digest ACL has it, of the one who may do everything; empty: nobody")
    ] = ""

    # -- log and snapshots --------------------------------------------------------------------------------------------

    snap_count: Annotated[int, Meta(ge=2, description="entries of the log after which a snapshot is written")] = 100_000
    snap_retain_count: Annotated[
        int, Meta(ge=1, description="snapshots that are kept, each with the log since then; older ones are removed")
    ] = 3
    pre_alloc_size: Annotated[int, Meta(ge=4, description="KiB that a file of the log takes on the disk at once")] = (
        1_024
    )

    @property
    def timeouts(self) -> tuple[int, int]:
        """The shortest and the longest timeout of a session, in milliseconds."""
        least = 2 * self.tick_time if self.min_session_timeout < 0 else self.min_session_timeout
        most = 20 * self.tick_time if self.max_session_timeout < 0 else self.max_session_timeout
        return least, max(least, most)

    def value(self, name: str) -> object:
        """The value of a setting by its name in files of settings."""
        return next(getattr(self, field.name) for field in msgspec.structs.fields(self) if field.encode_name == name)

    @classmethod
    def read(cls, path: Path | None, over: Mapping[str, Any] | None = None) -> Self:
        """The settings of a TOML file, or the defaults, with those of ``over`` in place of them.

        Raises :class:`fencepost.OptionError` for a file that can not be read, a name that there is not, and a value out
        of range.
        """
        given: dict[str, Any] = {}
        origin = "settings" if path is None else f"settings {path}"
        if path is not None:
            try:
                with open(path, "rb") as file:
                    given = tomllib.load(file)
            except OSError as error:
                raise OptionError(f"{origin} can not be read: {error.strerror}") from error
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise OptionError(f"{origin} are no TOML: {error}") from error
        return cls.of({**_flat(given), **(over or {})}, origin)

    @classmethod
    def of(cls, given: Mapping[str, Any], origin: str = "settings") -> Self:
        """The settings by their names; ``origin`` begins the complaint about one that is wrong. Raises
        :class:`fencepost.OptionError`.
        """
        names = [field.encode_name for field in msgspec.structs.fields(cls)]
        for name in given:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else "fencepost metadata --help lists them"
                raise OptionError(f"{origin}: there is no setting {name}: {hint}")
        try:
            return msgspec.convert(dict(given), cls)
        except msgspec.ValidationError as error:
            problem, _, where = str(error).partition(" - at `$.")
            raise OptionError(f"{origin}: {where.rstrip('`')}: {problem[:1].lower()}{problem[1:]}") from error


def _flat(given: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """TOML reads a dot in a name as a table in a table: the names with their dots again."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[before + name] = value
    return found


def descriptions() -> list[tuple[str, str, str]]:
    """Name, default and description of every setting, in their order."""
    of_type = msgspec.inspect.type_info(Settings)
    assert isinstance(of_type, msgspec.inspect.StructType)
    found = []
    for field in of_type.fields:
        assert isinstance(field.type, msgspec.inspect.Metadata) and field.type.extra_json_schema is not None
        default = msgspec.json.encode(field.default).decode()
        found.append((field.encode_name, default, field.type.extra_json_schema["description"]))
    return found
