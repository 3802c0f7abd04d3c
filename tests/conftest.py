"""For all tests: timings on shared machines say nothing, so no property test has a deadline. What tests run is listed
in a place of their own: topologies that their user runs beside them are neither seen nor disturbed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from penstock.api.discovery import FOLDER_VARIABLE

pytest.register_assert_rewrite("running_topology_contract")
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")


@pytest.fixture(scope="session", autouse=True)
def own_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("running")))
        yield
