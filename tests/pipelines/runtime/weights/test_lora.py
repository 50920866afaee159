"""A LoRA file becomes updates at the scale its trainer meant, in part if need be, or is refused with what it is."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import ModelError
from pipelines.families.wan.loras import spell
from pipelines.loras.files import LoraFile
from pipelines.models.catalog import load_catalog
from pipelines.runtime.weights.lora import LayerWeight, Reading, list_layers, read_updates
from pipelines.runtime.weights.lora_spelling import Spellings
from pipelines.runtime.weights.lora_update import Update
from tests.pipelines.made_loras import save_tensors

NAME = "transformer.blocks.0.attn1.to_q"
PLACES = {
    "transformer": {
        "blocks.0.attn1.to_q.weight": LayerWeight(parameter="blocks.every_layer.attn1.to_q.weight", shape=(6, 4)),
        "blocks.0.attn1.to_q.bias": LayerWeight(parameter="blocks.every_layer.attn1.to_q.bias", shape=(6,)),
        "blocks.0.norm2.weight": LayerWeight(parameter="blocks.every_layer.norm2.weight", shape=(4,)),
        "conv.weight": LayerWeight(parameter="conv.weight", shape=(6, 4, 1, 1)),
    }
}
SPELLINGS = Spellings(
    layers=list_layers(PLACES), prefixes={"transformer.": "transformer", "lora_unet_": "transformer"}, aliases={}
)
UP, DOWN = np.ones((6, 2)), np.ones((2, 4))
PAIR = {f"{NAME}.lora_B.weight": UP, f"{NAME}.lora_A.weight": DOWN}
KOHYA = {"lora_unet_blocks_0_attn1_to_q.lora_up.weight": UP, "lora_unet_blocks_0_attn1_to_q.lora_down.weight": DOWN}
MODEL = load_catalog().get("wan2.1-1.3b")

Read = Callable[..., Reading]


def compute(update: Update, *index: slice) -> np.ndarray:
    return update.compute(index)


@pytest.fixture(name="read")
def keep_reader(tmp_path: Path) -> Read:
    """Writes tensors as a LoRA `x` and reads it for the transformer of `PLACES`."""

    def read(tensors: Mapping[str, np.ndarray], *, scale: float = 1.0, **metadata: str) -> Reading:
        file = tmp_path / "x.safetensors"
        save_tensors(file, tensors, **metadata)
        lora = LoraFile(ref="x", title="x", family="wan", path=file, size=0)
        return read_updates(lora, scale=scale, spellings=SPELLINGS, places=PLACES, model=MODEL)

    return read


def test_without_an_alpha_a_pair_counts_as_it_is(read: Read) -> None:
    reading = read(PAIR, scale=0.5)
    update = reading.updates["transformer"]["blocks.0.attn1.to_q.weight"]
    np.testing.assert_array_equal(compute(update, slice(1, 3), slice(0, 1)), np.full((2, 1), 1.0))
    assert reading.notes == ()


@pytest.mark.parametrize(
    ("tensors", "settings", "factor"),
    [
        ({f"{NAME}.alpha": np.asarray(1.0)}, {}, 0.5),
        ({f"{NAME}.alpha": np.asarray(1.0)}, {"transformer.lora_alpha": 8}, 0.5),
        ({}, {"transformer.r": 2, "transformer.lora_alpha": 8}, 4.0),
        ({}, {"r": 2, "lora_alpha": 8}, 4.0),
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
    reading = read(PAIR | tensors, lora_adapter_metadata=json.dumps(settings))
    update = reading.updates["transformer"]["blocks.0.attn1.to_q.weight"]
    np.testing.assert_allclose(compute(update, slice(0, 1), slice(0, 1)), [[2 * factor]], rtol=1e-6)
    assert bool(reading.notes) == (factor != 1 and not tensors)


@pytest.mark.parametrize(
    ("metadata", "factor"),
    [
        ({"transformer.r": "2", "transformer.lora_alpha": "8"}, 4.0),
        ({"lora_alpha": "8", "r": "2"}, 4.0),
        ({"alpha": "8.0", "rank": "2"}, 4.0),
        ({"network_alpha": "1", "network_dim": "2"}, 0.5),
        ({"transformer.lora_alpha": "8", "transformer.use_rslora": "True"}, 8 / 2**0.5),
        ({"transformer.lora_alpha": "8", "transformer.alpha_pattern": '{"to_q": 4}'}, 2.0),
        ({"adapter_config": '{"peft_type": "LORA", "lora_alpha": 8, "r": 2}'}, 4.0),
        ({"lora_alpha": "8", "lora_adapter_metadata": '{"transformer.lora_alpha": 4}'}, 2.0),
        ({"lora_alpha": "None"}, 1.0),
        ({"lora_alpha": "nan"}, 1.0),
        ({"lora_alpha": "-8"}, 1.0),
        ({"config": "{", "other": '{"alpha": 8}', "third": "[" * 10}, 1.0),
    ],
)
def test_a_scale_in_the_header_counts_however_it_is_spelled(
    read: Read, metadata: dict[str, str], factor: float
) -> None:
    reading = read(PAIR, **metadata)
    update = reading.updates["transformer"]["blocks.0.attn1.to_q.weight"]
    np.testing.assert_allclose(compute(update, slice(0, 1), slice(0, 1)), [[2 * factor]], rtol=1e-6)
    note = f"LoRA x: its header says alpha and rank, so it counts {factor:g} times its strength."
    assert reading.notes == ((note,) if factor != 1 else ())


def test_two_whole_factors_have_the_rank_of_the_header(read: Read) -> None:
    """Of a LoKr: peft scales it by alpha over the rank that was asked for, LyCORIS not at all."""
    factors = {f"{NAME}.lokr_w1": np.ones((2, 2)), f"{NAME}.lokr_w2": np.ones((3, 2))}
    for extra, header, factor in (
        ({}, {"transformer.alpha": "8", "transformer.r": "2"}, 4.0),
        ({f"{NAME}.alpha": np.asarray(8.0)}, {}, 1.0),
    ):
        update = read(factors | extra, **header).updates["transformer"]["blocks.0.attn1.to_q.weight"]
        np.testing.assert_allclose(compute(update, slice(0, 1), slice(0, 1)), [[factor]])


def test_kohyas_alpha_in_the_header_is_that_of_its_own_tensors(read: Read) -> None:
    """Programs that rename a file's tensors multiply alpha in and leave the header as it was."""
    header = {"ss_network_alpha": "8", "ss_network_dim": "2"}
    for tensors, factor in ((KOHYA, 4.0), (PAIR, 1.0)):
        update = read(tensors, **header).updates["transformer"]["blocks.0.attn1.to_q.weight"]
        np.testing.assert_allclose(compute(update, slice(0, 1), slice(0, 1)), [[2 * factor]])


