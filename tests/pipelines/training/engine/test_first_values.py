"""A LoRA that cannot learn on is refused by configs and its file alone, layer by layer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipelines import registry
from pipelines.errors import RecipeError
from pipelines.loras.files import inspect_lora
from pipelines.models.catalog import load_catalog
from pipelines.models.fingerprints import find_configs
from pipelines.training.engine.first_values import check_first_values
from pipelines.training.settings import TrainingSettings

MODEL = load_catalog().get("demo-flux2")
QKV, OUT = "double_blocks_0_img_attn_qkv", "double_blocks_0_img_attn_proj"


def check(file: Path, ranks: dict[str, int], *, is_split: bool = False, **asked: Any) -> None:
    """Checks a file of kohya's names with pairs of these ranks; those of q, k and v may be one upon the other."""
    learner, architecture = registry.find_learner(MODEL), registry.find_architecture(MODEL)
    module = learner.build_denoiser(find_configs(MODEL), "transformer")
    width = module.get_submodule("transformer_blocks.0.attn.to_q").weight.shape[1]
    tensors: dict[str, np.ndarray] = {}
    for layer, rank in ranks.items():
        up = np.ones((3 * width if layer == QKV else width, rank), np.float32)
        if layer == QKV and is_split:
            up = np.kron(np.eye(3, dtype=np.float32), np.ones((width, rank // 3), np.float32))
        tensors |= {f"lora_unet_{layer}.lora_up.weight": up,
                    f"lora_unet_{layer}.lora_down.weight": np.ones((rank, width), np.float32)}  # fmt: skip
    save_file(tensors, file)
    settings = TrainingSettings.model_validate({"model": MODEL.id, "lora": True, **asked})
    spell: Any = architecture
    check_first_values(
        inspect_lora(file), settings, learner, model=MODEL, folder=find_configs(MODEL), spell=spell.spell
    )


def test_each_layer_needs_its_own_rank(tmp_path: Path) -> None:
    file = tmp_path / "mixed.safetensors"
    check(file, {QKV: 12, OUT: 4}, is_split=True, rank=4)
    check(file, {QKV: 4, OUT: 4}, rank=4)
    with pytest.raises(RecipeError, match="rank: that of transformer_blocks.0.attn.to_[qkv].weight in .* is 12"):
        check(file, {QKV: 12, OUT: 4}, rank=4)
    with pytest.raises(RecipeError, match="rank: that of transformer_blocks.0.attn.to_out.0.weight in .* is 8"):
        check(file, {QKV: 4, OUT: 8}, rank=4)


def test_a_file_of_another_size_or_model_is_refused_as_the_setting_that_names_it(tmp_path: Path) -> None:
    large = tmp_path / "large.safetensors"
    parts = {"lora_up.weight": (7, 4), "lora_down.weight": (4, 7)}
    save_file({f"lora_unet_{OUT}.{part}": np.ones(shape, np.float32) for part, shape in parts.items()}, large)
    settings = TrainingSettings(model=MODEL.id, lora=True)
    learner, architecture = registry.find_learner(MODEL), registry.find_architecture(MODEL)
    spell: Any = architecture
    with pytest.raises(RecipeError, match="start_from: The LoRA large is for a model of another size"):
        check_first_values(
            inspect_lora(large), settings, learner, model=MODEL, folder=find_configs(MODEL), spell=spell.spell
        )
    with pytest.raises(RecipeError, match="start_from: The LoRA strange changes .* choose one for this model"):
        check(tmp_path / "strange.safetensors", {"double_blocks_99_img_attn_proj": 4}, rank=4)


def test_each_layer_has_to_learn(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"changes transformer_blocks.0.attn.to_out.0.weight \(1 such weights\)"):
        check(tmp_path / "more.safetensors", {QKV: 4, OUT: 4}, rank=4, targets="to_[qkv]$")
