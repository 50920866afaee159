"""What a model's programs are made of, and that it is noticed when that changes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.catalog import Model, load_catalog
from pipelines.errors import ModelError
from pipelines.sources import CONFIGS_DIR, find_configs, fingerprint_code, fingerprint_configs


@pytest.fixture
def own(tmp_path: Path) -> Model:
    """A folder of somebody's own, with a config and weights."""
    (tmp_path / "unet").mkdir()
    (tmp_path / "model_index.json").write_text("{}")
    (tmp_path / "unet" / "config.json").write_text(json.dumps({"layers": 2}))
    (tmp_path / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"weights")
    return replace(load_catalog().get("demo-sdxl"), id="mine", path=tmp_path)


def test_configs_are_the_models_own_or_shipped(own: Model) -> None:
    assert find_configs(own) == own.path
    assert find_configs(load_catalog().get("sdxl-base")) == CONFIGS_DIR / "sdxl-base"


def test_a_model_without_configs_says_where_to_put_them() -> None:
    model = replace(load_catalog().get("sdxl-base"), id="unknown")
    with pytest.raises(ModelError, match="There are no configs of unknown here"):
        find_configs(model)
    assert fingerprint_configs(model) == ""


def test_other_configs_under_the_same_name_are_noticed(own: Model) -> None:
    before = fingerprint_configs(own)
    assert own.path is not None
    (own.path / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"others")
    assert fingerprint_configs(own) == before != ""
    (own.path / "unet" / "config.json").write_text(json.dumps({"layers": 3}))
    assert fingerprint_configs(own) != before


@pytest.mark.process
def test_the_code_has_a_fingerprint_without_jax() -> None:
    code = "import sys; from pipelines.sources import fingerprint_code as f; print(f(), 'jax' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said == [fingerprint_code(), "False"]
