"""A single file in models/ is a model, or is told what it is."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.catalog import PRESETS_DIR, load_catalog, read_data_dir
from pipelines.models.own_models import UnusableModel, find_own_models

PREFIX = "model.diffusion_model."


def write_header(file: Path, shapes: dict[str, tuple[int, ...]], *, dtype: str = "F16", **metadata: str) -> Path:
    """Writes a file of these tensors without their bytes: a header, and a hole as long as they would be."""
    size = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1}[dtype]
    entries, end = dict[str, object](), 0
    for name, shape in shapes.items():
        start = end
        count = 1
        for one in shape:
            count *= one
        end += count * size
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries | ({"__metadata__": metadata} if metadata else {})).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + end)
    return file


def list_unet(
    *,
    channels: int = 4,
    text_width: int = 2048,
    label_width: int = 2816,
    depths: tuple[int, ...] = (0, 2, 10),
    middle: int | None = None,
) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a UNet's tensors by which it is told, SDXL's unless said otherwise."""
    shapes: dict[str, tuple[int, ...]] = {
        "input_blocks.0.0.weight": (320, channels, 3, 3),
        "out.2.weight": (4, 320, 3, 3),
    }
    if label_width:
        shapes["label_emb.0.0.weight"] = (1280, label_width)
    widths, number = (320, 640, 1280, 1280)[: len(depths)], 0
    for level, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for _ in range(2):
            number += 1
            shapes[f"input_blocks.{number}.0.out_layers.3.weight"] = (width, width, 3, 3)
            for layer in range(depth):
                shapes[f"input_blocks.{number}.1.transformer_blocks.{layer}.norm1.weight"] = (width,)
                shapes[f"input_blocks.{number}.1.transformer_blocks.{layer}.attn2.to_k.weight"] = (width, text_width)
        if level + 1 < len(depths):
            number += 1
            shapes[f"input_blocks.{number}.0.op.weight"] = (width, width, 3, 3)
    for layer in range(max(depths[-1], 1) if middle is None else middle):
        shapes[f"middle_block.1.transformer_blocks.{layer}.norm1.weight"] = (1280,)
    return {PREFIX + name: shape for name, shape in shapes.items()}


def list_wan(
    further: dict[str, tuple[int, ...]] | None = None, *, channels: int = 16, width: int = 5120
) -> dict[str, tuple[int, ...]]:
    """The same of a Wan's transformer, the 14B one's unless said otherwise."""
    shapes: dict[str, tuple[int, ...]] = {
        "head.modulation": (1, 2, width),
        "head.head.weight": (64, width),
        "patch_embedding.weight": (width, channels, 1, 2, 2),
        "text_embedding.0.weight": (width, 4096),
        "blocks.0.ffn.0.weight": (13824 if width == 5120 else 8960, width),
    }
    layers = 40 if width == 5120 else 30
    return shapes | {f"blocks.{number}.norm3.weight": (width,) for number in range(layers)} | (further or {})


def list_z_image(further: dict[str, tuple[int, ...]] | None = None) -> dict[str, tuple[int, ...]]:
    """The same of Z-Image's transformer."""
    shapes: dict[str, tuple[int, ...]] = {
        "cap_pad_token": (1, 3840),
        "x_embedder.weight": (3840, 64),
        "cap_embedder.1.weight": (3840, 2560),
    }
    blocks = {"layers": 30, "noise_refiner": 2, "context_refiner": 2}
    shapes |= {f"{kind}.{one}.ffn_norm1.weight": (3840,) for kind, count in blocks.items() for one in range(count)}
    return {PREFIX + name: shape for name, shape in (shapes | (further or {})).items()}


SD: Any = {"text_width": 768, "label_width": 0, "depths": (1, 1, 1, 0)}
XL_TEXT = {"conditioner.embedders.0.transformer.text_model.w": (1,), "conditioner.embedders.1.model.w": (1,)}
SD_TEXT = {"cond_stage_model.transformer.text_model.w": (1,)}
VAE = {"first_stage_model.decoder.conv_in.weight": (1,)}


