"""Fingerprints are a file format. Those of shipped protocols change only with what their states hold, not if modules
move.
"""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from operator import xor

import pytest

from fencepost.language.loading import shipped
from fencepost.language.values import ENCODED_AS, full_name, module_of
from fencepost.semantics import Stepper

NEAR = {
    ("bookkeeper-4.13", 4): (715, 0x970E09667FF6E23CA694BCBE76E4037A),
    ("kraft-kip-853-join", 3): (12, 0x53157AE22013AC66D687515AE982549A),
    ("store", 4): (139, 0x20359B192F865220F79E526F56629495),
    ("store-roles", 2): (3, 0xB4EE856273ADB1DE0CC7A14C4AE715F2),
    ("log", 3): (11, 0x131FBC85436936758F2D97ED913B40B1),
    ("log-leader", 2): (13, 0x64697E91B6DBEB3E3575664089DF5A96),
    ("quorum", 3): (31, 0x83C9AA29CDB5B9F0A60CCCDF29076170),
    ("quorum-replica", 2): (22, 0x72E9087B4B7E217EB5F61E118C1A576B),
}
"""By protocol, in its first configuration, and number of steps: the number of states within that many steps of an
initial one, and the XOR of their fingerprints.
"""


@pytest.mark.parametrize(("name", "steps"), NEAR, ids=lambda each: str(each))
def test_fingerprints_stay_what_they_are(name: str, steps: int) -> None:
    protocol = shipped(name)
    stepper = Stepper(protocol.configured(next(iter(protocol.configurations))))
    level = {state.ids for state in stepper.initial_states()}
    seen = set(level)
    for _ in range(steps):
        level = {
            stepper.apply(ids, outcome)
            for ids in level
            for root in stepper.of_kind("action")
            for outcome in stepper.outcomes(root, ids)
        } - seen
        seen |= level
    assert (len(seen), reduce(xor, map(stepper.store.fingerprint, seen))) == NEAR[name, steps]


NAMES = {
    "fencepost.language.linearizability:History": "fencepost.linearizability:History",
    "fencepost.language.network:Channel": "fencepost.spec.network:Channel",
    "fencepost.ledger.rules.metadata:LedgerStatus": "fencepost.store.rules.metadata:LedgerStatus",
    "fencepost.protocols.log.leader:LogLeader": "fencepost.log.checked.leading:LogLeader",
    "fencepost.protocols.log.log:Client": "fencepost.log.checked.log:Client",
    "fencepost.protocols.quorum.replica:Replicas": "fencepost.quorum.checked.replicas:Replicas",
    "fencepost.protocols.quorum.running:Log": "fencepost.quorum.checked.running:Log",
    "fencepost.protocols.store.store:Client": "fencepost.store.checked.store:Client",
    "fencepost.protocols.kraft.server:Server": "fencepost.protocols.kraft.server:Server",
}
"""The names under which classes are encoded."""


@pytest.mark.parametrize("name", NAMES)
def test_a_class_is_encoded_by_the_name_that_it_had_first_and_found_by_it(name: str) -> None:
    module, _, kind = name.partition(":")
    encoded = full_name(getattr(import_module(module), kind))
    assert encoded == NAMES[name]
    assert module_of(encoded.partition(":")[0]) == module


def test_every_module_that_moved_is_among_them() -> None:
    moved = {next(each for each in ENCODED_AS if name.startswith(each)) for name in NAMES if NAMES[name] != name}
    assert moved == {*ENCODED_AS}
