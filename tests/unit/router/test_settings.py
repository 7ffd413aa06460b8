"""Bounds that promises are made of."""

import pytest
from kvarn_engine.process.settings import SettingsError, load_settings
from kvarn_router.settings import RouterSettings


def test_a_delete_that_nobody_told_is_seen_within_a_minute() -> None:
    assert load_settings(RouterSettings, [], {}).discovery.workers_relist_s <= 60
    with pytest.raises(SettingsError, match="workers_relist_s is 61"):
        load_settings(RouterSettings, ["--workers-relist-s", "61"], {})
