"""A Wan whose weights are NaN, or become too large by a LoRA, ends with a reason; so does none by its preview."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.finite import NotFiniteError
from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.sampling.preview import PreviewMap
from tests.pipelines.made_loras import draw_pairs, write_peft


def test_damaged_weights_are_told(
    load_wan: Callable[..., Any],
    borrow: Callable[[Any], Any],
    draw_wan: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The preview of such a model is still to be learnt, from values that no map fits."""
    family = borrow(load_wan("t2v"))
    weights = family.parts.weights["transformer"]
    monkeypatch.setitem(weights, "proj_out.weight", weights["proj_out.weight"] * np.nan)
    monkeypatch.setattr(family.parts.preview, "is_learnt", False)
    with pytest.raises(NotFiniteError, match="not finite.* the weights are damaged"):
        generate(family, draw_wan())


def test_a_lora_of_finite_but_too_large_values_is_told(
    load_wan: Callable[..., Any], borrow: Callable[[Any], Any], draw_wan: Callable[..., Recipe]
) -> None:
    family = borrow(load_wan("t2v"))
    pairs = {name: (up * 1e20, down * 1e15) for name, (up, down) in draw_pairs(family, "transformer").items()}
    write_peft(family.model.loras_dir / "overflows.safetensors", pairs)
    with pytest.raises(NotFiniteError, match=r"a LoRA is too strong: .* overflows \(1\)"):
        generate(family, draw_wan(loras=[{"ref": "overflows"}]))
    assert generate(family, draw_wan()).pixels.any(), "the weights are as they were"


def test_a_preview_that_cannot_be_learnt_ends_no_job(
    load_wan: Callable[..., Any],
    borrow: Callable[[Any], Any],
    draw_wan: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_arguments: Any) -> None:
        raise np.linalg.LinAlgError("SVD did not converge in Linear Least Squares")

    family = borrow(load_wan("t2v"))
    monkeypatch.setattr(PreviewMap, "learn", fail)
    monkeypatch.setattr(family.parts.preview, "is_learnt", False)
    assert generate(family, draw_wan()).pixels.any()
