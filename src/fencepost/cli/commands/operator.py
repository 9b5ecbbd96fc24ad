"""An operator's commands on bookies: ``fencepost bookie cookie``, ``recover``, ``decommission``, ``safe-to-stop``,
``rack`` and ``list``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from fencepost import errors
from fencepost.cli import output
from fencepost.connections.loop import loop_factory
from fencepost.errors import OptionError, SystemFailure
from fencepost.ledger.bookie import identity
from fencepost.ledger.bookie.directories import Directories
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.replication import Copied, Pace, replace
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.client_configuration import ClientConfiguration
from fencepost.ledger.errors import NoSuchLedgerError, StoreError
from fencepost.ledger.metadata import paths
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.racks import DEFAULT_GROUP
from fencepost.ledger.metadata.registration import address_of
from fencepost.ledger.metadata.stopping import stop_of
from fencepost.ledger.metadata.underreplication import UnderReplication
from fencepost.ledger.rules.cookies import Cookie
from fencepost.ledger.rules.placement import Placement, rack
from fencepost.ledger.rules.replication import misplaced

NOT_SAFE = 1
"""The exit code of ``safe-to-stop`` if ledgers need the bookie."""

SHOWN = 20
"""The most fragments at risk that are printed."""

COOKIE_VERBS = ("show", "validate", "fix", "delete")


def run(args: argparse.Namespace, settings: BookieSettings, verb: str, *about: str) -> int:
    """Run the command. Returns the exit code."""
    if verb == "cookie":
        verb, *rest = about
        if verb not in COOKIE_VERBS:
            raise OptionError(f"fencepost bookie cookie {verb}: there is {', '.join(COOKIE_VERBS)}")
        takes, verb = "bookie" if verb == "delete" else "directory", f"cookie {verb}"
    elif verb == "list":
        if about not in ((), ("under-replicated",), ("misplaced",)):
            raise OptionError(
                f"fencepost bookie list {' '.join(about)}: there is list, of all bookies, list under-replicated and"
                " list misplaced"
            )
        takes, verb, rest = "word", " ".join(("list", *about)), [*about] or [""]
    elif verb == "rack":
        takes, rest = "bookie, and perhaps one rack", [*about[:1], *about[2:]]
        args.rack = about[1] if len(about) > 1 else None
    else:
        takes, rest = "bookie", [*about]
    if len(rest) != 1:
        raise OptionError(f"fencepost bookie {verb} takes one {takes}")
    if not settings.metadata_service_uri:
        raise OptionError(
            f"bookie {verb} needs the metadata service: give --metadata zk://HOST:PORT/ledgers, or set"
            " FENCEPOST_METADATA or metadataServiceUri"
        )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_DOES[verb](args, settings, rest[0]))


async def _show_cookies(args: argparse.Namespace, settings: BookieSettings, directory: str, verb: str) -> int:
    async with await MetadataClient.connect(settings.metadata_service_uri) as client:
        found = await identity.look(client, Directories.of(directory, settings), settings)
    problem = found.problem()
    places = [*((each.path, each.cookie) for each in found.stamped), ("metadata", found.in_metadata)]
    if args.json:
        document = {
            "bookie": found.own.bookie_id,
            "cookies": {place: None if cookie is None else _fields(cookie) for place, cookie in places},
            "problem": problem or None,
            "can_be_fixed": bool(problem) and found.may_be_repaired,
        }
        output.say(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    elif verb == "show":
        for place, cookie in places:
            output.say(f"{place}: {_cookie_text(cookie)}")
    elif not problem:
        output.say(f"bookie {found.own.bookie_id} starts: its cookies agree")
    if problem and verb == "validate":
        output.complain(problem, None, False)
        return errors.SYSTEM_FAILED
    return errors.HOLDS


async def _fix_cookies(args: argparse.Namespace, settings: BookieSettings, directory: str) -> int:
    directories = Directories.of(directory, settings)
    async with await MetadataClient.connect(settings.metadata_service_uri) as client:
        found = await identity.look(client, directories, settings)
        if not found.problem():
            output.say(f"bookie {found.own.bookie_id} starts: its cookies agree, and there is nothing to fix")
            return errors.HOLDS
        if not found.may_be_repaired:
            raise SystemFailure(f"the cookies cannot be fixed: {found.problem()}")
        stake = await identity.stake_of(client, found.own.bookie_id)
        does = "would be" if args.dry_run else "are"
        output.say(
            f"{len(stake.open):,} ledgers that are not closed {does} fenced and in limbo: each is closed by a recovery"
            " when the bookie serves"
        )
        output.say(
            f"{len(stake.closed):,} closed ledgers {does} fenced; entries of both that are missing are copied from"
            " other bookies"
        )
        if not args.dry_run:
            await identity.fix(client, directories, settings)
            output.say(f"bookie {found.own.bookie_id} has its cookies again, and starts")
    return errors.HOLDS


async def _delete_cookie(args: argparse.Namespace, settings: BookieSettings, bookie_id: str) -> int:
    async with await MetadataClient.connect(settings.metadata_service_uri) as client:
        _, version = await client.read_cookie(bookie_id)
        stake = await identity.stake_of(client, bookie_id)
        has = (
            f"{len(stake.open) + len(stake.closed):,} ledgers have entries on bookie {bookie_id}, of which"
            f" {len(stake.open):,} are not closed"
        )
        if stake.is_registered:
            raise SystemFailure(f"bookie {bookie_id} is registered: stop it first")
        if args.dry_run:
            output.say(f"{has}: these copies would be lost")
        elif (stake.open or stake.closed) and not args.force:
            raise SystemFailure(
                f"{has}: copy them to others first (fencepost bookie recover {bookie_id}), or give --force to"
                " lose these copies"
            )
        else:
            await client.delete_cookie(bookie_id, version)
            output.say(f"bookie {bookie_id} is out of the cluster; {has}")
    return errors.HOLDS


def _fields(cookie: Cookie) -> dict[str, Any]:
    return {
        name: getattr(cookie, name)
        for name in ("bookie_id", "instance_id", "journal_directories", "ledger_directories", "token")
    }


def _cookie_text(cookie: Cookie | None) -> str:
    if cookie is None:
        return "no cookie"
    directories = ", ".join(dict.fromkeys((*cookie.journal_directories, *cookie.ledger_directories)))
    return (
        f"bookie {cookie.bookie_id} of the cluster {cookie.instance_id}, in {directories},"
        f" {cookie.token[:8] or 'without a token'}"
    )


async def _recover(args: argparse.Namespace, settings: BookieSettings, bookie_id: str) -> int:
    """Replace a lost bookie in every ledger that has entries on it. Returns 0 if no such ledger is left."""
    async with await LedgerClient.connect(settings.metadata_service_uri, ClientSettings.of_environment()) as store:
        stake = await identity.stake_of(store.metadata, bookie_id)
        ledgers = sorted((*stake.open, *stake.closed))
        has = (
            f"{len(ledgers):,} ledgers have entries on bookie {bookie_id}, of which {len(stake.open):,} are not closed"
        )
        if stake.is_registered:
            raise SystemFailure(
                f"bookie {bookie_id} is registered: stop it first, so that nothing is added to it meanwhile"
            )
        if args.dry_run:
            output.say(
                f"{has}: those are closed by a recovery if they still write to it, and all get another bookie in its"
                " place"
            )
            return errors.HOLDS
        output.say(has)
        copied, pace, failed, replaced = Copied(), Pace(settings.replication_rate_by_bytes), 0, 0
        for ledger in ledgers:
            try:
                replaced += await replace(store, ledger, bookie_id, pace, copied)
            except NoSuchLedgerError:
                continue
            except StoreError as error:
                failed += 1
                output.complain(f"ledger {ledger} still has entries on bookie {bookie_id}: {error}", None, False)
    output.say(
        f"{copied.entries:,} entries of {copied.bytes:,} bytes were copied, and {replaced:,} fragments have another"
        " bookie now"
    )
    return errors.SYSTEM_FAILED if failed else errors.HOLDS


async def _decommission(args: argparse.Namespace, settings: BookieSettings, bookie_id: str) -> int:
    """Copy a bookie's entries to others, and delete its cookie if that succeeds."""
    code = await _recover(args, settings, bookie_id)
    if code != errors.HOLDS or args.dry_run:
        return code
    return await _delete_cookie(args, settings, bookie_id)


