"""How many examples property tests have: as many as the profile says that the command line asks for."""

from __future__ import annotations

import pytest
from hypothesis import settings


@pytest.mark.hypothesis  # so that `make test-live` chooses it too, where another profile is asked for
def test_the_profile_of_the_command_line_wins_over_that_of_conftest(pytestconfig: pytest.Config) -> None:
    asked = pytestconfig.getoption("--hypothesis-profile") or "penstock"
    assert settings.default.max_examples == settings.get_profile(asked).max_examples
    assert settings.get_profile("thorough").max_examples == 6 * settings.get_profile("penstock").max_examples
