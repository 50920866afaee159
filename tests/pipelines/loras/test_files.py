"""LoRA files are told apart by the names in their headers, whatever else lies in the folder."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipelines.errors import ModelError, RecipeError
from pipelines.families import find_traits, name_families
from pipelines.loras.files import find_family, find_loras, get_lora, list_lora_files, read_lora
from pipelines.models.catalog import load_catalog
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.recipes.resolving import resolve, take_lora_tags

WAN = "diffusion_model.blocks.0.self_attn.q.lora_down.weight"
BAD_LENGTH = (2**40).to_bytes(8, "little") + b"{}"


@pytest.fixture(name="write")
def keep_writer(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, *keys: str, **metadata: str) -> Path:
        file = tmp_path / f"{name}.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({key: np.zeros((1, 1), np.float32) for key in keys}, file, metadata=metadata or None)
        return file

    return write


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("sdxl", ["unet.down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight"]),
        ("sdxl", ["unet.down_blocks.1.attentions.0.transformer_blocks.0.ff.net.0.proj.lora_A.weight"]),
        ("sdxl", ["lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_q.lora_down.weight"]),
        ("sdxl", ["lora_unet_down_blocks_1_attentions_0_proj_in.lora_up.weight"]),
        ("sdxl", ["lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_down.weight"]),
        ("sdxl", ["text_encoder_2.text_model.encoder.layers.0.self_attn.q_proj.lora_linear_layer.down.weight"]),
        ("flux2", ["transformer.transformer_blocks.0.attn.to_q.lora_A.weight"]),
        ("flux2", ["transformer.single_transformer_blocks.3.attn.to_qkv_mlp_proj.lora_B.weight"]),
        ("flux2", ["diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight"]),
        ("flux2", ["base_model.model.single_blocks.0.linear1.lora_A.weight"]),
        ("flux2", ["lora_unet_single_blocks_0_linear1.lora_down.weight"]),
        ("wan", [WAN]),
        ("wan", ["transformer.blocks.0.attn1.to_q.lora_A.weight"]),
        ("wan", ["lora_unet_blocks_0_cross_attn_k.lora_down.weight"]),
        ("sdxl", ["lora_unet_mid_block_attentions_0_proj_in.hada_w1_a"]),
        ("sdxl", ["unet.base_model.model.down_blocks.1.attentions.0.proj_in.lora_A.weight"]),
        ("wan", ["transformer.base_model.model.blocks.0.attn1.to_q.lora_A.weight"]),
        ("sdxl", ["diffusion_model.input_blocks.3.1.proj_in.lora_down.weight"]),
        ("sdxl", ["unet.input_blocks.3.1.proj_in.lora_up.weight", "bundle_emb.x.clip_l"]),
        ("sdxl", ["text_encoders.clip_g.transformer.text_model.encoder.layers.0.mlp.fc1.lora_up.weight"]),
        ("sdxl", ["base_model.model.down_blocks.1.attentions.0.proj_in.lora_A.ink.weight"]),
        ("flux2", ["lora_transformer_single_transformer_blocks_0_attn_to_out.lora_down.weight"]),
        ("flux2", ["lycoris_transformer_blocks_0_attn_to_q.lokr_w1"]),
        ("flux2", ["double_blocks.0.img_attn.qkv.lokr_w2_a"]),
        ("wan", ["lora_unet__blocks_0_self_attn_q.lora_down.weight"]),
        ("wan", ["diffusion_model.blocks.0.self_attn.norm_q.diff"]),
        (None, ["lora_transformer_transformer_blocks_0_attn1_to_q.lora_down.weight"]),
        (None, ["transformer.transformer_blocks.0.attn.to_q.weight"]),
        ("sd", ["lora_te_text_model_encoder_layers_0_mlp_fc1.lora_down.weight"]),
        ("sd", ["unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight"]),
        ("sd", ["lora_unet_up_blocks_3_resnets_0_conv1.lora_down.weight"]),
        ("sd", ["lora_unet_input_blocks_1_1_proj_in.lora_down.weight"]),
        ("sd", ["diffusion_model.output_blocks.11.1.proj_in.lora_down.weight"]),
        ("sd", ["text_encoders.clip_h.transformer.text_model.encoder.layers.0.mlp.fc1.lora_up.weight"]),
        (None, ["transformer.single_transformer_blocks.0.proj_mlp.lora_A.weight"]),
        (None, ["transformer.transformer_blocks.0.attn1.to_q.lora_A.weight"]),
        (None, ["unet.down_blocks.1.attentions.0.proj_in.weight"]),
        ("z_image", ["transformer.layers.0.attention.to_q.lora_A.weight"]),
        ("z_image", ["diffusion_model.context_refiner.1.attention.qkv.lora_A.weight"]),
        ("z_image", ["lora_unet_noise_refiner_0_feed_forward_w2.lora_down.weight"]),
        (None, ["transformer.layers.0.self_attn.q_proj.lora_A.weight"]),
        (None, []),
    ],
)
def test_the_names_tell_the_family(family: str | None, names: list[str]) -> None:
    assert find_family(names) == family


@pytest.mark.parametrize(("width", "family"), [(768, "sd"), (1024, "sd"), (2048, "sdxl")])
def test_the_width_of_texts_tells_stable_diffusions_apart(width: int, family: str) -> None:
    layer = "unet.mid_block.attentions.0.transformer_blocks.0.attn2.to_k"
    assert find_family([f"{layer}.lora_A.weight"], {layer: {"down": (4, width)}}) == family


def test_a_folder_lists_its_loras_by_name(write: Callable[..., Path], tmp_path: Path) -> None:
    second, first = write("b", WAN), write("a", WAN, **{"modelspec.title": "Ink\n wash \x07" + "x" * 200})
    write("a checkpoint", "blocks.0.attn1.to_q.weight")
    found = [(lora.ref, lora.title, lora.family, lora.path, lora.size) for lora in find_loras(tmp_path)]
    assert found == [
        ("a", ("Ink wash " + "x" * 200)[:80], "wan", first, first.stat().st_size),
        ("b", "b", "wan", second, second.stat().st_size),
    ]
    assert find_loras(tmp_path / "nowhere") == ()


def test_folders_within_and_any_case_of_the_suffix_count(write: Callable[..., Path], tmp_path: Path) -> None:
    write("wan/style/ink", WAN)
    upper = write("boats", WAN).rename(tmp_path / "Boats.SAFETENSORS")
    (tmp_path / "wan" / "again").symlink_to(tmp_path)
    write(".hidden/ink", WAN)
    assert [lora.ref for lora in find_loras(tmp_path)] == ["Boats", "wan/style/ink"]
    assert get_lora("wan/style/ink", tmp_path).path.parent == tmp_path / "wan" / "style"
    assert get_lora("Boats", tmp_path).path == upper


def test_a_folder_that_peft_has_saved_has_the_folders_name(write: Callable[..., Path], tmp_path: Path) -> None:
    """All such folders have files of the same names."""
    file = write("style/ink/adapter_model", WAN)
    write("adapter_model", WAN)
    assert [lora.ref for lora in find_loras(tmp_path)] == ["adapter_model", "style/ink"]
    assert get_lora("style/ink", tmp_path).path == get_lora("style/ink/adapter_model", tmp_path).path == file
    write("style/ink", WAN)
    assert [lora.ref for lora in find_loras(tmp_path)] == ["adapter_model", "style/ink", "style/ink/adapter_model"]
    assert get_lora("style/ink", tmp_path).path == tmp_path / "style" / "ink.safetensors"


@pytest.mark.parametrize("ref", ["../ink", "wan/../../ink", "wan/..//../ink", "", ".", "wan"])
def test_a_ref_never_leaves_the_folder(write: Callable[..., Path], tmp_path: Path, ref: str) -> None:
    write("ink", WAN)
    write("adapter_model", WAN)
    write("loras/wan/x", WAN)
    with pytest.raises(ModelError):
        get_lora(ref, tmp_path / "loras")


def write_header(file: Path, entry: dict[str, Any], *, bytes_after: int = 4) -> Path:
    text = json.dumps({WAN: {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]} | entry}).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(bytes_after))
    return file


@pytest.mark.parametrize(
    ("entry", "bytes_after", "problem"),
    [
        ({}, 2, "ends behind the file, whose download was cut off"),
        ({"data_offsets": [-4, 0]}, 4, "nothing that can be about the tensor"),
        ({"data_offsets": [4, 0]}, 4, "nothing that can be"),
        ({"shape": [1e9, 1e9]}, 4, "nothing that can be"),
        ({"shape": [10**9, 10**9]}, 4, "has another size than its shape says"),
        ({"shape": "ab"}, 4, "nothing that can be"),
        ({"data_offsets": 3}, 4, "nothing that can be"),
        ({"dtype": "F31"}, 4, "a number format that is not known here"),
        ({"dtype": ["F32"]}, 4, "nothing that can be"),
    ],
)
def test_tensors_that_cannot_be_are_found_in_the_header(
    tmp_path: Path, entry: dict[str, Any], bytes_after: int, problem: str
) -> None:
    write_header(tmp_path / "x.safetensors", entry, bytes_after=bytes_after)
    (lora,) = list_lora_files(tmp_path)
    assert problem in lora.problem
    assert find_loras(tmp_path) == ()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ink.pt", "it is a .pt file; only .safetensors files are read"),
        ("styles/ink.CKPT", "it is a .ckpt file; only .safetensors files are read"),
        ("ink.safetensors.part", "its download is not finished"),
        ("ink.zip", "it is an archive; unpack it"),
    ],
)
def test_other_endings_are_listed_with_the_reason(
    write: Callable[..., Path], tmp_path: Path, name: str, problem: str
) -> None:
    write("boats", "unet.down_blocks.1.attentions.0.proj_in.lora_A.weight")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"anything")
    (tmp_path / "read me.txt").write_bytes(b"anything")
    assert [(lora.ref, lora.problem) for lora in list_lora_files(tmp_path)] == [("boats", None), (name, problem)]
    assert get_lora("boats", tmp_path)
    catalog = load_catalog(loras_dir=tmp_path)
    _, notes = take_lora_tags(Recipe(model="demo-sdxl", prompt="a <lora:ink:1>"), catalog)
    assert notes == [f"LoRA ink is left out: {problem}."]
    with pytest.raises(RecipeError, match=problem):
        resolve(Recipe(model="demo-sdxl", prompt="a", loras=(Lora(ref="ink"),)), catalog)


@pytest.mark.parametrize("names", [["emb_params"], ["clip_l", "clip_g"]])
def test_an_embedding_is_called_one(write: Callable[..., Path], tmp_path: Path, names: list[str]) -> None:
    write("negative", *names)
    assert [lora.problem for lora in list_lora_files(tmp_path)] == [
        "it is an embedding (textual inversion), and those are not used here"
    ]


@pytest.mark.parametrize(("part", "kind"), [("oft_blocks", "OFT"), ("a1.weight", "GLoRA"), ("on_input", "IA3")])
def test_an_adapter_that_is_not_applied_is_named(
    write: Callable[..., Path], tmp_path: Path, part: str, kind: str
) -> None:
    write("other", f"lora_unet_down_blocks_1_attentions_0_proj_in.{part}")
    (lora,) = list_lora_files(tmp_path)
    assert lora.problem == f"it is an adapter of the kind {kind}, which is not applied here"


def test_what_cannot_be_used_is_listed_with_the_reason(write: Callable[..., Path], tmp_path: Path) -> None:
    write("checkpoint", "blocks.0.attn1.to_q.weight")
    write("flux1", "transformer.single_transformer_blocks.0.proj_mlp.lora_A.weight")
    write("oft", "transformer.blocks.0.attn1.to_q.oft_blocks", WAN)
    (tmp_path / "folder.safetensors").mkdir()
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty.safetensors").touch()
    assert {lora.ref: lora.problem for lora in list_lora_files(tmp_path)} == {
        "checkpoint": "it holds nothing of a LoRA; a whole model belongs into the models folder",
        "flux1": f"it is for another kind of model than {name_families()}",
        "oft": "it is an adapter of the kind OFT, which is not applied here",
        "folder": "it is no regular file",
        "pipe": "it is no regular file",
        "gone": "it cannot be read: No such file or directory",
        "empty": "it is no safetensors file, or its download was cut off",
    }


@pytest.mark.parametrize(
    ("name", "expert"),
    [
        ("ink", ""),
        ("Wan2.2-Lightning_T2V-v1.1-A14B-4steps-lora_HIGH_fp16", "high"),
        ("Wan2.2-Lightning_T2V-v1.1-A14B-4steps-lora_LOW_fp16", "low"),
        ("wan2.2_ink_high_noise", "high"),
        ("Ink LOW-noise v2", "low"),
        ("HighNoise_ink", "high"),
        ("ink-lownoise", "low"),
        ("WAN22_HN_ink", "high"),
        ("ink.LN", "low"),
        ("high/ink", "high"),
        ("low_poly_HIGH", "high"),
        ("low_poly", ""),
        ("High Quality Detail", ""),
        ("high_noise_and_low_noise", ""),
        ("lowlands_highway_shn", ""),
    ],
)
def test_a_files_name_says_which_expert_it_is_for(write: Callable[..., Path], name: str, expert: str) -> None:
    assert find_traits("wan").loras.find_expert(name) == expert
    lora = read_lora(write(name.replace("/", "_"), WAN), ref=name)
    assert lora is not None
    assert lora.expert == expert


def test_the_header_says_it_where_the_name_does_not(write: Callable[..., Path], tmp_path: Path) -> None:
    write("a", WAN, ss_output_name="ink_low_noise")
    write("b", "transformer_2.blocks.0.attn1.to_q.lora_A.weight")
    write("c", "unet.mid_block.attentions.0.proj_in.lora_A.weight", ss_output_name="low_noise")
    assert [lora.expert for lora in find_loras(tmp_path)] == ["low", "low", ""]


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [("lora_A.weight", "LoRA"), ("hada_w1_a", "LoHa"), ("lokr_w2", "LoKr"), ("dora_scale", "DoRA"), ("diff", "LoRA")],
)
def test_the_kind_of_adapter_is_told(write: Callable[..., Path], tmp_path: Path, tensor: str, kind: str) -> None:
    write("a", f"transformer.blocks.0.attn1.to_q.{tensor}")
    assert [lora.kind for lora in find_loras(tmp_path)] == [kind]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 4,
        BAD_LENGTH,
        (2**24 + 1).to_bytes(8, "little") + b" " * 100,
        *(
            len(text).to_bytes(8, "little") + text
            for text in (b"[]", b"{", b"\xff\xfe", b"[" * 100_000, json.dumps({"__metadata__": 3}).encode())
        ),
    ],
)
def test_hostile_headers_are_skipped(write: Callable[..., Path], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.safetensors").write_bytes(content)
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    write("good", WAN)
    assert [lora.ref for lora in find_loras(tmp_path)] == ["good"]


def test_metadata_that_is_no_object_is_no_title(tmp_path: Path) -> None:
    header: dict[str, Any] = {"__metadata__": ["a"], WAN: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    (tmp_path / "odd.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    assert [lora.title for lora in find_loras(tmp_path)] == ["odd"]


def test_a_file_that_was_replaced_is_read_again(write: Callable[..., Path], tmp_path: Path) -> None:
    write("one", WAN)
    assert find_loras(tmp_path)[0].family == "wan"
    write("one", "unet.mid_block.attentions.0.proj_in.lora_A.weight")
    assert find_loras(tmp_path)[0].family == "sdxl"


def test_a_file_that_is_gone_says_where_it_belongs(write: Callable[..., Path], tmp_path: Path) -> None:
    file = write("one", WAN)
    assert get_lora("one", tmp_path).path == file
    file.unlink()
    with pytest.raises(ModelError, match=r"LoRA one is not on this machine.*Put the file into the loras folder"):
        get_lora("one", tmp_path)
    with pytest.raises(ModelError):
        get_lora("one", None)
