"""LoRA files are told apart by the names in their headers, whatever else lies in the folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipelines.errors import ModelError
from pipelines.loras import LoraFile, find_family, find_loras, get_lora

WAN = "diffusion_model.blocks.0.self_attn.q.lora_down.weight"
BAD_LENGTH = (2**40).to_bytes(8, "little") + b"{}"


@pytest.fixture(name="write")
def keep_writer(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, *keys: str, **metadata: str) -> Path:
        file = tmp_path / f"{name}.safetensors"
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
        (None, ["lora_te_text_model_encoder_layers_0_mlp_fc1.lora_down.weight"]),
        (None, ["transformer.single_transformer_blocks.0.proj_mlp.lora_A.weight"]),
        (None, ["transformer.transformer_blocks.0.attn1.to_q.lora_A.weight"]),
        (None, ["unet.down_blocks.1.attentions.0.proj_in.weight"]),
        (None, ["transformer.layers.0.attention.to_q.lora_A.weight"]),
        (None, []),
    ],
)
def test_the_names_tell_the_family(family: str | None, names: list[str]) -> None:
    assert find_family(names) == family


def test_a_folder_lists_its_loras_by_name(write: Callable[..., Path], tmp_path: Path) -> None:
    second, first = write("b", WAN), write("a", WAN, **{"modelspec.title": "Ink\n wash \x07" + "x" * 200})
    write("a checkpoint", "blocks.0.attn1.to_q.weight")
    expected = ("a", ("Ink wash " + "x" * 200)[:80], "wan", first, first.stat().st_size)
    assert find_loras(tmp_path) == (LoraFile(*expected), LoraFile("b", "b", "wan", second, second.stat().st_size))
    assert find_loras(tmp_path / "nowhere") == ()


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
