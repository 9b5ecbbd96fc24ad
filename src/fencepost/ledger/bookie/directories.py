"""The directories of a bookie, its address, and whether its cookies let it start."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import NamedTuple

from fencepost.errors import OptionError, SystemFailure
from fencepost.files.folders import OsFiles
from fencepost.ledger.bookie import cookies
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.disk.journal_files import journals_in
from fencepost.ledger.disk.settings import StorageSettings
from fencepost.ledger.rules.boot import Run
from fencepost.ledger.rules.cookies import Cookie, Stamped


class Directories(NamedTuple):
    """The directories of a bookie, as its cookie names them."""

    journal: str
    ledgers: str

    @classmethod
    def of(cls, directory: str, settings: BookieSettings) -> Directories:
        """The configured directories, or by default two inside the bookie's own."""
        own = Path(directory).absolute()
        journal = Path(*settings.journal_directories) if settings.journal_directories else own / "journal"
        ledgers = Path(*settings.ledger_directories) if settings.ledger_directories else own / "ledgers"
        found = cls(str(journal.absolute()), str(ledgers.absolute()))
        if not cookies.is_kept(found.cookie("", "", "")):
            raise OptionError(
                f"a bookie's directories cannot be {found.journal!a} and {found.ledgers!a}: cookies have names"
                " in UTF-8, and no commas or tabs"
            )
        return found

    def stamped(self) -> list[Stamped]:
        """The directories with their cookies."""
        return [cookies.read(directory) for directory in dict.fromkeys(self)]

    @property
    def may_lack(self) -> bool:
        """Whether a repair has begun and not ended, so entries may be missing. Any of its marks is enough."""
        return cookies.may_lack(self.ledgers) or any(each.is_under_repair for each in self.stamped())

    @property
    def last_run(self) -> Run | None:
        """How the bookie runs or ran; None if that is unknown."""
        return cookies.run_of(self.ledgers, self._last_journal)

    def record_run(self, run: Run, may_lack: bool = False) -> None:
        """Record how the bookie runs, or that it has shut down cleanly, and whether entries may be missing. Raises
        :class:`SystemFailure`.
        """
        cookies.record_run(self.ledgers, run, self._last_journal, may_lack)

    @property
    def _last_journal(self) -> int:
        """The number of the last journal file; 0 if there is none."""
        current = Path(self.journal, cookies.CURRENT)
        return max(journals_in(OsFiles(str(current), create=False)), default=0) if current.is_dir() else 0

    def of_storage(self, settings: BookieSettings) -> StorageSettings:
        """The settings of the storage in these directories."""
        return settings.of_storage(str(Path(self.journal, cookies.CURRENT)), str(Path(self.ledgers, cookies.CURRENT)))

    def cookie(self, bookie_id: str, instance_id: str, token: str) -> Cookie:
        """The cookie that should be in these directories."""
        return Cookie(
            bookie_id=bookie_id,
            journal_directories=(self.journal,),
            ledger_directories=(self.ledgers,),
            instance_id=instance_id,
            token=token,
        )


def bind(settings: BookieSettings, stamped: list[Stamped]) -> socket.socket:
    """A socket bound to the bookie's address. It does not accept connections yet.

    Port 0 means the port in the cookies of an earlier start, if there are any. Raises :class:`fencepost.OptionError`
    for an unknown interface, and :class:`SystemFailure` for a port in use.
    """
    host, port = _address_of(settings.listening_interface), settings.bookie_port
    if not port and not settings.bookie_id:
        port = next((_port(each.cookie.bookie_id) for each in stamped if each.cookie is not None), 0)
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise SystemFailure(
            f"the bookie cannot listen on {host}:{port}: {error.strerror}; give another port or interface"
        ) from error
    return bound


def advertised(settings: BookieSettings, bound: socket.socket) -> tuple[str, int]:
    """The host and the port that clients are given. Raises :class:`fencepost.OptionError` if clients could not use
    them.
    """
    host, port = bound.getsockname()[:2]
    if settings.advertised_address:
        host = settings.advertised_address
    elif ipaddress.ip_address(host).is_unspecified:
        raise OptionError("with all interfaces to listen on, clients must be told an address: set advertisedAddress")
    if not settings.allow_loopback and is_loopback(host):
        raise OptionError(
            f"{host} is a loopback address, and allowLoopback is false: set listeningInterface or advertisedAddress"
        )
    return host, port


def _port(bookie_id: str) -> int:
    port = bookie_id.rpartition(":")[2]
    return int(port) if port.isdecimal() else 0


def is_loopback(host: str) -> bool:
    """Whether a host, by name or address, can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_SIOCGIFADDR = 0x8915


def _address_of(interface: str) -> str:
    """The address of a network interface, or the given address itself."""
    try:
        return str(ipaddress.ip_address(interface))
    except ValueError:
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            request = struct.pack("256s", interface.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError as error:
            raise OptionError(
                f"listeningInterface {interface} is neither an address nor an interface with one"
            ) from error
