"""The four-letter words: commands for operators, sent to the port without a session, and answered as in ZooKeeper."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from fencepost import version
from fencepost.ledger.settings import described
from fencepost.metadata.server import Connection, Latencies, Service
from fencepost.metadata.settings import SECRETS, MetadataSettings


def answers(service: Service) -> dict[bytes, Callable[[], str]]:
    """The function that answers each word."""
    return {word.encode(): partial(_answer, word, service) for word in _WORDS}


def _answer(word: str, service: Service) -> str:
    allowed = service.settings.words
    if word not in allowed and "*" not in allowed:
        return f"{word} is not executed because it is not in the whitelist.\n"
    return _WORDS[word](service)


def _srvr(service: Service) -> str:
    return f"Zookeeper version: {_version()}\n{_statistics(service)}"


def _stat(service: Service) -> str:
    clients = "".join(f" {_brief(each)})\n" for each in service.connections)
    return f"Zookeeper version: {_version()}\nClients:\n{clients}\n{_statistics(service)}"


def _cons(service: Service) -> str:
    return "".join(f" {_brief(each)}{_session(each)})\n" for each in service.connections) + "\n"


def _dump(service: Service) -> str:
    sessions: dict[int, list[int]] = {}
    for session, deadline in service.expiry.deadlines.items():
        sessions.setdefault(deadline, []).append(session)
    lines = ["SessionTracker dump:", f"Session Sets ({len(sessions)})/({len(service.expiry.deadlines)}):"]
    for deadline in sorted(sessions):
        lines.append(f"{len(sessions[deadline])} expire in {service.expiry.left(deadline, service.now())} ms:")
        lines += [f"\t{session:#x}" for session in sessions[deadline]]
    lines.append("ephemeral nodes dump:")
    lines.append(f"Sessions with Ephemerals ({len(service.tree.ephemerals)}):")
    for session, paths in service.tree.ephemerals.items():
        lines.append(f"{session:#x}:")
        lines += [f"\t{path}" for path in paths]
    lines.append("Connections dump:")
    lines += [f"ip: {each.address} sessionId: {each.session:#x}" for each in service.connections]
    return "\n".join(lines) + "\n"


def _dirs(service: Service) -> str:
    snapshots, log = service.disk_sizes()
    return _lines(": ", {"datadir_size": snapshots, "logdir_size": log})


def _crst(service: Service) -> str:
    for connection in service.connections:
        connection.received = connection.sent = 0
    return "Connection stats reset.\n"


def _srst(service: Service) -> str:
    service.received = service.sent = 0
    service.latencies = Latencies()
    return "Server stats reset.\n"


def _not_known(word: str, reason: str) -> Callable[[Service], str]:
    return lambda _: f"{word} is not known here: {reason}.\n"


def _envi(_: Service) -> str:
    variables = {
        "zookeeper.version": _version(),
        "host.name": platform.node(),
        "python.version": platform.python_version(),
        "python.executable": sys.executable,
        "os.name": platform.system(),
        "os.arch": platform.machine(),
        "os.version": platform.release(),
        "user.dir": os.getcwd(),
    }
    return "Environment:\n" + _lines("=", variables)


def _conf(service: Service) -> str:
    values = {
        each.name: service.settings.value(each.name) for each in described(MetadataSettings) if each.name not in SECRETS
    }
    least, most = service.settings.timeouts
    of_this = {
        "clientPort": service.address[1],
        "minSessionTimeout": least,
        "maxSessionTimeout": most,
        "controller": service.controller,
    }
    return _lines("=", {**values, **of_this})


def _mntr(service: Service) -> str:
    tree = service.tree
    return _lines(
        "\t",
        {
            "zk_version": _version(),
            "zk_server_state": service.mode,
            "zk_avg_latency": f"{service.latencies.mean:.4f}",
            "zk_min_latency": service.latencies.least,
            "zk_max_latency": service.latencies.most,
            "zk_num_alive_connections": len(service.connections),
            "zk_packets_received": service.received,
            "zk_packets_sent": service.sent,
            "zk_outstanding_requests": service.outstanding,
            "zk_uptime": service.now() - service.started,
            "zk_znode_count": len(tree.nodes),
            "zk_watch_count": len(service.watches),
            "zk_ephemerals_count": sum(map(len, tree.ephemerals.values())),
            "zk_approximate_data_size": tree.size,
            "zk_global_sessions": len(tree.sessions),
            "zk_last_zxid": f"{tree.zxid:#x}",
            "zk_open_file_descriptor_count": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else -1,
        },
    )


def _wchs(service: Service) -> str:
    return "".join(
        f"{len(table.by_watcher)} connections watching {len(table.by_path)} paths\nTotal watches:{table.count}\n"
        for table in service.watches.tables
    )


def _wchp(service: Service) -> str:
    paths = (item for table in service.watches.tables for item in table.by_path.items())
    return _indented((path, [f"{watcher.session:#x}" for watcher in watchers]) for path, watchers in paths)


def _wchc(service: Service) -> str:
    watchers = (item for table in service.watches.tables for item in table.by_watcher.items())
    return _indented((f"{watcher.session:#x}", paths) for watcher, paths in watchers)


def _indented(groups: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Each group as a line, with its members on indented lines below."""
    return "".join(f"{name}\n" + "".join(f"\t{each}\n" for each in members) for name, members in groups) + "\n"


def _statistics(service: Service) -> str:
    return _lines(
        ": ",
        {
            "Latency min/avg/max": f"{service.latencies.least}/{service.latencies.mean:.4f}/{service.latencies.most}",
            "Received": service.received,
            "Sent": service.sent,
            "Connections": len(service.connections),
            "Outstanding": service.outstanding,
            "Zxid": f"{service.tree.zxid:#x}",
            "Mode": service.mode,
            "Node count": len(service.tree.nodes),
        },
    )


def _brief(connection: Connection) -> str:
    return f"/{connection.address}[1](queued={connection.waiting},recved={connection.received},sent={connection.sent}"


def _session(connection: Connection) -> str:
    if not connection.session:
        return ""
    return (
        f",sid={connection.session:#x},est={connection.since},to={connection.timeout},lzxid={connection.last_zxid:#x}"
    )


def _lines(between: str, values: Mapping[str, object]) -> str:
    return "".join(f"{name}{between}{value}\n" for name, value in values.items())


def _version() -> str:
    """The version of ZooKeeper whose protocol is spoken, and when this package was installed. Clients parse it."""
    installed = time.gmtime(os.path.getmtime(version.__file__))
    return f"3.9.3-fencepost-{version.VERSION}, built on {time.strftime('%Y-%m-%d %H:%M UTC', installed)}"


_WORDS: dict[str, Callable[[Service], str]] = {
    "ruok": lambda _: "imok",
    "isro": lambda _: "rw",
    "srvr": _srvr,
    "stat": _stat,
    "cons": _cons,
    "dump": _dump,
    "envi": _envi,
    "conf": _conf,
    "mntr": _mntr,
    "wchs": _wchs,
    "wchp": _wchp,
    "wchc": _wchc,
    "dirs": _dirs,
    "crst": _crst,
    "srst": _srst,
    "hash": _not_known("hash", "no digests of states are kept"),
    "gtmk": _not_known("gtmk", "there are no trace masks"),
    "stmk": _not_known("stmk", "there are no trace masks"),
    "lead": _not_known("lead", "srvr says whether this member leads, and fencepost quorum status who does"),
}
