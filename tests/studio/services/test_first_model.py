"""A studio starts with the best model that its devices can run, and a page opens with what evicts nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipelines.errors import ModelError
from pipelines.models.catalog import Catalog, Model, load_catalog
from studio.services import first_model
from studio.settings import Settings

V5E, V6E = {"kind": "TPU v5 lite"}, {"kind": "TPU v6 lite"}
PICTURES = {"sdxl-base", "flux2-klein-4b", "flux2-klein-9b", "flux2-dev"}
VIDEOS = {"wan2.1-1.3b", "wan2.1-i2v-14b"}


@pytest.fixture
def choose(settings: Settings) -> Callable[..., str]:
    def choose(device: dict[str, Any], chips: int, here: set[str], **fields: Any) -> str:
        return first_model.choose(
            replace(settings, **fields),
            load_catalog(),
            [device] * chips,
            chips=chips,
            has_weights=lambda model: model.is_demo or model.id in here,
        ).id

    return choose


@pytest.mark.parametrize(
    ("device", "chips", "here", "expected"),
    [
        (V5E, 1, PICTURES, "flux2-klein-4b"),  # the larger ones do not fit one chip
        (V5E, 4, PICTURES, "flux2-dev"),
        (V5E, 4, PICTURES - {"flux2-dev"}, "flux2-klein-9b"),
        (V6E, 8, {"sdxl-base"} | VIDEOS, "sdxl-base"),  # pictures come before videos
        (V6E, 8, VIDEOS, "wan2.1-1.3b"),  # not the one that needs a picture
        (V6E, 64, PICTURES, "flux2-dev"),  # no plan for so many: what fits eight chips fits here
        (V5E, 1, {"flux2-dev"}, "demo-flux2"),
        (V6E, 8, set(), "demo-flux2"),
        ({"kind": "cpu"}, 1, PICTURES, "demo-flux2"),
        ({"kind": "NVIDIA H100"}, 1, PICTURES, "demo-flux2"),
    ],
)
def test_a_tpu_starts_with_the_best_that_fits_and_is_here_and_others_with_a_demo(
    choose: Callable[..., str], device: dict[str, Any], chips: int, here: set[str], expected: str
) -> None:
    assert choose(device, chips, here) == expected


def test_the_operators_model_and_mesh_come_first(choose: Callable[..., str]) -> None:
    assert choose(V6E, 8, PICTURES, model="demo-wan") == "demo-wan"
    assert choose(V6E, 8, PICTURES, mesh="throughput") in PICTURES
    assert choose(V6E, 8, PICTURES, mesh="dp=8") == "demo-flux2"  # no plan says that anything fits then
    with pytest.raises(ModelError, match="no model 'nope'"):
        choose(V6E, 8, PICTURES, model="nope")


@pytest.mark.parametrize(
    ("operators", "resident", "expected"),
    [
        (None, "", "demo-flux2"),
        (None, "sdxl-base", "sdxl-base"),
        ("flux2-dev", "", "flux2-dev"),
        ("flux2-dev", "demo-wan", "flux2-dev"),
        ("flux2-dev", "sdxl-base", "flux2-dev"),
        ("demo-sdxl", "demo-flux2", "demo-sdxl"),
        ("demo-sdxl", "flux2-dev", "demo-sdxl"),
        (None, "gone-since", "demo-flux2"),
    ],
)
def test_a_page_opens_with_the_operators_model_or_the_one_in_memory(
    settings: Settings, catalog: Catalog, operators: str | None, resident: str, expected: str
) -> None:
    default: Model = catalog.get(operators) if operators else catalog.default
    chosen = replace(settings, model=operators)
    assert first_model.choose_opening(chosen, catalog, default, resident=resident) == expected


def test_nothing_is_opened_with_before_the_devices_are_known_but_what_is_in_memory(
    settings: Settings, catalog: Catalog
) -> None:
    assert first_model.choose_opening(settings, catalog, None, resident="") is None
    assert first_model.choose_opening(settings, catalog, None, resident="demo-wan") == "demo-wan"
