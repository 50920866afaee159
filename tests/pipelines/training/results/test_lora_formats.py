"""Every format of a LoRA file is read, layer by layer and with the right numbers, by those programs that the docs name.

diffusers is itself asked what its modules then have; of ComfyUI the rules are asked (comfyui_names.py).
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import Flux2Transformer2DModel, UNet2DConditionModel, WanTransformer3DModel, ZImageTransformer2DModel
from diffusers.loaders import (
    Flux2LoraLoaderMixin,
    StableDiffusionLoraLoaderMixin,
    StableDiffusionXLLoraLoaderMixin,
    WanLoraLoaderMixin,
    ZImageLoraLoaderMixin,
)
from diffusers.loaders.single_file_utils import (
    convert_flux2_transformer_checkpoint_to_diffusers,
    convert_wan_transformer_to_diffusers,
    convert_z_image_transformer_checkpoint_to_diffusers,
)
from peft import LoraConfig
from safetensors.torch import load_file

from pipelines.families.flux2 import loras as flux2_loras
from pipelines.families.flux2.training import LEARNER as FLUX2
from pipelines.families.sd import architecture as sd
from pipelines.families.sd.training import LEARNER as SD
from pipelines.families.sdxl import architecture as sdxl
from pipelines.families.sdxl.training import LEARNER as SDXL
from pipelines.families.trainable import Learner
from pipelines.families.wan import loras as wan_loras
from pipelines.families.wan.training import LEARNER as WAN
from pipelines.families.z_image import loras as z_image_loras
from pipelines.families.z_image.training import LEARNER as Z_IMAGE
from pipelines.loras.files import inspect_lora
from pipelines.models.catalog import PRESETS_DIR
from pipelines.runtime.weights.lora import LayerWeight, Reading, list_layers, read_updates
from pipelines.runtime.weights.lora_spelling import Spell
from pipelines.training.engine.adapters import draw_first, make_config
from pipelines.training.engine.first_values import take_over
from pipelines.training.results.export import write_lora
from pipelines.training.settings import TrainingSettings
from tests.pipelines import comfyui_names

RANK, ALPHA = 4, 8.0
Deltas = dict[str, np.ndarray]
"""Layer -> what is added to its weight, (out, in)."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A family, as small as its layers' names allow."""

    learner: Learner
    spell: Spell
    module: Any
    config: str
    smaller: Mapping[str, Any]
    loader: Any
    names: Callable[[list[str]], comfyui_names.Names]
    convert: Callable[[dict[str, torch.Tensor]], Mapping[str, torch.Tensor]] | None = None
    """diffusers' own way from the original's checkpoint to its module."""

    @property
    def component(self) -> str:
        return self.learner.prefix

    def build(self) -> Any:
        fields = json.loads((PRESETS_DIR / "configs" / self.config / self.component / "config.json").read_text("utf-8"))
        return self.module.from_config(fields | self.smaller)


