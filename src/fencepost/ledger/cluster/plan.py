"""The plan of a cluster, stored in its directory: ports, and the processes that run or ran."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from fencepost.errors import OptionError, SystemFailure
from fencepost.files.storage import Storage, reason
from fencepost.ledger.cluster.identity import Identity
from fencepost.ledger.cluster.ports import HOST, Ports
from fencepost.text.numbers import plural

FILE = "cluster.json"
LOCK = "lock"
CONTROL = "control"
LOGS = "logs"
METADATA = "metadata"
SETTINGS = {METADATA: "metadata.toml", "bookie": "bookie.toml"}
"""Settings files for the metadata service and for all bookies. Users may create them before a cluster starts."""

METADATA_PORT = 2181
CONTROLLER_PORT = 9093
BOOKIE_PORT = 3181
BOOKIES = 3
MOST_BOOKIES = 100
MOST_MEMBERS = 7


class Plan(msgspec.Struct):
    """The ports of a cluster, which never change, and its processes by name: ``metadata``, or ``metadata-1`` and so on
    for the members of a quorum, and ``1``, ``2`` and so on for bookies.

    ``metadata_ports``: of the members of the metadata service, for clients; ``controller_ports``: for each other, none
    for a single member.
    """

    metadata_ports: list[int]
    bookie_ports: list[int]
    controller_ports: list[int] = []
    up: Identity | None = None
    """The process that runs the cluster, or ran it last."""
    processes: dict[str, Identity] = {}

    @property
    def uri(self) -> str:
        """The URI of the ledgers for clients."""
        return f"zk://{','.join(f'{HOST}:{port}' for port in self.metadata_ports)}/ledgers"

    @property
    def controllers(self) -> str:
        """The members of the quorum, by id and endpoint."""
        return ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(self.controller_ports, 1))

    def members(self) -> list[str]:
        """The members of the metadata service, in the order of their ids."""
        count = len(self.metadata_ports)
        return [METADATA] if count == 1 else [f"{METADATA}-{number}" for number in range(1, count + 1)]

    def names(self) -> list[str]:
        """The parts of the cluster, in the order in which they start."""
        return [*self.members(), *(str(number) for number in range(1, len(self.bookie_ports) + 1))]

    def port(self, name: str) -> int:
        """The port of a part."""
        if name.isdigit():
            return self.bookie_ports[int(name) - 1]
        return self.metadata_ports[self.members().index(name)]

    def all_ports(self) -> list[int]:
        """The ports of all parts."""
        return [*self.metadata_ports, *self.controller_ports, *self.bookie_ports]


def read(directory: Path) -> Plan | None:
    """The plan of the cluster in a directory; None if there is none. Raises SystemFailure if it is damaged."""
    content = Storage(str(directory)).load(FILE)
    if content is None:
        return None
    try:
        plan = msgspec.json.decode(content, type=Plan)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SystemFailure(f"{directory / FILE} is damaged ({error}): {_PUT_BACK}") from None
    members = len(plan.metadata_ports)
    if not members or len(plan.controller_ports) != (members if members > 1 else 0):
        raise SystemFailure(f"{directory / FILE} is damaged (each member of a quorum has two ports): {_PUT_BACK}")
    return plan


_PUT_BACK = (
    'write {"metadata_ports": [2181], "bookie_ports": [3181, 3182]} there, with any free port for the metadata service,'
    " and in the order of the bookies those that bookie-N/journal/current/VERSION names; for a quorum, a port for each"
    ' member, and as "controller_ports" those that logs/metadata-N.log names'
)


def write(directory: Path, plan: Plan) -> None:
    """Replace the plan in a directory atomically."""
    Storage(str(directory)).replace(FILE, msgspec.json.format(msgspec.json.encode(plan)) + b"\n")


def planned(
    directory: Path,
    bookies: int | None,
    metadata_port: int | None,
    bookie_port: int | None,
    taken: Ports,
    members: int | None = None,
) -> Plan:
    """The plan to run a cluster in a directory: the existing one, with more bookies if requested, or a new one. Its
    ports are ``taken``.

    Raises OptionError if the options contradict the existing cluster.
    """
    plan = read(directory)
    found = _parts_in(directory)
    if plan is None:
        if found:
            raise SystemFailure(f"{directory / FILE} is missing, and {found[0]} is there: {_PUT_BACK}")
        _refuse_strangers(directory)
        return _new(bookies or BOOKIES, metadata_port, bookie_port, taken, members or 1)
    there = len(plan.bookie_ports)
    if unknown := [name for name in found if name not in map(label, plan.names())]:
        raise SystemFailure(f"{directory / FILE} is an older copy, without {unknown[0]}: {_PUT_BACK}")
    if bookies is not None and bookies < there:
        raise OptionError(f"{directory} has {there} bookies, and ledgers on them: give --bookies {there} or more")
    if members not in (None, len(plan.metadata_ports)):
        raise OptionError(
            f"the metadata service in {directory} has {plural(len(plan.metadata_ports), 'member')}: leave --members out"
        )
    if metadata_port not in (None, plan.metadata_ports[0]):
        raise OptionError(
            f"the metadata service in {directory} has port {plan.metadata_ports[0]}: leave --metadata-port out"
        )
    if bookie_port not in (None, plan.bookie_ports[0]):
        raise OptionError(
            f"the bookies in {directory} have ports from {plan.bookie_ports[0]} on: leave --bookie-port out"
        )
    taken.keep(plan.all_ports())
    if bookies is not None and bookies > there:
        last = plan.bookie_ports[-1]
        wanted = list(range(last + 1, last + 1 + bookies - there))
        plan.bookie_ports += taken.take_free(wanted)
    return plan


def label(name: str) -> str:
    """The name of a part's directory and log."""
    return f"bookie-{name}" if name.isdigit() else name


