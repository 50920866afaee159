"""What a training starts from: a distilled model's base, and a LoRA that learns on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipelines.errors import RecipeError
from pipelines.loras.files import inspect_lora
from pipelines.models.catalog import load_catalog
from pipelines.training.checks import tell_start
from pipelines.training.first_lora import find_first_lora, hash_lora, take_rank
from pipelines.training.settings import TrainingSettings


@pytest.mark.parametrize("size", ["4b", "9b"])
def test_klein_learns_from_klein_base(size: str) -> None:
    klein = load_catalog().get(f"flux2-klein-{size}")
    start = klein.choose_start()
    assert (start.repo, start.revision) == (f"black-forest-labs/FLUX.2-klein-base-{size.upper()}", "main")
    assert start.id == klein.id
    (whole,) = tell_start(klein, "full")
    assert "the result is used as that model is" in str(whole)
    (note,) = tell_start(klein)
    assert start.repo in str(note)


def test_a_revision_is_that_of_the_base() -> None:
    klein = load_catalog().get("flux2-klein-4b")
    assert klein.choose_start(revision="abc").revision == "abc"


def test_other_models_learn_from_themselves() -> None:
    for model in load_catalog().models:
        if not model.learns_from:
            assert model.choose_start() == model
            assert not tell_start(model)


def test_a_distilled_folder_of_ones_own_is_told(tmp_path: Path) -> None:
    own = replace(load_catalog().get("flux2-klein-4b"), path=tmp_path, repo="")
    assert own.choose_start() == own
    (tmp_path / "model_index.json").write_text(json.dumps({"is_distilled": True}), "utf-8")
    (note,) = tell_start(own)
    assert "distilled" in str(note)
    (tmp_path / "model_index.json").write_text(json.dumps({"is_distilled": False}), "utf-8")
    assert not tell_start(own)


LAYER = "unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q"


def save_pair(file: Path, *, rank: int, **others: int) -> Path:
    """Saves a LoRA of one layer, with further parts of these sizes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    shapes = {"lora_A.weight": (rank, 80), "lora_B.weight": (80, rank), **{name: (n,) for name, n in others.items()}}
    save_file({f"{LAYER}.{part}": np.ones(shape, np.float32) for part, shape in shapes.items()}, file)
    return file


def ask(start_from: str, **asked: object) -> TrainingSettings:
    fields = {"model": "demo-sdxl", "data": ("d",), "lora": True, "start_from": start_from}
    return TrainingSettings.model_validate(fields | asked)


def test_a_lora_learns_on_by_its_name_or_as_a_file_with_its_own_rank_or_more(tmp_path: Path) -> None:
    model = replace(load_catalog().get("demo-sdxl"), loras_dir=tmp_path / "loras")
    file = save_pair(tmp_path / "loras" / "zorb.safetensors", rank=24)
    for text in ("zorb", "zorb.safetensors", str(file)):
        settings = take_rank(ask(text), model)
        assert settings.rank == 24
        found = find_first_lora(settings, model)
        assert found is not None
        assert found.path.samefile(file)
    assert take_rank(ask("zorb", rank=32), model).rank == 32
    with pytest.raises(RecipeError, match="rank: that of zorb is 24"):
        find_first_lora(take_rank(ask("zorb", rank=16), model), model)
    with pytest.raises(RecipeError, match="start_from: there is no LoRA other"):
        find_first_lora(take_rank(ask("other"), model), model)
    before = hash_lora(find_first_lora(take_rank(ask("zorb"), model), model))
    save_pair(file, rank=25)
    assert hash_lora(find_first_lora(take_rank(ask("zorb"), model), model)) != before
    assert hash_lora(None) is None


def test_the_alpha_beside_a_lora_that_peft_has_saved_is_a_part_of_it(tmp_path: Path) -> None:
    lora = inspect_lora(save_pair(tmp_path / "zorb" / "adapter_model.safetensors", rank=4))
    found = {hash_lora(lora)}
    for alpha in (4, 8):
        (tmp_path / "zorb" / "adapter_config.json").write_text(json.dumps({"lora_alpha": alpha}), "utf-8")
        found.add(hash_lora(lora))
    assert len(found) == 3


def test_what_cannot_learn_on_is_refused(tmp_path: Path) -> None:
    catalog = load_catalog()
    dora = save_pair(tmp_path / "dora.safetensors", rank=4, lora_magnitude_vector=80)
    with pytest.raises(RecipeError, match="start_from: .*dora.safetensors cannot be learnt on from: it is a DoRA"):
        find_first_lora(ask(str(dora)), catalog.get("demo-sdxl"))
    plain = save_pair(tmp_path / "plain.safetensors", rank=4)
    with pytest.raises(RecipeError, match="start_from: .* it is for sdxl models, not for demo-flux2"):
        find_first_lora(ask(str(plain)), catalog.get("demo-flux2"))


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        ({"double_blocks_0_img_mlp_0": 16, "double_blocks_0_img_mlp_2": 8}, 16),
        ({"double_blocks_0_img_attn_qkv": 48, "double_blocks_0_img_mlp_0": 16}, 16),  # q, k and v one upon the other
        ({"double_blocks_0_img_attn_qkv": 48, "double_blocks_0_txt_attn_qkv": 16}, 16),
        ({"double_blocks_0_img_mlp_0": 4, "te1_text_model_encoder_layers_0_self_attn_q_proj": 64}, 4),
    ],
)
def test_the_rank_of_a_file_is_the_largest_that_a_layer_needs(
    tmp_path: Path, ranks: dict[str, int], found: int
) -> None:
    file = tmp_path / "mixed.safetensors"
    names = {f"lora_{layer}" if layer.startswith("te") else f"lora_unet_{layer}": rank for layer, rank in ranks.items()}
    parts = {f"{layer}.lora_down.weight": (rank, 32) for layer, rank in names.items()}
    parts |= {f"{layer}.lora_up.weight": (96, rank) for layer, rank in names.items()}
    save_file({name: np.ones(shape, np.float32) for name, shape in parts.items()}, file)
    lora = inspect_lora(file)
    assert (lora.problem, lora.rank) == (None, found)
    assert take_rank(ask(str(file), model="demo-flux2"), load_catalog().get("demo-flux2")).rank == found
