"""A short fault campaign: `make faults` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_campaign import Campaign


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_whatever_is_killed(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, 3, rate=400, kinds=("executor", "master", "driver"), pauses=(0.5, 2))
    campaign.tell = print
    campaign.run()
    assert len(campaign.kills) == 3
    assert campaign.emitted > 0
