"""The racks of bookies in the metadata, as Pulsar's tools write them and as ours do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.metadata import racks
from fencepost.ledger.rules.placement import Placement, Policy

BY_PULSAR = b"""{"group-1":{"bk1:3181":{"rack":"/east/r1","hostname":"bk1"},"bk2:3181":{"rack":"r2","hostname":null}},
    "group-2":{"bk3:3181":{"rack":"/","hostname":"bk3"},"bk4:3181":{"hostname":"bk4"}}}"""

BOOKIES = st.sampled_from(["bk1:3181", "bk2:3181", "bk3:3181", "b"])
PLACES = st.none() | st.sampled_from(["/r1", "/east/r2"])


def test_what_pulsar_writes_is_read() -> None:
    assert racks.racks_of(racks.from_bytes(BY_PULSAR)) == {"bk1:3181": "/east/r1", "bk2:3181": "/r2"}
    assert racks.racks_of(racks.from_bytes(b"")) == {}
    assert racks.groups_of(racks.from_bytes(BY_PULSAR)) == (
        ("bk1:3181", "group-1"), ("bk2:3181", "group-1"), ("bk3:3181", "group-2"), ("bk4:3181", "group-2")
    )  # fmt: skip


@pytest.mark.parametrize("data", [b"[]", b'{"default": 5}', b'{"default": {"b": "/r"}}', b"rack", b"\xff"])
def test_something_else_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^the racks of bookies cannot be read: [^\n]*$"):
        racks.from_bytes(data)


def test_what_else_is_there_is_preserved() -> None:
    changed = racks.with_rack(racks.from_bytes(BY_PULSAR), "bk2:3181", "/west/r2")
    assert json.loads(racks.to_bytes(changed)) == {
        "group-1": {
            "bk1:3181": {"rack": "/east/r1", "hostname": "bk1"},
            "bk2:3181": {"rack": "/west/r2", "hostname": None},
        },
        "group-2": {"bk3:3181": {"rack": "/", "hostname": "bk3"}, "bk4:3181": {"hostname": "bk4"}},
    }
    moved = racks.with_rack(changed, "bk2:3181", "/west/r2", "group-3")
    assert moved["group-3"] == {"bk2:3181": {"rack": "/west/r2", "hostname": None}}
    assert [*moved["group-1"]] == ["bk1:3181"]
    without = racks.with_rack(racks.with_rack(changed, "bk1:3181", None), "bk2:3181", None)
    assert [*without] == ["group-2"]
    assert racks.with_rack({}, "10.0.0.1:3181", "/r") == {
        "default": {"10.0.0.1:3181": {"hostname": "10.0.0.1", "rack": "/r"}}
    }


OF_NAMESPACE = {
    "policyClass": "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy",
    "properties": {"isolationBookieGroups": "red,green", "secondaryIsolationBookieGroups": "blue"},
}


def test_the_groups_of_a_namespace_are_those_of_its_ledgers() -> None:
    own = Placement(Policy(isolation_bookie_groups=("black",)), (("b", "/r"),), (("b", "red"),))

    def groups_in(config: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
        data = config if isinstance(config, bytes) else json.dumps(config).encode()
        found = racks.placement_of(own, (("component", b"managed-ledger"), (racks.OF_LEDGER, data)))
        assert (found.racks, found.groups) == (own.racks, own.groups)
        return found.policy.isolation_bookie_groups, found.policy.secondary_isolation_bookie_groups

    assert groups_in(OF_NAMESPACE) == (("red", "green"), ("blue",))
    assert groups_in({**OF_NAMESPACE, "properties": {}}) == ((), ())
    assert groups_in({**OF_NAMESPACE, "policyClass": "Other"}) == (("black",), ())
    assert groups_in(b"{") == groups_in([]) == groups_in({"properties": {}}) == (("black",), ())
    assert racks.placement_of(own, ()) == own


@given(st.lists(st.tuples(BOOKIES, PLACES)))
def test_changes_follow_a_dictionary(changes: list[tuple[str, str | None]]) -> None:
    mapping: racks.Mapping = {}
    expected: dict[str, str] = {}
    for bookie, place in changes:
        mapping = racks.from_bytes(racks.to_bytes(racks.with_rack(mapping, bookie, place)))
        if place is None:
            expected.pop(bookie, None)
        else:
            expected[bookie] = place
        assert racks.racks_of(mapping) == expected
        assert all(mapping.values())