def test_a_bias_and_a_convolution_of_one_pixel_have_updates_too(read: Read) -> None:
    updates = read(
        {
            **PAIR,
            f"{NAME}.lora_B.bias": np.arange(6.0),
            "transformer.conv.lora_B.default.weight": UP.reshape(6, 2, 1, 1),
            "transformer.conv.lora_A.default.weight": DOWN,
        },
        scale=2.0,
    ).updates["transformer"]
    np.testing.assert_array_equal(compute(updates["blocks.0.attn1.to_q.bias"], slice(2, 4)), [4.0, 6.0])
    assert compute(
        updates["conv.weight"], slice(0, 6), slice(1, 3), slice(0, 1), slice(0, 1)
    ).shape == (6, 2, 1, 1)  # fmt: skip


def test_plain_differences_are_added_without_an_alpha(read: Read) -> None:
    """Of weights, biases and norms, as ComfyUI, LyCORIS and the distilled LoRAs of Wan spell them."""
    updates = read(
        {
            **PAIR,
            f"{NAME}.alpha": np.asarray(1.0),
            f"{NAME}.diff_b": np.arange(6.0),
            "transformer.blocks.0.norm2.diff": np.arange(4.0),
            "transformer.conv.diff": np.arange(24.0),
        },
        scale=0.5,
    ).updates["transformer"]
    np.testing.assert_array_equal(compute(updates["blocks.0.attn1.to_q.bias"], slice(2, 4)), [1.0, 1.5])
    np.testing.assert_array_equal(compute(updates["blocks.0.norm2.weight"], slice(1, 3)), [0.5, 1.0])
    assert compute(updates["conv.weight"], *map(slice, (0, 0, 0, 0), (6, 4, 1, 1)))[5, 3] == 11.5
    norm = read({**PAIR, "transformer.blocks.0.norm2.w_norm": np.ones(4)}).updates["transformer"]
    np.testing.assert_array_equal(compute(norm["blocks.0.norm2.weight"], slice(0, 4)), np.ones(4))