@pytest.mark.parametrize(
    ("name", "shapes", "metadata", "told"),
    [
        ("ponyDiffusionV6XL", list_unet() | XL_TEXT | VAE, {}, ("sdxl-base", "laid out as its authors' own (LDM)")),
        ("unet-only", list_unet(), {}, ("sdxl-base", "From sdxl-base: vae, text encoder, text encoder 2.")),
        ("noob", list_unet() | {"v_pred": (0,), "ztsnr": (0,)}, {}, ("sdxl-base", "velocity, as the file says.")),
        ("noob-vPred", list_unet(), {}, ("sdxl-base", "Its name says that it predicts velocity")),
        ("xl", list_unet(), {"modelspec.prediction_type": "v"}, ("sdxl-base", "velocity, as the file says.")),
        ("dreamshaper", list_unet(**SD) | SD_TEXT | VAE, {}, ("sd15", "Stable Diffusion 1 and 2, laid out")),
        ("v2-1_768", list_unet(**(SD | {"text_width": 1024})) | SD_TEXT, {}, ("sd21", "velocity is assumed")),
        ("z_image_turbo_bf16", list_z_image(), {}, ("z-image-turbo", "From z-image-turbo: vae, text encoder.")),
        ("z-image-base", list_z_image(), {}, ("z-image", "as in ComfyUI")),
        ("my-z", list_z_image(), {}, ("z-image-turbo", "its name says neither")),
        ("512-base", list_unet(**(SD | {"text_width": 1024})) | SD_TEXT, {}, ("sd2-base", "512 pixels by its name")),
    ],
)  # fmt: skip
def test_a_file_that_is_dropped_is_a_model_like_its_base(
    tmp_path: Path, name: str, shapes: dict[str, tuple[int, ...]], metadata: dict[str, str], told: tuple[str, str]
) -> None:
    base, words = told
    file = write_header(tmp_path / "models" / "civitai" / f"{name}.safetensors", shapes, **metadata)
    catalog = read_data_dir(tmp_path)
    assert not catalog.unusable
    model = catalog.get(f"civitai-{name.lower().replace('_', '-')}")
    assert (model.file, model.base, model.path, model.repo) == (file, catalog.get(base), None, "")
    assert (model.shapes, model.steps) == (catalog.get(base).shapes, catalog.get(base).steps)
    assert words in model.description


def test_a_wan_of_one_transformer_is_known_by_its_sizes(tmp_path: Path) -> None:
    write_header(tmp_path / "models" / "a.safetensors", list_wan())
    write_header(tmp_path / "models" / "b.safetensors", list_wan(width=1536), dtype="F8_E4M3")
    write_header(tmp_path / "models" / "c.safetensors", list_wan({"img_emb.proj.0.weight": (1280,)}, channels=36))
    to_last = {"img_emb.proj.0.weight": (1280,), "img_emb.emb_pos": (1, 514, 1280)}
    write_header(tmp_path / "models" / "d.safetensors", list_wan(to_last, channels=36))
    catalog = read_data_dir(tmp_path)
    bases = {name: base.id for name in "abcd" if (base := catalog.get(name).base) is not None}
    assert bases == {"a": "wan2.1-14b", "b": "wan2.1-1.3b", "c": "wan2.1-i2v-14b", "d": "wan2.1-flf2v-14b"}
    assert "as in ComfyUI, in fp8 (e4m3). From wan2.1-1.3b: vae, text encoder." in catalog.get("b").description


def test_two_experts_are_one_model(tmp_path: Path) -> None:
    for noise in ("high", "low"):
        write_header(tmp_path / "models" / f"t2v_{noise}_noise.safetensors", list_wan())
    alone = read_data_dir(tmp_path).unusable
    assert {(one.name, str(one.reason)) for one in alone} == {
        (f"t2v_{noise}_noise", "It is one of two experts, and makes nothing alone.") for noise in ("high", "low")
    }
    entry = '[[model]]\nid = "mine"\nfile = "t2v_high_noise.safetensors"\nfile_2 = "t2v_low_noise.safetensors"\n'
    (tmp_path / "models.toml").write_text(entry, "utf-8")
    model = read_data_dir(tmp_path).get("mine")
    assert (model.program_id, [file.stem for file in model.own_files]) == (
        "wan2.2-a14b", ["t2v_high_noise", "t2v_low_noise"],
    )  # fmt: skip
    assert "From wan2.2-a14b: vae, text encoder." in model.description


