"""Fixtures for tests of the store: a metadata service, and clusters in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ledger.processes import metadata_service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a metadata service, without a path."""
    with metadata_service(tmp_path_factory.mktemp("metadata")) as address:
        yield address


@pytest.fixture
def uri(service: str, request: pytest.FixtureRequest) -> str:
    """A separate cluster for each test, because ports are reused, and with them the ids of bookies."""
    return f"{service}/{request.node.name.translate(str.maketrans('[]/', '---'))}"
