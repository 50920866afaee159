"""A worker is silent for as long as its listener heard nothing, whatever the clocks on the wall say."""

import pytest

from studio.worker.silence import LONGEST_GAP_S, Silence

POLL_S = 0.1


def listen(silence: Silence, beats: list[float | None], *, from_s: float = 1000.0) -> list[float]:
    return [silence.listen(beat, from_s + number * POLL_S) for number, beat in enumerate(beats)]


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, 86400.0])
def test_a_clock_that_is_set_neither_silences_a_worker_nor_hides_that_one_hangs(jump_s: float) -> None:
    healthy = [5000.0 + number for number in range(20)]
    jumped = [beat + jump_s for beat in healthy]
    silence = Silence()
    assert max(listen(silence, healthy + jumped)) == 0
    hanging = listen(silence, [jumped[-1]] * 700, from_s=1004.0)
    assert hanging == sorted(hanging)
    assert hanging[-1] == pytest.approx(70, rel=0.01)


def test_an_unreadable_heartbeat_is_no_sign_of_life() -> None:
    silence = Silence()
    assert listen(silence, [1.0, None, None])[-1] == pytest.approx(2 * POLL_S)
    assert silence.listen(1.0, 1000.3) == pytest.approx(3 * POLL_S), "the old one, read again, is no sign of life"
    assert silence.listen(2.0, 1000.4) == 0


def test_a_listener_that_was_stopped_itself_has_not_listened() -> None:
    silence = Silence()
    silence.listen(1.0, 10.0)
    assert silence.listen(1.0, 10.0 + 75) == LONGEST_GAP_S
