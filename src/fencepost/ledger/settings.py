"""Settings of a process of the store: one TOML file, with BookKeeper's names where BookKeeper has the setting."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from fencepost.errors import OptionError
from fencepost.files import regular


class Unit(str):
    """The unit of a number, in the annotation of its setting."""


class Reload(str):
    """What of a setting a running process notices, in its annotation. Without it: nothing, before a restart."""


Count = Annotated[int, Meta(ge=1)]
Number = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65_535), Unit("port")]
Share = Annotated[float, Meta(gt=0, le=1), Unit("share")]
LogFormat = Annotated[
    Literal["text", "json"],
    "text, or json: every line of the log is an object, the line that says that it serves among them",
]
HttpHost = Annotated[
    str, "the address on which health and metrics are served, to anybody who reaches it; 0.0.0.0: all of them"
]
HttpPort = Annotated[Port, "the port of /live, /ready and /metrics; 0: none"]


_MOST = 1 << 20
"""The most bytes of a file of settings."""


class FileOfSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Settings, one per field. Every field is ``Annotated``, with its description last."""

    command: ClassVar[str] = "fencepost"
    """The command whose help lists the settings."""

    @classmethod
    def read(cls, path: str | Path | None, over: Mapping[str, Any] | None = None) -> Self:
        """The settings of a TOML file, if there is one, overridden by those of ``over``.

        Raises :class:`fencepost.OptionError` for an unreadable file, an unknown name, or a value out of range.
        """
        if path is None:
            return cls.of(over or {})
        try:
            given = tomllib.loads(regular.at_most(path, _MOST).decode())
        except OSError as error:
            raise OptionError(f"settings {path} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise OptionError(f"settings {path} are no TOML: {error}") from error
        return cls.of({**cls.named(given), **(over or {})}, f"settings {path}")

    @classmethod
    def named(cls, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """The contents of a file, keyed by the names of settings."""
        return found

    @classmethod
    def of(cls, given: Mapping[str, Any], origin: str = "settings") -> Self:
        """The settings by name. ``origin`` begins the error message. Raises :class:`fencepost.OptionError`."""
        names = [field.encode_name for field in msgspec.structs.fields(cls)]
        for name in given:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else f"{cls.command} --help lists them"
                raise OptionError(f"{origin}: there is no setting {name}: {hint}")
        try:
            settings = msgspec.convert(dict(given), cls)
        except msgspec.ValidationError as error:
            problem, _, where = str(error).partition(" - at `$.")
            raise OptionError(f"{origin}: {where.rstrip('`')}: {problem[:1].lower()}{problem[1:]}") from error
        settings.check(origin)
        return settings

    def check(self, origin: str) -> None:
        """Raise :class:`fencepost.OptionError` if settings contradict each other."""


class Setting(NamedTuple):
    """The declaration of a setting. ``default``: as JSON. ``unit``: empty if it is no number. ``reload``: what a
    running process notices of a change; empty: nothing.
    """

    name: str
    default: str
    unit: str
    reload: str
    purpose: str


def described(kind: type[FileOfSettings]) -> list[Setting]:
    """Every setting, in order. Settings shared with other classes come last."""
    notes = {
        name: hint.__metadata__
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if get_origin(hint) is Annotated
    }
    found = [
        Setting(
            field.encode_name,
            msgspec.json.encode(field.default).decode(),
            "".join(each for each in notes[field.name] if isinstance(each, Unit)),
            "".join(each for each in notes[field.name] if isinstance(each, Reload)),
            notes[field.name][-1],
        )
        for field in msgspec.structs.fields(kind)
    ]
    shared = sum(
        len(base.__annotations__)
        for base in kind.__mro__[1:]
        if issubclass(base, FileOfSettings) and base is not FileOfSettings
    )
    return found[shared:] + found[:shared]


def one_setting(text: str) -> tuple[str, Any]:
    """Parse a setting as written in the file, ``NAME=VALUE``. Text may be unquoted. Raises
    :class:`fencepost.OptionError`.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"--set {text}: give a name and a value, as gcWaitTime=1000")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value
