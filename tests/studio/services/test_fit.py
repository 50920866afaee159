"""Whether a model fits the worker's chips, by shipped plans."""

from dataclasses import replace

import pytest

from pipelines.models.catalog import Catalog
from studio.services.fit import describe_fit
from studio.settings import Settings

V5E = {"kind": "TPU v5 lite"}


@pytest.mark.parametrize(("model", "chips", "fits"), [("sdxl-base", 1, True), ("flux2-dev", 1, False)])
def test_a_shipped_plan_tells_whether_a_model_fits(
    settings: Settings, catalog: Catalog, model: str, chips: int, *, fits: bool
) -> None:
    told = describe_fit(settings, catalog.get(model), [V5E] * chips, chips=chips)
    assert told is not None
    assert (told["fits"], told["topology"]) == (fits, f"v5e-{chips}")
    assert told["needed_bytes"] > 1e9
    assert told["chip_bytes"] > 15e9
    assert told["note"].startswith("Fits v5e-1" if fits else "Does not fit v5e-1")


@pytest.mark.parametrize("kind", ["cpu", "NVIDIA H100"])
def test_nothing_is_told_of_devices_without_plans(settings: Settings, catalog: Catalog, kind: str) -> None:
    assert describe_fit(settings, catalog.get("sdxl-base"), [{"kind": kind}], chips=1) is None


def test_what_fits_in_full_is_said_to_fit_in_int8_and_nothing_of_what_does_not(
    settings: Settings, catalog: Catalog
) -> None:
    small, large = (replace(catalog.get(model), weights="int8") for model in ("sdxl-base", "flux2-dev"))
    told = describe_fit(settings, small, [V5E], chips=1)
    assert told is not None and told["fits"]
    assert told["weights"] == "full", "counted so, which the page says"
    assert describe_fit(settings, large, [V5E], chips=1) is None


def test_a_model_that_fits_in_int8_alone_is_told_by_its_own_plan(settings: Settings, catalog: Catalog) -> None:
    full = catalog.get("flux2-klein-9b")
    rounded = describe_fit(settings, replace(full, weights="int8"), [V5E], chips=1)
    in_full = describe_fit(settings, full, [V5E], chips=1)
    assert rounded is not None and in_full is not None
    assert (rounded["fits"], rounded["weights"], in_full["fits"], in_full["weights"]) == (True, "int8", False, "full")
    assert rounded["needed_bytes"] < rounded["chip_bytes"]