def _parts_in(directory: Path) -> list[str]:
    """The existing directories of parts."""
    names = (each.name for each in directory.glob("*") if each.is_dir())
    return sorted(name for name in names if re.fullmatch(rf"{METADATA}(-\d+)?|bookie-\d+", name))


def _refuse_strangers(directory: Path) -> None:
    try:
        strangers = sorted(set(os.listdir(directory)) - {LOCK, LOGS, CONTROL, *SETTINGS.values()})
    except FileNotFoundError:
        return
    except OSError as error:
        raise SystemFailure(f"{directory} cannot be used: {reason(error)}") from None
    if strangers:
        raise OptionError(
            f"{directory} has {strangers[0]} in it, but no cluster ({FILE}): name a new or an empty directory"
        )


def _new(bookies: int, metadata_port: int | None, bookie_port: int | None, taken: Ports, members: int) -> Plan:
    metadata = _taken("--metadata-port", metadata_port, METADATA_PORT, members, "members", taken)
    controllers = _taken("", None, CONTROLLER_PORT, members, "members", taken) if members > 1 else []
    if bookie_port is not None and (both := {*metadata} & {*range(bookie_port, bookie_port + bookies)}):
        raise OptionError(
            f"--bookie-port {bookie_port}: the bookies have ports up to {bookie_port + bookies - 1}, and {min(both)} is"
            " the metadata service's"
        )
    return Plan(metadata, _taken("--bookie-port", bookie_port, BOOKIE_PORT, bookies, "bookies", taken), controllers)


def _taken(option: str, first: int | None, usual: int, count: int, what: str, taken: Ports) -> list[int]:
    """The ports from ``first`` on, or if that is None from the usual one on or any. Raises OptionError if those that
    an option wants cannot be had.
    """
    if first is None:
        return taken.take_free(list(range(usual, usual + count)))
    ports = list(range(first, first + count))
    if ports[-1] > 65_535:
        raise OptionError(f"{option} {first}: {count} {what} need ports up to {ports[-1]}, and there are 65535")
    if (port := taken.take(ports)) is not None:
        raise OptionError(f"{option} {first}: somebody has {HOST}:{port} already")
    return ports
