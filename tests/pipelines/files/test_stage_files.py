"""Stage files keep names, dtypes and model; a file that does not fit is refused in one sentence."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from pipelines.errors import StageFileError
from pipelines.files.stage_files import (
    CONFIG_FILE,
    EMBEDDING_NAMES,
    EMBEDDINGS_FILE,
    LATENTS_FILE,
    read_config,
    read_tensors,
    write_config,
    write_tensors,
)

LATENTS = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2) / 7
SHAPES = {"latents": (1, 4, 2, 2)}


def read(file: Path, **options: Any) -> np.ndarray:
    return read_tensors(file, **{"shapes": SHAPES, "model_id": "tiny", "stage": "denoise"} | options)["latents"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_tensors(tmp_path / LATENTS_FILE, {"latents": LATENTS}, model_id="tiny")
    return tmp_path / LATENTS_FILE


def test_names_are_those_of_the_contract() -> None:
    assert (EMBEDDINGS_FILE, LATENTS_FILE, CONFIG_FILE) == (
        "stage1_embeddings.safetensors",
        "stage2_latents.safetensors",
        "generation_config.json",
    )
    assert "prompt_embeds" in EMBEDDING_NAMES


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_values_come_back_in_fp32_from_every_precision(tmp_path: Path, dtype: Any) -> None:
    write_tensors(tmp_path / LATENTS_FILE, {"latents": LATENTS.astype(dtype)}, model_id="tiny")
    found = read(tmp_path / LATENTS_FILE)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, LATENTS.astype(dtype).astype(np.float32))


def test_a_file_by_another_tool_needs_no_metadata(tmp_path: Path) -> None:
    save_file({"latents": LATENTS}, tmp_path / LATENTS_FILE)
    np.testing.assert_array_equal(read(tmp_path / LATENTS_FILE), LATENTS)


def test_zero_stands_for_any_size(file: Path) -> None:
    assert read(file, shapes={"latents": (0, 4, 2, 2)}).shape == LATENTS.shape


def test_a_file_of_another_model_is_refused(file: Path) -> None:
    with pytest.raises(StageFileError, match=r"is of tiny, not of sdxl-base\. Run `python -m pipelines denoise`"):
        read(file, model_id="sdxl-base")


@pytest.mark.parametrize("shape", [(1, 4, 4, 4), (2, 4, 2, 2), (4, 2, 2)])
def test_another_shape_is_refused_with_both(file: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(StageFileError, match=r"has shape \(1, 4, 2, 2\); tiny needs"):
        read(file, shapes={"latents": shape})


def test_a_missing_tensor_is_named(file: Path) -> None:
    with pytest.raises(StageFileError, match=r"lacks prompt_embeds"):
        read(file, shapes=SHAPES | {"prompt_embeds": (1, 2)})


def test_a_missing_file_says_which_command_writes_it(tmp_path: Path) -> None:
    with pytest.raises(StageFileError, match=r"is missing\. Run `python -m pipelines denoise` first"):
        read(tmp_path / LATENTS_FILE)


@pytest.mark.parametrize("kept", [0, 4, 40, -10])
def test_a_truncated_file_is_refused(file: Path, kept: int) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: kept if kept >= 0 else len(content) + kept])
    with pytest.raises(StageFileError, match="is damaged"):
        read(file)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    write_tensors(tmp_path / LATENTS_FILE, {"latents": np.full_like(LATENTS, value)}, model_id="tiny")
    with pytest.raises(StageFileError, match="not finite"):
        read(tmp_path / LATENTS_FILE)


def test_settings_read_back_as_written(tmp_path: Path) -> None:
    fields = {"model_id": "tiny", "prompt": "zwölf Boxkämpfer 😀", "seed": 7}
    write_config(tmp_path / "new folder", fields)
    assert read_config(tmp_path / "new folder") == fields


@pytest.mark.parametrize("content", ["", "{torn", "[]", "{}", '{"model_id": 3}'])
def test_settings_that_cannot_be_used_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / CONFIG_FILE).write_text(content)
    with pytest.raises(StageFileError, match=CONFIG_FILE):
        read_config(tmp_path)


def test_missing_settings_say_which_command_writes_them(tmp_path: Path) -> None:
    with pytest.raises(StageFileError, match=r"is missing\. Run `python -m pipelines encode` first"):
        read_config(tmp_path)