KINDS = {
    "sd": Kind(
        learner=SD,
        spell=sd.spell,
        module=UNet2DConditionModel,
        config="sd15",
        smaller={"block_out_channels": (32,) * 4, "attention_head_dim": 2, "cross_attention_dim": 48},
        loader=StableDiffusionLoraLoaderMixin,
        names=lambda layers: comfyui_names.name_unet(layers, per_level=2, with_attention=(1, 2, 3)),
    ),
    "sdxl": Kind(
        learner=SDXL,
        spell=sdxl.spell,
        module=UNet2DConditionModel,
        config="sdxl-base",
        smaller={
            "block_out_channels": (32, 32, 32),
            "attention_head_dim": 2,
            "cross_attention_dim": 48,
            "transformer_layers_per_block": (1, 1, 2),
            "addition_time_embed_dim": 4,
            "projection_class_embeddings_input_dim": 40,
        },
        loader=StableDiffusionXLLoraLoaderMixin,
        names=lambda layers: comfyui_names.name_unet(layers, per_level=2, with_attention=(0, 1)),
    ),
    "flux2": Kind(
        learner=FLUX2,
        spell=flux2_loras.spell,
        module=Flux2Transformer2DModel,
        config="flux2-dev",
        smaller={
            "num_layers": 2,
            "num_single_layers": 3,
            "num_attention_heads": 2,
            "attention_head_dim": 16,
            "joint_attention_dim": 24,
            "axes_dims_rope": (4, 4, 4, 4),
            "timestep_guidance_channels": 8,
            "in_channels": 8,
        },
        loader=Flux2LoraLoaderMixin,
        names=lambda _layers: comfyui_names.name_flux2(2, 3),
        convert=convert_flux2_transformer_checkpoint_to_diffusers,
    ),
    "wan": Kind(
        learner=WAN,
        spell=wan_loras.spell,
        module=WanTransformer3DModel,
        config="wan2.1-1.3b",
        smaller={"num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 12, "ffn_dim": 40, "text_dim": 16},
        loader=WanLoraLoaderMixin,
        names=lambda _layers: comfyui_names.name_wan(2),
        convert=convert_wan_transformer_to_diffusers,
    ),
    "z_image": Kind(
        learner=Z_IMAGE,
        spell=z_image_loras.spell,
        module=ZImageTransformer2DModel,
        config="z-image",
        smaller={
            "dim": 32,
            "n_heads": 2,
            "n_kv_heads": 2,
            "n_layers": 2,
            "cap_feat_dim": 24,
            "axes_dims": (4, 4, 8),
            "axes_lens": (16, 16, 16),
        },
        loader=ZImageLoraLoaderMixin,
        names=lambda _layers: comfyui_names.name_z_image(2, 2),
        convert=convert_z_image_transformer_checkpoint_to_diffusers,
    ),
}


@pytest.fixture(name="modules", scope="module")
def build_modules() -> dict[str, Any]:
    torch.manual_seed(0)
    return {name: kind.build() for name, kind in KINDS.items()}


def list_linear(module: Any) -> list[str]:
    kinds = (torch.nn.Linear, torch.nn.Conv2d)
    return [name for name, layer in module.named_modules() if isinstance(layer, kinds)]


def write(file: Path, kind: Kind, module: Any, lora_format: str, *, targets: str = "") -> Deltas:
    """Writes a LoRA of all layers, or those that `targets` is a part of; returns what it should add to each."""
    settings = TrainingSettings.model_validate({"lora": True, "rank": RANK, "alpha": ALPHA, "lora_format": lora_format})
    layers = [name for name in list_linear(module) if targets in name]
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return torch.from_numpy(rng.normal(size=shape)).to(torch.bfloat16).float().numpy()

    values: dict[str, np.ndarray] = {}
    deltas: Deltas = {}
    for layer in layers:
        rows, *rest = module.get_submodule(layer).weight.shape
        down, up = draw(RANK, *rest), draw(rows, RANK, *(1 for _ in rest[1:]))
        values |= {f"{layer}.lora_A.default.weight": down, f"{layer}.lora_B.default.weight": up}
        deltas[layer] = ALPHA / RANK * up.reshape(rows, RANK) @ down.reshape(RANK, -1)
    config: LoraConfig = make_config(layers, settings)
    everything = [name.rpartition(".")[0] for name in module.state_dict()]
    write_lora(
        file, values, config=config, learner=kind.learner, layers=everything,
        facts={"ss_output_name": "zorb", "lumesh_training": json.dumps({"alpha": ALPHA, "rank": RANK})},
        settings=settings,
    )  # fmt: skip
    return deltas


def read_in_diffusers(file: Path, kind: Kind) -> Deltas:
    """What diffusers' own module has after loading the file as its pipelines do."""
    module = kind.build()
    if kind.component == "unet":
        tensors, alphas, metadata = kind.loader.lora_state_dict(
            file, unet_config=module.config, return_lora_metadata=True
        )
        kind.loader.load_lora_into_unet(tensors, alphas, module, metadata=metadata)
    else:
        tensors, metadata = kind.loader.lora_state_dict(file, return_lora_metadata=True)
        kind.loader.load_lora_into_transformer(tensors, module, metadata=metadata)
    found = {name: layer for name, layer in module.named_modules() if hasattr(layer, "get_delta_weight")}
    return {
        name: delta.numpy().reshape(len(delta), -1)
        for name, layer in found.items()
        for delta in (layer.get_delta_weight("default_0").detach().float(),)
    }


def list_shapes(module: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def read_with_our_reader(file: Path, kind: Kind, module: Any) -> Reading:
    shapes = list_shapes(module)
    weights = {name: LayerWeight(parameter=name, shape=shape) for name, shape in shapes.items()}
    components = {kind.component: weights}
    lora = inspect_lora(file)
    assert lora.problem is None
    return read_updates(
        lora, scale=1.0, spellings=kind.spell(list_layers(components)), places=components,
        model=SimpleNamespace(id="tiny"),  # pyrefly: ignore[bad-argument-type] - only its name is read
    )  # fmt: skip


def read_here(file: Path, kind: Kind, module: Any) -> tuple[Deltas, tuple[str, ...]]:
    """What our own reader adds, and what it says."""
    reading, shapes = read_with_our_reader(file, kind, module), list_shapes(module)
    deltas: Deltas = {}
    for name, update in reading.updates[kind.component].items():
        index = tuple(slice(0, size) for size in shapes[name])
        delta = update.change(np.zeros(shapes[name], np.float32), index, None)  # pyrefly: ignore[bad-argument-type]
        deltas[name.removesuffix(".weight")] = delta.reshape(len(delta), -1)
    return deltas, tuple(map(str, reading.notes))


def read_in_comfyui(file: Path, kind: Kind, layers: list[str]) -> tuple[Deltas, set[str]]:
    """What ComfyUI's rules add, and the layers of the file that they leave out."""
    names = kind.names(layers)
    tensors = {name: value.float().numpy() for name, value in load_file(file).items()}
    found, left_out = comfyui_names.read(tensors, names)
    if kind.convert is None:
        own = {layer: names["lora_unet_" + layer.replace(".", "_")].layer for layer in layers}
        return {layer: found[name] for layer, name in own.items() if name in found}, left_out
    originals = {f"{name}.weight": torch.from_numpy(value) for name, value in found.items()}
    converted = kind.convert(originals)
    return {name.removesuffix(".weight"): value.numpy() for name, value in converted.items()}, left_out


def check(found: Deltas, expected: Deltas) -> None:
    assert found.keys() == expected.keys()
    for layer, delta in expected.items():
        np.testing.assert_allclose(found[layer], delta, rtol=1e-3, atol=1e-3, err_msg=layer)


FLUX2_IN_COMFYUI = ("time_guidance_embed.", "single_stream_modulation.", "double_stream_modulation_")


@pytest.mark.parametrize("family", KINDS)
def test_by_default_diffusers_comfyui_and_we_read_all_of_it(
    modules: dict[str, Any], tmp_path: Path, family: str
) -> None:
    kind, module, file = KINDS[family], modules[family], tmp_path / "zorb.safetensors"
    expected = write(file, kind, module, "all")

    check(read_in_diffusers(file, kind), expected)
    ours, notes = read_here(file, kind, module)
    check(ours, expected)
    assert notes == ()
    theirs, left_out = read_in_comfyui(file, kind, list_linear(module))
    check(theirs, expected)
    twice = {f"transformer.{name}" for name in expected if name.startswith(FLUX2_IN_COMFYUI)}
    assert left_out == (twice if family == "flux2" else set())


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("targets", ["to_q", "attn"])
def test_of_some_layers_by_default_the_same(modules: dict[str, Any], tmp_path: Path, family: str, targets: str) -> None:
    kind, module, file = KINDS[family], modules[family], tmp_path / "zorb.safetensors"
    targets = "attention" if (family, targets) == ("z_image", "attn") else targets
    expected = write(file, kind, module, "all", targets=targets)

    check(read_in_diffusers(file, kind), expected)
    check(read_here(file, kind, module)[0], expected)
    theirs, left_out = read_in_comfyui(file, kind, list_linear(module))
    zeros = {layer for layer, delta in theirs.items() if not delta.any()}  # k and v beside q
    check({layer: delta for layer, delta in theirs.items() if layer not in zeros}, expected)
    assert left_out == set()


@pytest.mark.parametrize("family", KINDS)
def test_diffusers_names_are_read_by_diffusers_and_us(modules: dict[str, Any], tmp_path: Path, family: str) -> None:
    kind, module, file = KINDS[family], modules[family], tmp_path / "zorb.safetensors"
    expected = write(file, kind, module, "diffusers")

    check(read_in_diffusers(file, kind), expected)
    check(read_here(file, kind, module)[0], expected)
    assert {*load_file(file)} == {f"{kind.component}.{name}.lora_{half}.weight" for name in expected for half in "AB"}


@pytest.mark.parametrize("family", KINDS)
def test_kohyas_names_are_read_by_comfyui_and_us(modules: dict[str, Any], tmp_path: Path, family: str) -> None:
    kind, module, file = KINDS[family], modules[family], tmp_path / "zorb.safetensors"
    expected = write(file, kind, module, "kohya")

    check(read_here(file, kind, module)[0], expected)
    names = {name.partition(".")[0] for name in load_file(file)}
    if family != "z_image":  # its projections are one in ComfyUI, three in kohya's trainer
        theirs, left_out = read_in_comfyui(file, kind, list_linear(module))
        check(theirs, expected)
        assert left_out == set()
    assert all(name.startswith("lora_unet_") for name in names)


@pytest.mark.parametrize(("family", "targets"), [("sd", ""), ("sdxl", ""), ("z_image", ""), ("wan", "blocks")])
def test_kohyas_names_are_read_by_diffusers(modules: dict[str, Any], tmp_path: Path, family: str, targets: str) -> None:
    kind, module, file = KINDS[family], modules[family], tmp_path / "zorb.safetensors"
    expected = write(file, kind, module, "kohya", targets=targets)

    check(read_in_diffusers(file, kind), expected)


def test_of_kohyas_names_of_flux2_diffusers_reads_what_kohyas_trainer_trains(
    modules: dict[str, Any], tmp_path: Path
) -> None:
    kind, module, file = KINDS["flux2"], modules["flux2"], tmp_path / "zorb.safetensors"
    expected = write(file, kind, module, "kohya")

    found = read_in_diffusers(file, kind)

    check(found, {layer: expected[layer] for layer in found})
    assert {layer for layer in expected if "transformer_blocks" in layer} <= found.keys()


def test_kohyas_names_of_wan_are_those_of_its_trainer(modules: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "zorb.safetensors"
    write(file, KINDS["wan"], modules["wan"], "kohya")

    tensors = load_file(file)

    assert tensors["lora_unet_blocks_0_self_attn_q.lora_down.weight"].shape == (RANK, 24)
    assert tensors["lora_unet_blocks_1_ffn_0.alpha"] == ALPHA
    assert "lora_unet_time_projection_1.lora_up.weight" in tensors


def test_a_layer_that_the_original_has_as_one_gets_the_rank_of_three(modules: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "zorb.safetensors"
    write(file, KINDS["flux2"], modules["flux2"], "kohya")

    tensors = load_file(file)

    name = "lora_unet_double_blocks_0_img_attn_qkv"
    assert tensors[f"{name}.lora_down.weight"].shape == (3 * RANK, 32)
    assert tensors[f"{name}.lora_up.weight"].shape == (96, 3 * RANK)
    assert tensors[f"{name}.alpha"] == 3 * ALPHA


@pytest.mark.parametrize(
    ("family", "pattern"),
    [
        ("sd", r"\.attn[12]\.to_"),
        ("sdxl", r"\.attn[12]\.to_"),
        ("flux2", rf"^transformer\.({'|'.join(FLUX2_IN_COMFYUI)})"),
        ("wan", ""),
        ("z_image", "nothing"),
    ],
)
def test_of_diffusers_names_comfyui_leaves_out_what_the_docs_say(
    modules: dict[str, Any], tmp_path: Path, family: str, pattern: str
) -> None:
    kind, module, file = KINDS[family], modules[family], tmp_path / "zorb.safetensors"
    expected = write(file, kind, module, "diffusers")

    names = kind.names(list_linear(module))

    assert {name for name in (f"{kind.component}.{layer}" for layer in expected) if name not in names} == {
        name for name in (f"{kind.component}.{layer}" for layer in expected) if re.search(pattern, name)
    }


def test_of_kohyas_names_of_z_image_comfyui_leaves_out_what_the_docs_say(
    modules: dict[str, Any], tmp_path: Path
) -> None:
    kind, module, file = KINDS["z_image"], modules["z_image"], tmp_path / "zorb.safetensors"
    write(file, kind, module, "kohya")

    _, left_out = read_in_comfyui(file, kind, list_linear(module))

    assert left_out == {
        name for name in {one.partition(".")[0] for one in load_file(file)} if re.search("_attention_|_all_", name)
    }


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("lora_format", ["all", "diffusers", "kohya"])
def test_a_lora_learns_on_from_a_file_of_any_names_with_other_rank_and_alpha(
    modules: dict[str, Any], tmp_path: Path, family: str, lora_format: str
) -> None:
    kind, module, file = KINDS[family], modules[family], tmp_path / "zorb.safetensors"
    expected = write(file, kind, module, lora_format)
    rank, alpha = RANK + 2, 3.0
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in expected:
        rows, *rest = module.get_submodule(layer).weight.shape
        shapes |= {f"{layer}.lora_A.default.weight": (rank, *rest)}
        shapes |= {f"{layer}.lora_B.default.weight": (rows, rank, *(1 for _ in rest[1:]))}
    drawn = draw_first(shapes, seed=0)

    updates = read_with_our_reader(file, kind, module).updates[kind.component]
    found = take_over(drawn, updates, rank=rank, alpha=alpha)

    deltas: Deltas = {}
    for layer in expected:
        down, up = (found[f"{layer}.lora_{half}.default.weight"] for half in "AB")
        deltas[layer] = alpha / rank * up.reshape(-1, rank) @ down.reshape(rank, -1)
        assert np.array_equal(down[RANK:], drawn[f"{layer}.lora_A.default.weight"][RANK:]), "the rest learns, too"
    check(deltas, expected)
