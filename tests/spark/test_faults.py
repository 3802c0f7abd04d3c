"""A short fault campaign: `make faults` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_campaign import Campaign, Scenario


@pytest.mark.live
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_whatever_is_killed(tmp_path: Path) -> None:
    kinds = ("executor killed", "master killed", "driver killed")
    campaign = Campaign(tmp_path, 3, 400, Scenario("counted", "sqlite", kinds), pauses=(0.5, 2))
    campaign.tell = print
    campaign.run()
    assert [fault.kind for fault in campaign.faults] == list(kinds)
    assert campaign.emitted["events"] > 0
    assert campaign.left == []