def test_what_it_predicts_can_be_said_in_ones_own_entry(tmp_path: Path) -> None:
    write_header(tmp_path / "models" / "merge.safetensors", list_unet(), **{"modelspec.license": "Fair AI"})
    entry = '[[model]]\nid = "merge"\nprediction_type = "v_prediction"\nzero_terminal_snr = true\nsteps = 30\n'
    (tmp_path / "models.toml").write_text(entry, "utf-8")
    model = read_data_dir(tmp_path).get("merge")
    assert dict(model.scheduler_changes) == {
        "prediction_type": "v_prediction",
        "rescale_betas_zero_snr": True,
        "timestep_spacing": "trailing",
    }
    assert (model.steps, model.licence) == (30, "Fair AI")


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ('file = "gone.safetensors"', "gone.safetensors is not there"),
        ('file = "xl.safetensors"\nconfigs = "sdxl"', "no model 'sdxl' whose configs it could have"),
        ('file = "xl.safetensors"\nconfigs = "sd15"', "a checkpoint of SDXL, which sd15 is not"),
        ('file = "xl.safetensors"\nconfigs = "demo-sdxl"', "Its layers are those of no SDXL here"),
        ('file = "xl.safetensors"\nvae = "gone"', "gone is not there"),
        ('file = "xl.safetensors"\nprediction_type = "sample"', "prediction_type"),
        ("steps = 3", "nor in which folder (path) or file (file)"),
    ],
)
def test_a_wrong_entry_says_what_is_wrong(tmp_path: Path, entry: str, told: str) -> None:
    write_header(tmp_path / "models" / "xl.safetensors", list_unet())
    (tmp_path / "models.toml").write_text(f'[[model]]\nid = "mine"\n{entry}\n', "utf-8")
    (unusable,) = read_data_dir(tmp_path).unusable
    assert told in unusable.reason
    assert unusable.advice


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (list_unet(channels=9), "an SDXL for inpainting or editing (its UNet takes 9 channels)"),
        (list_unet() | {"conditioner.embedders.0.model.w": (1,)}, "SDXL's refiner"),
        (list_unet() | {"edm_mean": (4,)}, "a Playground v2.5"),
        (list_unet() | {"edm_vpred.sigma_max": (1,)}, "CosXL"),
        (list_unet(depths=(0, 2, 4)), "pruned, or distilled to fewer layers"),
        (list_unet(**(SD | {"channels": 9})), "a Stable Diffusion for inpainting"),
        (list_unet(**(SD | {"channels": 5})), "takes a depth map"),
        ({"lora_unet_down_blocks_1_attentions_0_proj_in.lora_down.weight": (1,)}, "a LoRA, not a model"),
        ({"decoder.conv_in.weight": (1,), "encoder.conv_in.weight": (1,)}, "an autoencoder (VAE) alone"),
        ({"first_stage_model.decoder.mid.block_1.conv1.weight": (1,)}, "an autoencoder (VAE) alone"),
        ({"model.diffusion_model.double_blocks.0.img_mod.lin.weight": (1,)}, "a FLUX.1, which no code"),
        (list_wan({"vace_blocks.0.after_proj.bias": (1,)}), "a Wan VACE"),
        (list_wan(channels=48), "its transformer takes 48 channels"),
        (list_wan({"casual_audio_encoder.weights": (1,)}), "a Wan with further layers (casual_audio_encoder)"),
        ({"model.diffusion_model.joint_blocks.0.x_block.attn.qkv.weight": (1,)}, "a Stable Diffusion 3"),
        ({"control_model.input_blocks.0.0.weight": (1,)}, "a ControlNet"),
        ({"text_model.encoder.layers.0.mlp.fc1.weight": (1,)}, "a text encoder alone"),
        ({"transformer_blocks.0.img_mod.1.weight": (1,)}, "a Qwen-Image"),
        ({"model.diffusion_model.cap_embedder.1.weight": (2304, 2304)}, "a Lumina"),
        (list_z_image({"siglip_pad_token": (1, 3840)}), "a Z-Image Omni"),
        ({"emb_params": (1,)}, "an embedding (textual inversion)"),
        ({"model.diffusion_model.input_blocks.0.0.weight": (320, 4, 3, 3)}, "lacks parts that all have"),
        ({"weight": (1,)}, "no checkpoint that is known here"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path, names: dict[str, tuple[int, ...]], told: str) -> None:
    write_header(tmp_path / "models" / "one.safetensors", names)
    (unusable,) = read_data_dir(tmp_path).unusable
    assert told in unusable.reason
    assert unusable.name in ("one.safetensors", "one")


def test_a_file_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    file = write_header(tmp_path / "one.safetensors", {"weight": (1,)})
    (found,) = find_own_models(tmp_path)
    assert isinstance(found, UnusableModel)
    write_header(file, list_unet())
    (found,) = find_own_models(tmp_path)
    assert found.id == "one"


def test_the_demos_are_bases_too() -> None:
    """So that a small file of the same sizes is a model as it is, and the whole way can be tried anywhere."""
    assert load_catalog().get("demo-sdxl").path == PRESETS_DIR / "demo" / "demo-sdxl"