def test_the_modulation_of_blocks_and_of_the_head_is_added(tmp_path: Path) -> None:
    """Few-step LoRAs of Wan spell differences of modulations `diff_m`, those of a block and of the head."""
    shapes = {"blocks.0.scale_shift_table": (1, 6, 8), "scale_shift_table": (1, 2, 8), "proj_out.weight": (4, 8)}
    places = {"transformer": {name: LayerWeight(parameter=name, shape=shape) for name, shape in shapes.items()}}
    file = tmp_path / "x.safetensors"
    save_tensors(
        file,
        {
            "diffusion_model.blocks.0.diff_m": np.arange(6 * 8.0).reshape(1, 6, 8),
            "diffusion_model.head.diff_m": np.arange(2 * 8.0).reshape(1, 2, 8),
            "diffusion_model.head.head.diff": np.ones((4, 8)),
        },
    )
    lora = LoraFile(ref="x", title="x", family="wan", path=file, size=0)
    reading = read_updates(lora, scale=0.5, spellings=spell(list_layers(places)), places=places, model=MODEL)
    updates = reading.updates["transformer"]
    assert (updates.keys(), reading.notes) == (shapes.keys(), ())
    for name, shape in shapes.items():
        found = compute(updates[name], *(slice(0, size) for size in shape))
        expected = np.ones(shape) if name == "proj_out.weight" else np.arange(float(np.prod(shape))).reshape(shape)
        np.testing.assert_array_equal(found, expected / 2)


