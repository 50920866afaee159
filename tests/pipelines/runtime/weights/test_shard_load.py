"""However a weight is split, its devices get what the file holds, and a CPU's devices use the memory it was read to."""

from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors.torch import save_file

from pipelines.errors import ModelError
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.weights.shard_load import load_weights
from pipelines.runtime.weights.stored import READ_BYTES, read_headers

LARGE = torch.arange(3 * READ_BYTES // 4 + 4096, dtype=torch.float32).reshape(-1, 4096)[: 8 * (READ_BYTES // 2**17)]
SMALL = torch.linspace(-2, 2, 16 * 8).reshape(16, 8)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file({"large": LARGE, "small": SMALL, "half": SMALL.bfloat16()}, file)
    return file


def load(file: Path, name: str, spec: P, *, mesh: str = "dp=2,tp=4", dtype: object = jnp.float32) -> jax.Array:
    stored = read_headers([file])
    shardings = {name: NamedSharding(build_mesh(mesh), spec)}
    return load_weights({name: stored[name]}, shardings, dtype=dtype, on_tensor=lambda _done, _total: None)[name]


@pytest.mark.parametrize("spec", [P(), P("tp"), P(None, "tp"), P("dp", "tp"), P(("dp", "tp"))])
@pytest.mark.parametrize("name", ["large", "small"])
def test_every_device_has_its_slice(file: Path, name: str, spec: P) -> None:
    array = load(file, name, spec)
    expected = {"large": LARGE, "small": SMALL}[name].numpy()
    assert len(array.addressable_shards) == 8
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(shard.data, expected[shard.index])


@pytest.mark.parametrize("spec", [P("tp"), P(None, "tp")])
def test_values_are_narrowed_and_widened_on_the_way(file: Path, spec: P) -> None:
    narrow = SMALL.numpy().astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(load(file, "small", spec, dtype=jnp.bfloat16), narrow)
    np.testing.assert_array_equal(load(file, "half", spec, dtype=jnp.bfloat16), narrow)
    np.testing.assert_array_equal(load(file, "half", spec), narrow.astype(np.float32))


def test_devices_of_a_cpu_share_the_memory_that_was_read_to(file: Path) -> None:
    def list_layer_weights(spec: P) -> set[int]:
        array = load(file, "small", spec)
        return {shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards}

    assert len(list_layer_weights(P())) == 1
    assert len(list_layer_weights(P("tp"))) == 4


def test_a_file_that_becomes_shorter_while_it_is_read_is_told(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"small": SMALL}, file)
    stored = read_headers([file])
    file.write_bytes(file.read_bytes()[:-4])
    sharding = NamedSharding(build_mesh("tp=4"), P("tp"))
    with pytest.raises(ModelError, match="truncated"):
        load_weights(
            stored,
            {"small": sharding},
            dtype=jnp.float32,
            on_tensor=lambda _done, _total: None,
        )
