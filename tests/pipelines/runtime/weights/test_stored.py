"""Checkpoint files become device arrays slice by slice; whatever is wrong with a file is said in one sentence."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding, PartitionSpec
from safetensors.torch import save_file

from pipelines.errors import Cancelled, ModelError
from pipelines.models.weight_files import find_weight_files
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.weights.resolve import resolve
from pipelines.runtime.weights.shard_load import load_weights
from pipelines.runtime.weights.stored import Destination, read_headers

VALUES = {
    "proj.weight": torch.linspace(-2, 2, 8 * 6).reshape(8, 6),
    "proj.bias": torch.linspace(0, 1, 8),
    "scale": torch.tensor(3.0),
}
SHAPES = {name: tuple(value.shape) for name, value in VALUES.items()}


def ignore(_done: int, _total: int) -> None:
    pass


def load(folder: Path, *, mesh: str = "dp=1", **options: Any) -> dict[str, jax.Array]:
    """The three values of `folder`, with the weight's rows split over `tp`."""
    specs = {"proj.weight": PartitionSpec("tp")}
    shardings = {name: NamedSharding(build_mesh(mesh), specs.get(name, PartitionSpec())) for name in SHAPES}
    stored = read_headers(find_weight_files(folder, variant=options.pop("variant", "")))
    return load_weights(resolve(stored, SHAPES), shardings, **{"dtype": jnp.float32, "on_tensor": ignore} | options)


def save(folder: Path, values: Mapping[str, torch.Tensor] = VALUES, name: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in values.items()}, folder / name)
    return folder / name


def save_sharded(folder: Path) -> None:
    """Two files and an index, as diffusers writes large models."""
    names = list(VALUES)
    files = {names[0]: "model-00001-of-00002.safetensors"}
    files |= dict.fromkeys(names[1:], "model-00002-of-00002.safetensors")
    for file in set(files.values()):
        save(folder, {name: VALUES[name] for name in names if files[name] == file}, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
def test_every_precision_is_read(tmp_path: Path, stored: torch.dtype) -> None:
    save(tmp_path, {name: value.to(stored) for name, value in VALUES.items()})
    for name, array in load(tmp_path).items():
        assert array.dtype == jnp.float32
        np.testing.assert_array_equal(array, VALUES[name].to(stored).float().numpy())


def test_weights_are_narrowed_when_asked(tmp_path: Path) -> None:
    save(tmp_path)
    array = load(tmp_path, dtype=jnp.bfloat16)["proj.weight"]
    assert array.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(array, np.float32), VALUES["proj.weight"].bfloat16().float().numpy())


def test_each_device_holds_only_its_slice(tmp_path: Path) -> None:
    save(tmp_path)
    array = load(tmp_path, mesh="tp=4")["proj.weight"]
    for rank, shard in enumerate(array.addressable_shards):
        np.testing.assert_array_equal(shard.data, VALUES["proj.weight"][2 * rank : 2 * rank + 2].numpy())


def test_only_the_bytes_of_a_slice_are_read(tmp_path: Path) -> None:
    place = read_headers([save(tmp_path)])["proj.weight"]
    found = np.zeros((2, 6), np.float32)
    (read,) = place.plan([Destination(index=(slice(2, 4), slice(0, 6)), array=found)])
    read.run()
    np.testing.assert_array_equal(found, VALUES["proj.weight"][2:4].numpy())


def test_several_files_with_an_index_are_one_model(tmp_path: Path) -> None:
    save_sharded(tmp_path)
    for name, array in load(tmp_path).items():
        np.testing.assert_array_equal(array, VALUES[name].numpy())


def test_a_missing_one_of_several_files_is_named(tmp_path: Path) -> None:
    save_sharded(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match=r"names model-00002-of-00002\.safetensors, which is not there"):
        load(tmp_path)


def test_an_index_cannot_point_out_of_its_folder(tmp_path: Path) -> None:
    save(tmp_path, name="outside.safetensors")
    (tmp_path / "unet").mkdir()
    index = {"weight_map": dict.fromkeys(VALUES, "../outside.safetensors")}
    (tmp_path / "unet" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="which is not there"):
        load(tmp_path / "unet")