@pytest.mark.parametrize(
    ("extra", "note"),
    [
        (
            {"transformer.blocks.0.attn2.add_k_proj.lora_A.weight": DOWN},
            "LoRA x: 1 of its layers are not in wan2.1-1.3b and were left out: transformer.blocks.0.attn2.add_k_proj.",
        ),
        ({"bundle_emb.ink.clip_l": UP}, "LoRA x: it brings 1 tensors of embeddings, which are not used here."),
        (
            {f"{NAME}.strange": UP, "transformer.b.alpha": np.asarray(1.0)},
            "LoRA x: 2 of its tensors are of no known kind and were left out: "
            "transformer.blocks.0.attn1.to_q.strange, transformer.b.alpha.",
        ),
    ],
)
def test_what_the_model_has_no_use_for_is_left_out_with_a_note(
    read: Read, extra: dict[str, np.ndarray], note: str
) -> None:
    reading = read(PAIR | extra)
    assert reading.updates["transformer"].keys() == {"blocks.0.attn1.to_q.weight"}
    assert reading.notes == (note,)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            PAIR | {f"{NAME}.oft_blocks": UP},
            "x is an adapter of the kind OFT, which is not applied here. LoRA, LoHa, LoKr and DoRA are applied here",
        ),
        ({f"{NAME}.dora_scale": UP}, "of transformer.blocks.0.attn1.to_q it holds only one half"),
        ({f"{NAME}.hada_w1_a": UP}, "it holds only one half"),
        ({f"{NAME}.lokr_w1": UP}, "it holds only one half"),
        ({f"{NAME}.lokr_w1": np.ones((2, 2)), f"{NAME}.lokr_w2": np.ones((2, 2))}, "has shape (4, 4) in it and (6, 4)"),
        (
            PAIR | {"transformer.conv.lora_A.a.weight": DOWN, "transformer.conv.lora_B.b.weight": UP},
            "it holds 2 adapters (a, b)",
        ),
        ({f"{NAME}.lora_A.weight": DOWN}, "of transformer.blocks.0.attn1.to_q it holds only one half"),
        (PAIR | {f"{NAME}.lora_B.weight": np.full((6, 2), np.nan)}, "it holds values that are not finite"),
        (PAIR | {f"{NAME}.alpha": np.ones(2)}, "the alpha of transformer.blocks.0.attn1.to_q is not one number"),
        (PAIR | {f"{NAME}.diff_b": np.ones(5)}, "is for a model of another size"),
        ({}, "it holds nothing that this model could use"),
        (
            {name.replace("blocks.0", "blocks.30"): tensor for name, tensor in PAIR.items()},
            "The LoRA x changes transformer.blocks.30.attn1.to_q, which wan2.1-1.3b does not have. "
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


@pytest.mark.parametrize("text", ["text_encoder.layers.{}.mlp.fc1", "lora_te1_text_model_layers_{}_mlp_fc1", "te.{}.q"])
def test_a_file_of_more_layers_for_text_encoders_than_for_the_denoiser_is_used_for_what_the_model_has(
    read: Read, text: str
) -> None:
    """The text encoders of these models learn nothing, so that diffusers leaves such layers out as well."""
    of_text = {f"{text.format(number)}.lora_{half}.weight": value
               for number in range(3) for half, value in (("A", DOWN), ("B", UP))}  # fmt: skip
    reading = read(PAIR | of_text)
    assert reading.updates.keys() == {"transformer"}
    assert reading.notes == (
        "LoRA x: 3 of its layers are of text encoders, which are not changed here, and were left out: "
        f"{', '.join(text.format(number) for number in range(3))}.",
    )
    strange = {name.replace("blocks.0", "blocks.30"): tensor for name, tensor in PAIR.items()}
    with pytest.raises(ModelError, match=r"changes transformer\.blocks\.30\.attn1\.to_q, which"):
        read(strange | of_text)
    with pytest.raises(ModelError, match="which wan2.1-1.3b does not have"):
        read(of_text)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    lora = LoraFile(ref="x", title="x", family="wan", path=file, size=10)
    for one in (lora, replace(lora, path=tmp_path / "nowhere.safetensors")):
        with pytest.raises(ModelError, match="The LoRA x cannot be read"):
            read_updates(one, scale=1.0, spellings=SPELLINGS, places=PLACES, model=MODEL)


PEFT_NAME = "transformer.base_model.model.blocks.0.attn1.to_q"
PEFT_PAIR = {f"{PEFT_NAME}.lora_B.weight": UP, f"{PEFT_NAME}.lora_A.weight": DOWN}


@pytest.mark.parametrize(
    ("config", "header", "factor"),
    [
        ({"peft_type": "LORA", "r": 2, "lora_alpha": 8}, {}, 4.0),
        ({"r": 2, "lora_alpha": 8, "use_rslora": True}, {}, 8 / 2**0.5),
        ({"r": 2, "lora_alpha": 8, "alpha_pattern": {"attn1.to_q": 4}, "rank_pattern": {"attn1.to_q": 2}}, {}, 2.0),
        ({"r": 2, "lora_alpha": 2}, {}, 1.0),
        ({"r": 2, "lora_alpha": 8}, {"lora_alpha": "4", "r": "2"}, 2.0),
        ({"r": 2, "lora_alpha": None}, {}, 1.0),
        ("no JSON", {}, 1.0),
    ],
)
def test_the_scale_of_a_folder_of_peft_s_counts_where_the_header_has_none(
    read: Read, tmp_path: Path, config: object, header: dict[str, str], factor: float
) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    reading = read(PEFT_PAIR, **header)
    update = reading.updates["transformer"]["blocks.0.attn1.to_q.weight"]
    np.testing.assert_allclose(compute(update, slice(0, 1), slice(0, 1)), [[2 * factor]], rtol=1e-6)
    if factor != 1 and not header:
        assert reading.notes == (
            f"LoRA x: adapter_config.json beside it says alpha and rank, so it counts {factor:g} times its strength.",
        )


def test_a_description_beside_several_files_is_of_the_one_that_peft_calls_so(read: Read, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"r": 2, "lora_alpha": 8}')
    (tmp_path / "adapter_model.safetensors").touch()
    reading = read(PEFT_PAIR)
    update = reading.updates["transformer"]["blocks.0.attn1.to_q.weight"]
    np.testing.assert_allclose(compute(update, slice(0, 1), slice(0, 1)), [[2]])


def test_that_peft_s_alpha_is_not_there_is_said(read: Read) -> None:
    assert read(PEFT_PAIR).notes == (
        "LoRA x: it says no alpha, which peft keeps in adapter_config.json beside its file; it counts as if alpha were "
        "its rank.",
    )


def test_an_alpha_of_0_is_the_rank_and_said(read: Read) -> None:
    """As kohya's trainers and LyCORIS read it."""
    reading = read(PAIR | {f"{NAME}.alpha": np.asarray(0.0)})
    update = reading.updates["transformer"]["blocks.0.attn1.to_q.weight"]
    np.testing.assert_allclose(compute(update, slice(0, 1), slice(0, 1)), [[2]])
    assert reading.notes == (
        "LoRA x: in 1 of its layers alpha is 0, which is read as the rank, as its trainer does: "
        "transformer.blocks.0.attn1.to_q.",
    )


def test_a_dora_with_lengths_of_the_columns_of_several_layers_is_refused_as_what_it_is(tmp_path: Path) -> None:
    """Older LyCORIS' default, of a layer that the original has as one; sizes have nothing to do with it."""
    shapes = {f"attn.to_{one}.weight": (6, 4) for one in "qkv"}
    places = {"transformer": {name: LayerWeight(parameter=name, shape=shape) for name, shape in shapes.items()}}
    layers = list_layers(places)
    aliases = {"transformer": {"attn.qkv": tuple(layers["transformer"])}}
    file = tmp_path / "x.safetensors"
    pair = {"attn.qkv.lora_up.weight": np.ones((18, 2)), "attn.qkv.lora_down.weight": DOWN}
    save_tensors(file, pair | {"attn.qkv.dora_scale": np.ones((1, 4))})
    spellings = Spellings(layers=layers, prefixes={"": "transformer"}, aliases=aliases)
    with pytest.raises(ModelError, match="attn.qkv is a DoRA whose lengths are those of the columns of 3 layers"):
        read_updates(
            LoraFile(ref="x", title="x", family="flux2", path=file, size=0),
            scale=1.0,
            spellings=spellings,
            places=places,
            model=MODEL,
        )
