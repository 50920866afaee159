"""How many steps are queued at a time, on a clock that only moves when somebody works or waits."""

from collections.abc import Callable

import pytest

from pipelines.runtime.sampling import chunks
from pipelines.runtime.sampling.chunks import run_chunks


class Device:
    """Does one chunk after the other, `step_s` a step; `idle_s` is how long it had nothing to do."""

    def __init__(self, step_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = self.free_s = self.idle_s = 0.0
        self.lengths: list[int] = []
        self._step_s = step_s
        monkeypatch.setattr(chunks.time, "perf_counter", lambda: self.now_s)

    def run(self, start: int, stop: int) -> "Chunk":
        self.idle_s += max(0.0, self.now_s - self.free_s)
        self.free_s = max(self.free_s, self.now_s) + self._step_s * (stop - start)
        self.lengths.append(stop - start)
        return Chunk(self, self.free_s)

    def spend(self, seconds: float) -> None:
        self.now_s += seconds


class Chunk:
    """An array that is ready at `ready_s`."""

    def __init__(self, device: Device, ready_s: float) -> None:
        self._device, self._ready_s = device, ready_s

    def block_until_ready(self) -> None:
        self._device.now_s = max(self._device.now_s, self._ready_s)


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Device]:
    def drive(*, step_s: float, done_s: float = 0.0, steps: int = 50, unit: int = 1) -> Device:
        device = Device(step_s, monkeypatch)
        ended: list[int] = []

        def note(done: int, _picture: object) -> None:
            ended.append(done)
            device.spend(done_s)

        run_chunks(device.run, steps=steps, max_chunk=8, unit=unit, on_done=note)
        assert ended[-1] == sum(device.lengths) == steps
        assert len(ended) == len(device.lengths)
        return device

    return drive


@pytest.mark.parametrize(("step_s", "length"), [(0.001, 8), (0.021, 4), (0.3, 1)])
def test_the_host_looks_ten_times_a_second_as_far_as_steps_allow(
    drive: Callable[..., Device], step_s: float, length: int
) -> None:
    device = drive(step_s=step_s)
    assert device.lengths[:2] == [1, 1]
    assert set(device.lengths[2:-1]) == {length}
    assert device.idle_s == 0


@pytest.mark.parametrize("done_s", [0.01, 0.05, 0.15])
def test_devices_hardly_wait_for_a_slow_host(drive: Callable[..., Device], done_s: float) -> None:
    device = drive(step_s=0.021, done_s=done_s)
    assert device.idle_s <= 2 * done_s, "until it is known how long the host takes"
    assert min(device.lengths[4:-1]) >= 4


def test_one_step_is_one_chunk(drive: Callable[..., Device]) -> None:
    assert drive(step_s=0.001, steps=1).lengths == [1]


@pytest.mark.parametrize("step_s", [0.001, 0.03, 0.3])
def test_steps_of_two_rows_are_not_parted(drive: Callable[..., Device], step_s: float) -> None:
    *whole, last = drive(step_s=step_s, steps=39, unit=2).lengths
    assert all(length % 2 == 0 for length in whole)
    assert last % 2 == 1
