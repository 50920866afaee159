"""A GGUF file in models/ is a model, or is told what it is, by its header alone."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from pipelines.models.catalog import read_data_dir
from pipelines.models.description import describe_model
from pipelines.models.model_manager import add_file
from tests.pipelines.models.test_single_files import PREFIX, list_unet, list_wan


def write_header(
    file: Path, shapes: dict[str, tuple[int, ...]], *, kind: str = "Q4_K", metadata: dict[str, str] | None = None
) -> Path:
    """Writes a file of these tensors without their bytes: matrices of whole blocks as `kind`, all others in fp32."""
    quantised = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[quantised]
    writer = gguf.GGUFWriter(None, "of-a-test")
    end = 0
    for name, shape in shapes.items():
        *rows, row = shape
        in_blocks = bool(rows) and row % block == 0
        count = int(np.prod(shape))
        stored = count // block * size if in_blocks else 4 * count
        stored_shape = (*rows, row // block * size) if in_blocks else shape
        dtype = np.dtype(np.uint8 if in_blocks else np.float32)
        writer.add_tensor_info(name, stored_shape, dtype, stored, raw_dtype=quantised if in_blocks else None)
        end += stored + -stored % writer.data_alignment
    for key, value in (metadata or {}).items():
        writer.add_string(key, value)
    file.parent.mkdir(parents=True, exist_ok=True)
    writer.write_header_to_file(file)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size + end + writer.data_alignment)
    return file


def test_what_is_dropped_is_a_model_like_its_base(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_header(models / "wan2.1-t2v-14b-Q4_K_M.gguf", list_wan())
    plain = {name.removeprefix(PREFIX): shape for name, shape in list_unet().items()}
    write_header(models / "pony-v6-Q8.gguf", plain, kind="Q8_0", metadata={"modelspec.license": "Fair AI"})
    catalog = read_data_dir(tmp_path)
    assert not catalog.unusable
    wan, pony = catalog.get("wan2.1-t2v-14b-q4-k-m"), catalog.get("pony-v6-q8")
    assert (wan.program_id, pony.program_id, pony.licence) == ("wan2.1-14b", "sdxl-base", "Fair AI")
    assert "as in ComfyUI, in Q4_K (GGUF). From wan2.1-14b: vae, text encoder." in wan.description
    assert describe_model(wan).dtype == "Q4_K (GGUF)"


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({"enc.blk.0.attn_q.weight": (256, 256)}, "It is a text encoder alone, which no code here runs."),
        ({"blk.0.attn_q.weight": (256, 256)}, "It is a text encoder alone, which no code here runs."),
        ({"double_blocks.0.img_mod.lin.weight": (256, 256)}, "It is a FLUX.1, which no code here runs."),
        (list_wan({"vace_blocks.0.w": (1,)}), "It is a Wan VACE, which edits videos and follows reference pictures,"),
    ],
)
def test_what_is_none_of_ours_is_told(tmp_path: Path, shapes: dict[str, tuple[int, ...]], reason: str) -> None:
    write_header(tmp_path / "models" / "a.gguf", shapes)
    (found,) = read_data_dir(tmp_path).unusable
    assert str(found.reason).startswith(reason)


@pytest.mark.parametrize("content", [b"GGUF", b"GGUF" + bytes(40), b"GGUF\x03\0\0\0" + b"\xff" * 64])
def test_a_damaged_file_says_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.gguf").write_bytes(content)
    (found,) = read_data_dir(tmp_path).unusable
    assert "is truncated or not a GGUF file" in str(found.reason)


def test_it_is_added_under_its_own_ending(tmp_path: Path) -> None:
    file = write_header(tmp_path / "some.download", list_wan())
    assert add_file(tmp_path / "data", file, name="mine", links=True) == "mine"
    assert (tmp_path / "data" / "models" / "mine.gguf").is_symlink()
