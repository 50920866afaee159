"""LoRA files: kohya's names hold the same numbers, stacks come apart, and what is no number is never written."""

from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file

from pipelines.families.sdxl.training import LEARNER
from pipelines.loras.files import inspect_lora
from pipelines.training.results.export import NotFiniteError, write_lora
from pipelines.training.settings import TrainingSettings

BLOCK = "down_blocks.1.attentions.0.transformer_blocks"
LAYERS = [f"{BLOCK}.{number}.attn1.to_q" for number in range(2)]
LAYERS += [f"down_blocks.0.resnets.{number}.conv1" for number in range(2)] + ["time_embedding.linear_1"]
CONFIG = LoraConfig(r=4, lora_alpha=8, target_modules=["to_q"], init_lora_weights=False)


def _draw() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    stem = f"{BLOCK}.every_layer.attn1.to_q"
    return {
        f"{stem}.lora_A.default.weight": rng.normal(size=(2, 4, 32)).astype(np.float32),
        f"{stem}.lora_B.default.weight": rng.normal(size=(2, 32, 4)).astype(np.float32),
        "time_embedding.linear_1.lora_A.default.weight": rng.normal(size=(4, 16)).astype(np.float32),
        "time_embedding.linear_1.lora_B.default.weight": rng.normal(size=(32, 4)).astype(np.float32),
    }


def _write(file: Path, values: dict[str, np.ndarray], **asked: object) -> dict[str, torch.Tensor]:
    settings = TrainingSettings.model_validate({"lora": True, "rank": 4, "alpha": 8.0} | asked)
    write_lora(
        file, values, config=CONFIG, learner=LEARNER, layers=LAYERS, facts={"ss_output_name": "zorb"}, settings=settings
    )
    return load_file(file)


def test_each_layer_of_a_stack_has_its_own_tensors(tmp_path: Path) -> None:
    values = _draw()

    written = _write(tmp_path / "zorb.safetensors", values, lora_format="diffusers")

    assert len(written) == 6
    expected = torch.from_numpy(values[f"{BLOCK}.every_layer.attn1.to_q.lora_A.default.weight"][1]).to(torch.bfloat16)
    torch.testing.assert_close(written[f"unet.{BLOCK}.1.attn1.to_q.lora_A.weight"], expected, rtol=0, atol=0)


def test_kohyas_names_hold_the_same_numbers_and_alpha(tmp_path: Path) -> None:
    ours = _write(tmp_path / "ours.safetensors", _draw(), lora_format="diffusers")
    theirs = _write(tmp_path / "theirs.safetensors", _draw(), lora_format="kohya")

    names = {f"{BLOCK}.{number}": f"input_blocks.4.1.transformer_blocks.{number}" for number in range(2)}
    names["time_embedding.linear_1"] = "time_embed.0"
    for name, value in ours.items():
        layer, _, half = name.removeprefix("unet.").removesuffix(".weight").rpartition(".lora_")
        for our_start, their_start in names.items():
            layer = layer.replace(our_start, their_start)
        spelt = f"lora_unet_{layer.replace('.', '_')}"
        torch.testing.assert_close(theirs[f"{spelt}.lora_{'down' if half == 'A' else 'up'}.weight"], value)
        assert theirs[f"{spelt}.alpha"] == 8


@pytest.mark.parametrize("kind", ["all", "diffusers", "kohya"])
def test_the_list_of_loras_knows_the_file(tmp_path: Path, kind: str) -> None:
    _write(tmp_path / "zorb.safetensors", _draw(), lora_format=kind)

    found = inspect_lora(tmp_path / "zorb.safetensors")

    assert (found.family, found.title, found.problem) == ("sdxl", "zorb", None)


def test_what_is_no_number_is_never_written(tmp_path: Path) -> None:
    values = {name: np.where(np.arange(value.size).reshape(value.shape) == 3, np.nan, value)
              for name, value in _draw().items()}  # fmt: skip
    with pytest.raises(NotFiniteError):
        _write(tmp_path / "zorb.safetensors", values)
    assert not list(tmp_path.iterdir())
