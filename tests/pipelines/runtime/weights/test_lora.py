"""A LoRA file becomes updates at the scale its trainer meant, or is refused with what it is."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.catalog import load_catalog
from pipelines.errors import ModelError
from pipelines.loras import LoraFile
from pipelines.runtime.weights.lora import LayerWeight, read_updates
from pipelines.runtime.weights.lora_merge import LowRank
from tests.pipelines.loras import save_tensors

NAME = "transformer.blocks.0.attn1.to_q"
PLACES = {
    "transformer": {
        "blocks.0.attn1.to_q.weight": LayerWeight(parameter="blocks.every_layer.attn1.to_q.weight", shape=(6, 4)),
        "blocks.0.attn1.to_q.bias": LayerWeight(parameter="blocks.every_layer.attn1.to_q.bias", shape=(6,)),
        "conv.weight": LayerWeight(parameter="conv.weight", shape=(6, 4, 1, 1)),
    }
}
UP, DOWN = np.ones((6, 2)), np.ones((2, 4))
PAIR = {f"{NAME}.lora_B.weight": UP, f"{NAME}.lora_A.weight": DOWN}

Read = Callable[..., dict[str, LowRank]]


@pytest.fixture(name="read")
def keep_reader(tmp_path: Path) -> Read:
    """Writes tensors as a LoRA `x` and reads it for the transformer of `PLACES`, names as they are."""
    model = load_catalog().get("wan2.1-1.3b")

    def read(tensors: Mapping[str, np.ndarray], *, scale: float = 1.0, **metadata: str) -> dict[str, LowRank]:
        file = tmp_path / "x.safetensors"
        save_tensors(file, tensors, **metadata)
        lora = LoraFile(ref="x", title="x", family="wan", path=file, size=0)
        rename = lambda given, _file: dict(given)  # noqa: E731
        return read_updates(lora, scale=scale, rename=rename, places=PLACES, model=model)["transformer"]

    return read


def test_without_an_alpha_a_pair_counts_as_it_is(read: Read) -> None:
    update = read(PAIR, scale=0.5)["blocks.0.attn1.to_q.weight"]
    np.testing.assert_array_equal(update.compute((slice(1, 3), slice(0, 1))), np.full((2, 1), 1.0))


@pytest.mark.parametrize(
    ("tensors", "settings", "factor"),
    [
        ({f"{NAME}.alpha": np.asarray(1.0)}, {}, 0.5),
        ({}, {"transformer.r": 2, "transformer.lora_alpha": 8}, 4.0),
        ({}, {"transformer.r": 2, "transformer.lora_alpha": 8, "transformer.use_rslora": True}, 8 / 2**0.5),
        ({}, {"transformer.lora_alpha": 8, "transformer.alpha_pattern": {"attn1.to_q": 2}}, 1.0),
        ({}, {"transformer.lora_alpha": 8, "transformer.alpha_pattern": {"^to_q": 2}}, 4.0),
        ({}, {"transformer.lora_alpha": "a lot"}, 1.0),
        ({}, {"unet.lora_alpha": 8}, 1.0),
    ],
)
def test_the_trainers_scale_counts(
    read: Read, tensors: dict[str, np.ndarray], settings: dict[str, object], factor: float
) -> None:
    update = read(PAIR | tensors, lora_adapter_metadata=json.dumps(settings))["blocks.0.attn1.to_q.weight"]
    np.testing.assert_allclose(update.compute((slice(0, 1), slice(0, 1))), [[2 * factor]], rtol=1e-6)


def test_a_bias_and_a_convolution_of_one_pixel_have_updates_too(read: Read) -> None:
    updates = read(
        {
            **PAIR,
            f"{NAME}.lora_B.bias": np.arange(6.0),
            "transformer.conv.lora_B.default.weight": UP.reshape(6, 2, 1, 1),
            "transformer.conv.lora_A.default.weight": DOWN,
        },
        scale=2.0,
    )
    np.testing.assert_array_equal(updates["blocks.0.attn1.to_q.bias"].compute((slice(2, 4),)), [4.0, 6.0])
    assert updates["conv.weight"].compute((slice(0, 6), slice(1, 3), slice(0, 1), slice(0, 1))).shape == (6, 2, 1, 1)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"transformer.a.hada_w1_a": UP}, "x is a LoHa, not a plain LoRA. Only plain LoRAs are applied here"),
        ({"transformer.a.lokr_w1": UP}, "x is a LoKr, not a plain LoRA"),
        (PAIR | {f"{NAME}.lora_magnitude_vector": UP}, "x is a DoRA"),
        (PAIR | {f"{NAME}.dora_scale": UP}, "x is a DoRA"),
        (PAIR | {f"{NAME}.lora_mid.weight": UP}, "x is a LoCon with a middle matrix"),
        ({f"{NAME}.lora_A.weight": DOWN}, "of blocks.0.attn1.to_q it holds only one half"),
        (PAIR | {f"{NAME}.lora_B.weight": np.full((6, 2), np.nan)}, "it holds values that are not finite"),
        (PAIR | {f"{NAME}.diff": UP}, f"its tensor {NAME}.diff is no part of a LoRA"),
        (PAIR | {"transformer.b.alpha": np.asarray(1.0)}, "its tensors are not named as those of a LoRA"),
        (PAIR | {f"{NAME}.alpha": np.ones(2)}, "its tensors are not named as those of a LoRA"),
        ({}, "it holds nothing that this model could use"),
        (
            {name.replace("blocks.0", "blocks.30"): tensor for name, tensor in PAIR.items()},
            "The LoRA x changes transformer.blocks.30.attn1.to_q.weight, which wan2.1-1.3b does not have. "
            "It was made for another model",
        ),
        (
            PAIR | {f"{NAME}.lora_A.weight": np.ones((2, 8))},
            "transformer.blocks.0.attn1.to_q.weight has shape (6, 8) in it and (6, 4) in wan2.1-1.3b. Use one that",
        ),
        (PAIR | {f"{NAME}.lora_B.weight": np.ones((6, 3))}, "is for a model of another size"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(
    read: Read, tensors: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(ModelError) as refusal:
        read(tensors)
    assert message in str(refusal.value)
    assert refusal.value.title == "This LoRA cannot be used"


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    lora = LoraFile(ref="x", title="x", family="wan", path=file, size=10)
    for one in (lora, replace(lora, path=tmp_path / "nowhere.safetensors")):
        with pytest.raises(ModelError, match="The LoRA x cannot be read"):
            read_updates(one, scale=1.0, rename=lambda given, _file: given, places=PLACES, model=load_catalog().default)