def test_the_wanted_variant_goes_first_and_the_plain_file_is_second_best_which_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = save(tmp_path, name="diffusion_pytorch_model.safetensors")
    for _ in range(2):
        assert find_weight_files(tmp_path, variant="fp16") == [plain]
    told = f"{tmp_path} has no weights of the variant fp16; the plain ones are used"
    assert caplog.messages == [told]
    small = save(tmp_path, name="diffusion_pytorch_model.fp16.safetensors")
    assert find_weight_files(tmp_path, variant="fp16") == [small]
    assert find_weight_files(tmp_path) == [plain]
    assert caplog.messages == [told]
    plain.unlink()
    assert find_weight_files(tmp_path, variant="bf16") == [small]
    assert caplog.messages[1:] == [f"{tmp_path} has no weights of the variant bf16; those of fp16 are used"]


@pytest.mark.parametrize(
    "names",
    [
        ["diffusion_pytorch_model.fp16.safetensors"],
        ["model.bf16.safetensors", "model.fp16.safetensors"],
        ["model.fp16-00001-of-00002.safetensors", "model.fp16-00002-of-00002.safetensors"],
    ],
)
def test_where_only_variants_are_the_first_of_them_is_used(tmp_path: Path, names: list[str]) -> None:
    files = [save(tmp_path, name=name) for name in names]
    if "-of-" in names[0]:
        index = {"weight_map": {str(number): name for number, name in enumerate(names)}}
        (tmp_path / "model.safetensors.index.fp16.json").write_text(json.dumps(index))
    assert find_weight_files(tmp_path) == (files if "-of-" in names[0] else files[:1])


def test_weights_under_other_names_are_not_called_absent(tmp_path: Path) -> None:
    save(tmp_path, name="model-00001-of-00002.safetensors")
    with pytest.raises(ModelError, match=r"holds model-00001-of-00002.safetensors, but no .*index file"):
        find_weight_files(tmp_path)


def test_an_index_that_is_cut_off_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "mod')
    with pytest.raises(ModelError, match=r"index.json is not a readable index.*download it again"):
        find_weight_files(tmp_path)


def test_a_folder_without_weights_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no safetensors weights.*save_pretrained"):
        find_weight_files(tmp_path)


# in the length of the header, in the header, right after it, in the middle of the values, one byte before the end
@pytest.mark.parametrize("kept", [0, 5, 8, 40, -200, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: int) -> None:
    file = save(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[: kept if kept >= 0 else len(content) + kept])
    with pytest.raises(ModelError, match=r"model\.safetensors is truncated or not a safetensors file"):
        load(tmp_path)


@pytest.mark.parametrize(
    "content", [b"<html>Not found</html>" * 20, bytes(64), b"version https://git-lfs.github.com/spec/v1\n"]
)
def test_something_else_under_that_name_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="truncated or not a safetensors file|lacks 3 of 3 weights"):
        load(tmp_path)


def test_a_header_that_lies_about_sizes_is_refused(tmp_path: Path) -> None:
    header = json.dumps({"scale": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ModelError, match="truncated or not"):
        load(tmp_path)


def test_a_precision_we_cannot_read_is_named(tmp_path: Path) -> None:
    header = json.dumps({"scale": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ModelError, match=r"scale in .* is stored as F4"):
        load(tmp_path)


def test_bytes_are_no_weights(tmp_path: Path) -> None:
    save(tmp_path, VALUES | {"scale": torch.zeros_like(VALUES["scale"], dtype=torch.int8)})
    with pytest.raises(ModelError, match=r"scale in .* is stored as int8"):
        load(tmp_path)


def test_progress_counts_weights_and_may_stop_the_reading(tmp_path: Path) -> None:
    save(tmp_path)
    seen: list[tuple[int, int]] = []
    load(tmp_path, on_tensor=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]

    def stop(done: int, _total: int) -> None:
        if done == 1:
            raise Cancelled

    with pytest.raises(Cancelled):
        load(tmp_path, on_tensor=stop)
