"""For all tests: timings on shared machines say nothing, so no property test has a deadline. What tests run is listed
in a place of their own: topologies that their user runs beside them are neither seen nor disturbed."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

from penstock.api.discovery import FOLDER_VARIABLE

pytest.register_assert_rewrite("running_topology_contract")
settings.register_profile("penstock", deadline=None, max_examples=50)
#: For `make test-live`, which has the time.
settings.register_profile("thorough", deadline=None, max_examples=300)
settings.load_profile("penstock")


def pytest_collection_finish() -> None:
    """What there is now, thousands of tests and their modules, stays until the end: the garbage collector need not look
    through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("running")))
        yield