async def _safe_to_stop(args: argparse.Namespace, settings: BookieSettings, bookie_id: str) -> int:
    """Print whether a bookie may stop, and the fragments that need it."""
    async with await MetadataClient.connect(settings.metadata_service_uri) as client:
        await client.instance_id()
        found = await stop_of(client, bookie_id, ClientConfiguration.of_environment().placement())
    if found is None:
        raise OptionError(f"there is no bookie {bookie_id}: fencepost bookie list prints their ids")
    if args.json:
        output.say(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        for each in found.at_risk[:SHOWN]:
            output.say(each.text())
        if len(found.at_risk) > SHOWN:
            output.say(f"and {len(found.at_risk) - SHOWN:,} more fragments (--json has all)")
        output.say(found.text())
    return errors.HOLDS if found.is_safe else NOT_SAFE


async def _rack(args: argparse.Namespace, settings: BookieSettings, bookie: str) -> int:
    """Print the rack of a bookie, after it was set or removed."""
    place = None if args.rack is None else rack(args.rack)
    if args.rack is not None and (args.remove or place is None or place.count("/") > 2):
        raise OptionError(
            f"fencepost bookie rack {bookie} {args.rack}: give one rack, /RACK, /ZONE/RACK or /REGION/RACK, or --remove"
        )
    if args.group is not None and (place is None or not args.group or set(args.group) & set(", ")):
        raise OptionError(
            f"--group {args.group}: give a rack too, and one name without commas and spaces: fencepost bookie rack"
            f" {bookie} /RACK --group NAME"
        )
    async with await MetadataClient.connect(settings.metadata_service_uri) as client:
        await client.instance_id()
        if place is not None or args.remove:
            await client.set_rack(bookie, place, args.group)
        found = (await client.racks_of_bookies()).get(bookie)
        registered = await client.bookies()
        cookies = await client.names_in(paths.COOKIES) or ()
    own = [f"group {group}" for each, group in registered.groups if each == bookie and group != DEFAULT_GROUP]
    output.say(", ".join([f"bookie {bookie} is in {found}" if found else f"bookie {bookie} has no rack", *own]))
    if bookie not in (*registered.writable, *registered.read_only, *cookies):
        output.complain(f"the cluster has no bookie {bookie} yet", None, False)
    return errors.HOLDS


async def _list_misplaced(args: argparse.Namespace, settings: BookieSettings, _: str) -> int:
    """Print the fragments with entries in fewer racks, zones or regions than the minimum."""
    policy = ClientConfiguration.of_environment().placement()
    fragments: list[dict[str, Any]] = []
    regions = ";".join(policy.repp_regions_to_write)
    async with await MetadataClient.connect(settings.metadata_service_uri) as client:
        placement = Placement(policy, tuple((await client.racks_of_bookies()).items()))
        async for ledger, metadata in client.all_metadata():
            for place, found in misplaced(metadata, placement):
                fragment = metadata.fragments[place]
                fragments.append(
                    {
                        "ledger": ledger,
                        "first_entry": fragment.first_entry_id,
                        "racks": found.racks,
                        "zones": found.zones,
                        "regions": found.regions,
                        "ensemble": fragment.ensemble,
                    }
                )
                if not args.json:
                    output.say(
                        f"ledger {ledger}, fragment from entry {fragment.first_entry_id}: racks {found.racks}, zones"
                        f" {found.zones}{regions and f', regions of an ack quorum {found.regions}'}, on"
                        f" {', '.join(fragment.ensemble)}"
                    )
    if args.json:
        output.say(msgspec.json.format(msgspec.json.encode(fragments), indent=2).decode())
    else:
        least = f"{policy.min_num_racks_per_write_quorum} racks"
        if policy.min_num_zones_per_write_quorum > 1:
            least += f" and {policy.min_num_zones_per_write_quorum} zones"
        if regions:
            least += f", or an ack quorum in fewer than {policy.repp_minimum_regions_for_durability} regions"
        output.say(f"fragments with entries in fewer than {least}: {len(fragments):,}")
    if not placement.racks:
        output.complain(
            "no bookie has a rack, so all count as in one: set them with fencepost bookie rack", None, False
        )
    return errors.HOLDS


async def _list_bookies(args: argparse.Namespace, settings: BookieSettings, _: str) -> int:
    """Print all bookies with their states, racks and addresses."""
    bookies: list[dict[str, Any]] = []
    async with await MetadataClient.connect(settings.metadata_service_uri) as client:
        registered = await client.bookies()
        racks, groups = dict(registered.racks), registered.groups
        known = {*registered.writable, *registered.read_only, *(await client.names_in(paths.COOKIES) or ())}
        for bookie in sorted(known):
            state = "down"
            if bookie in (*registered.writable, *registered.read_only):
                state = "writable" if bookie in registered.writable else "read-only"
            address = None
            if state != "down":
                with contextlib.suppress(ValueError):
                    address = "{}:{}".format(*address_of(bookie, await client.bookie_info(bookie)))
            bookies.append({"bookie": bookie, "state": state, "address": address, "rack": racks.get(bookie)})
            bookies[-1]["groups"] = [group for each, group in groups if each == bookie]
    if args.json:
        output.say(msgspec.json.format(msgspec.json.encode(bookies), indent=2).decode())
        return errors.HOLDS
    width, of_racks = (max((len(each[name] or "") for each in bookies), default=0) for name in ("bookie", "rack"))
    for each in bookies:
        at = each["address"] if each["address"] not in (None, each["bookie"]) else ""
        output.say(f"{each['bookie']:<{width}}  {each['state']:<9}  {each['rack'] or '':<{of_racks}}  {at}".rstrip())
    return errors.HOLDS


async def _list(args: argparse.Namespace, settings: BookieSettings, _: str) -> int:
    """Print the ledgers that auditors found under-replicated."""
    ledgers: list[dict[str, Any]] = []
    async with await MetadataClient.connect(settings.metadata_service_uri) as client:
        await client.instance_id()
        nodes = UnderReplication(client, "")
        async for each in nodes.all():
            since = None if each.since is None else each.since / 1000
            worker = await nodes.worker_of(each.ledger)
            ledgers.append({"ledger": each.ledger, "missing": each.missing, "since": since, "worker": worker})
            if not args.json:
                output.say(_under_replicated_text(ledgers[-1]))
    if args.json:
        output.say(msgspec.json.format(msgspec.json.encode(ledgers), indent=2).decode())
    else:
        output.say(f"under-replicated ledgers: {len(ledgers):,}")
    return errors.HOLDS


def _under_replicated_text(each: dict[str, Any]) -> str:
    since = ""
    if each["since"] is not None:
        since = f" since {datetime.datetime.fromtimestamp(each['since'], datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    worker = "" if each["worker"] is None else f", {each['worker']} copies it"
    return f"ledger {each['ledger']}: misses {', '.join(each['missing']) or 'entries'}{since}{worker}"


_DOES: dict[str, Callable[[argparse.Namespace, BookieSettings, str], Coroutine[Any, Any, int]]] = {
    "cookie show": partial(_show_cookies, verb="show"),
    "cookie validate": partial(_show_cookies, verb="validate"),
    "cookie fix": _fix_cookies,
    "cookie delete": _delete_cookie,
    "recover": _recover,
    "decommission": _decommission,
    "safe-to-stop": _safe_to_stop,
    "rack": _rack,
    "list": _list_bookies,
    "list misplaced": _list_misplaced,
    "list under-replicated": _list,
}
