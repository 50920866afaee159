"""What learnt before is in the samples, too: of two experts the second's are made with both files."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines.files.metadata import read_recipe_of
from pipelines.models.catalog import load_catalog
from pipelines.stages import ignore_progress
from pipelines.training.results import samples
from pipelines.training.results.samples import Sampler


def test_samples_of_the_second_expert_are_made_with_the_first_ones_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encode_lora: Callable[..., bytes]
) -> None:
    model = load_catalog().get("wan2.2-a14b")
    drawn = SimpleNamespace(pixels=np.zeros((1, 5, 16, 16, 3), np.uint8), revision="")
    monkeypatch.setattr(samples, "load_beside", lambda *_given, **_options: None)
    monkeypatch.setattr(samples, "generate", lambda *_given, **_options: drawn)
    first, second = (tmp_path / f"corgi{ending}.safetensors" for ending in ("_high_noise", "-000100_low_noise"))
    for file in (first, second):
        file.write_bytes(encode_lora("wan"))
    options: Any = {"cache_dir": tmp_path, "seed": 0, "on_progress": ignore_progress}
    (made,) = Sampler(model, ["a corgi"], **options).make(second, tmp_path, beside=[first])
    recipe = read_recipe_of(made)
    assert recipe is not None
    assert [lora.ref for lora in recipe.loras] == ["corgi_high_noise", "corgi-000100_low_noise"]
