"""A burst, then one after each interval, each key by itself."""

import pytest

from studio.access import limits
from studio.access.limits import Limiter


def test_a_burst_passes_then_one_at_a_time() -> None:
    now = 100.0
    limiter = Limiter(count=3, period_s=30.0, read_clock=lambda: now)
    assert [limiter.take("ada") for _ in range(3)] == [0, 0, 0]
    assert limiter.take("ada") == pytest.approx(10)
    assert limiter.take("bob") == 0
    now += 10
    assert limiter.take("ada") == 0
    assert limiter.take("ada") == pytest.approx(10)
    limiter.forgive("ada")
    assert limiter.take("ada") == 0


def test_strangers_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(limits, "MAX_KEYS", 10)
    limiter = Limiter(count=2, period_s=10.0, read_clock=lambda: now)
    assert all(limiter.take(str(number)) == 0 for number in range(10))
    assert limiter.take("one more") > 0
    assert limiter.take("3") == 0, "who is known goes on"
    now = 60.0
    assert limiter.take("one more") == 0
