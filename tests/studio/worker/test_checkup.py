"""A worker checks devices that nobody has checked, once, and a bad kernel is told until the first job."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.doctor import examination
from pipelines.runtime.kernels import switches
from pipelines.runtime.kernels.switches import Checked, Found
from studio.flags import read_settings
from studio.settings import Settings
from studio.worker import checkup
from studio.worker.checkup import check_up


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    switches.choose_by_hand(None)


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Counts examinations; each takes one check, in a process, whose kernel is wrong."""
    counted: list[Any] = []

    def examine(*args: Any, **options: Any) -> Any:
        counted.append(options)
        return own(*args, **options)

    own = functools.partial(examination.examine, only=["upsample"], pretends={"upsample": "wrong"})
    monkeypatch.setattr(checkup.examination, "examine", examine)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    return counted


def test_without_an_accelerator_nothing_is_checked_unless_asked(settings: Settings, examined: list[Any]) -> None:
    real = dataclasses.replace(settings, fake=False)
    told: list[str] = []
    for quiet in (settings, real, dataclasses.replace(real, doctor="off"), dataclasses.replace(settings, doctor="on")):
        assert check_up(quiet, told.append) is None
    assert not examined and not told


@pytest.mark.process
def test_what_is_bad_is_told_once_it_was_checked_and_at_every_later_start(
    settings: Settings, examined: list[Any]
) -> None:
    real = dataclasses.replace(settings, fake=False, doctor="on")
    told: list[str] = []
    card = check_up(real, told.append)
    assert card is not None and "XLA's repeats of rows and columns" in card.detail and "upsample" in card.detail
    assert any("checking upsample" in text for text in told)
    assert examined[0]["limits"].whole_s == 60
    assert check_up(real, told.append) == card
    assert check_up(dataclasses.replace(real, kernels="on"), told.append) is None, "chosen by hand"
    assert len(examined) == 1
    assert switches.decide(switches.find_file(real.cache_dir), kind="cpu") == (), "the choice by hand"
    switches.choose_by_hand(None)
    assert switches.decide(switches.find_file(real.cache_dir), kind="cpu") == ("upsample",)


def test_devices_that_passed_have_no_card() -> None:
    right = Checked(kind="", hardware="", versions={}, at=1.0, checks={"flash": Found(verdict="right")})
    assert checkup.describe(right) is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--kernels", "flush"], "no-NAME"), (["--doctor", "maybe"], "auto, on, off")],
)
def test_wrong_values_are_refused_at_the_start(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_settings(flags, {})
    assert message in capsys.readouterr().err


def test_the_worker_is_started_with_the_choice() -> None:
    settings = read_settings(["--kernels", "no-flash"], {"LUMESH_DOCTOR": "off"})
    again = read_settings(settings.worker_flags(), {})
    assert (again.kernels, again.doctor) == ("no-flash", "off")
