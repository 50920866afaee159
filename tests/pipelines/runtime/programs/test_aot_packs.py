"""Packs: what was compiled elsewhere is loaded where all is the same; else people read why, and it is compiled."""

import base64
import json
import pickle
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.flash import flash_attention
from pipelines.runtime.programs.aot_packs import MANIFEST, PackError, Packs, describe_target, read_manifest, write_pack
from pipelines.runtime.programs.compiled import Program, Programs, counter, lower, without_persistent_cache
from tests.places import ROOT

MODEL = "model"


def make_program(mesh: Mesh, *, factor: float = 2.01, size: int = 16, name: str = "twice") -> Program:
    argument = jax.ShapeDtypeStruct((size,), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("sp")))
    return Program(key=(name, f"{size}x1", True), function=lambda x: factor * x, arguments=(argument,))


def pack(file: Path, *programs: Program, mesh: Mesh) -> Path:
    """Compiles programs and packs them as a model of 16x1, as `compile` does without JAX's cache."""
    with without_persistent_cache():
        made = [(program, lowered, lowered.compile()) for program in programs for lowered in [lower(program)]]
    write_pack(
        file,
        made,
        target=describe_target(mesh, device_count=8),
        model=MODEL,
        topology="cpu-8",
        shapes=("16x1",),
        batch_size=1,
        compile_s=1.0,
    )
    return file


def open_packs(*paths: Path, mesh: Mesh, model_id: str = MODEL) -> Packs:
    return Packs(paths, model_id=model_id, mesh=mesh)


def rewrite(file: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """Changes a pack's manifest and programs and writes it anew, as a valid zip."""
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(content.pop(MANIFEST))
    change(manifest, content)
    with zipfile.ZipFile(file, "w") as archive:
        for name, payload in (content | {MANIFEST: json.dumps(manifest).encode()}).items():
            archive.writestr(name, payload)


@pytest.fixture
def mesh() -> Mesh:
    return build_mesh("sp=4")


@pytest.fixture
def file(tmp_path: Path, mesh: Mesh) -> Path:
    return pack(tmp_path / "some.pack", make_program(mesh), mesh=mesh)


def test_a_packed_program_is_loaded_and_nothing_is_compiled(file: Path, mesh: Mesh) -> None:
    program, packs = make_program(mesh), open_packs(file, mesh=mesh)
    programs, built = Programs(packs.find), counter.built
    assert programs.compile_all([program]) == 1
    argument = jax.device_put(np.arange(16, dtype=np.float32), program.arguments[0].sharding)
    found = programs.get(*program.key)(argument)
    assert counter.built == built
    np.testing.assert_allclose(found, 2.01 * np.arange(16), rtol=1e-6)
    assert packs.has_loaded([program])
    assert packs.describe([program]) == "from some.pack"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("jax", "0.10.1", "made with jax 0.10.1; here is "),
        ("jaxlib", "0.10.1", "made with jaxlib 0.10.1; here is "),
        ("libtpu", "0.0.40", "made with libtpu 0.0.40; here is none"),
        ("devices", "8 x TPU v6 lite", "made for 8 x TPU v6 lite; here is CPU"),
        ("mesh", "dp=2,sp=4", "made for dp=2,sp=4; here is sp=4"),
        ("layout", "elsewhere", "made for another processor"),
        ("flags", "--xla_a=1", "made with XLA_FLAGS or LIBTPU_INIT_ARGS of --xla_a=1; here is --xla_backend_"),
    ],
)
def test_a_pack_of_another_machine_is_refused_with_the_difference(
    file: Path, mesh: Mesh, field: str, value: str, words: str
) -> None:
    rewrite(file, lambda manifest, _programs: manifest["target"].update({field: value}))
    packs, program = open_packs(file, mesh=mesh), make_program(mesh)
    assert packs.find(program, lower(program)) is None
    assert packs.describe([program]).startswith(f"some.pack is not used: {words}")
    assert not packs.has(program.key)


def test_a_pack_from_before_flags_were_noted_was_made_without(file: Path, mesh: Mesh) -> None:
    rewrite(file, lambda manifest, _programs: manifest["target"].pop("flags"))
    assert read_manifest(file).target.flags == ""
    here = "made with XLA_FLAGS or LIBTPU_INIT_ARGS of nothing; here is --xla_backend_"
    assert open_packs(file, mesh=mesh).describe([]).startswith(f"some.pack is not used: {here}")


def test_another_mesh_of_the_same_machine_is_refused(file: Path) -> None:
    packs = open_packs(file, mesh=build_mesh("dp=2,sp=4"))
    assert packs.describe([]) == "some.pack is not used: made for sp=4; here is dp=2,sp=4"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"size": 32}, "some.pack holds 16x1, not 32x1"),
        ({"name": "thrice", "factor": 3.01}, "some.pack holds 16x1, not thrice 16x1 True"),
        ({"factor": 3.0}, "some.pack is of another version of the source: its twice 16x1 True is another program"),
    ],
)
def test_another_program_is_compiled_and_people_read_why(
    file: Path, mesh: Mesh, change: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    packs, program = open_packs(file, mesh=mesh), make_program(mesh, **change)
    programs, built = Programs(packs.find), counter.built
    programs.compile_all([program])
    assert counter.built == built + 1
    assert packs.describe([program]) == reason
    assert caplog.messages == [reason]
    assert not packs.has(program.key)


def test_another_config_is_told_from_another_source(file: Path, mesh: Mesh) -> None:
    replicated = jax.ShapeDtypeStruct((16,), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec()))
    program = Program(key=make_program(mesh).key, function=lambda x: 2.01 * x, arguments=(replicated,))
    packs = open_packs(file, mesh=mesh)
    assert packs.find(program, lower(program)) is None
    reason = "some.pack is of another config of model: its twice 16x1 True takes other arrays"
    assert packs.describe([program]) == reason


@pytest.mark.parametrize(("size", "what"), [(16, "is another program"), (32, "takes other arrays")])
def test_a_step_of_other_settings_is_told_as_that(file: Path, mesh: Mesh, size: int, what: str) -> None:
    other = make_program(mesh, size=size, factor=3.02)
    program = replace(other, key=make_program(mesh).key, learns=True)
    packs = open_packs(file, mesh=mesh)
    assert packs.find(program, lower(program)) is None
    said = packs.describe([program])
    assert said.startswith("some.pack is of other settings (rank, targets, batch, optimizer, loss, seed)")
    assert said.endswith(f"its twice 16x1 True {what}")


def damage_program(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        offset = archive.getinfo("programs/0.bin").header_offset
    content = bytearray(file.read_bytes())
    content[offset + 500] ^= 0xFF
    file.write_bytes(content)


def swap_program(file: Path) -> None:
    rewrite(file, lambda _manifest, programs: programs.update({"programs/0.bin": b"something else"}))


@pytest.mark.parametrize("damage", [damage_program, swap_program])
def test_a_damaged_program_is_compiled_instead(file: Path, mesh: Mesh, damage: Callable[[Path], None]) -> None:
    damage(file)
    packs, program = open_packs(file, mesh=mesh), make_program(mesh)
    programs, built = Programs(packs.find), counter.built
    programs.compile_all([program])
    assert counter.built == built + 1
    assert packs.describe([program]).startswith("some.pack is damaged: ")
    assert not packs.has_loaded([program])


def test_what_fails_its_checksum_is_never_unpickled(file: Path, mesh: Mesh, tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "touched",)

    rewrite(file, lambda _manifest, programs: programs.update({"programs/0.bin": pickle.dumps(Harmful())}))
    packs, program = open_packs(file, mesh=mesh), make_program(mesh)
    load = packs.find(program, lower(program))
    assert load is not None
    assert load() is None
    assert not (tmp_path / "touched").exists()


def test_a_damaged_manifest_is_a_reason_and_no_crash(file: Path, mesh: Mesh) -> None:
    """Whatever zipfile makes of it: broken deflate, wrong checksum, another method, an encryption flag."""
    with zipfile.ZipFile(file) as archive:
        info = archive.getinfo("manifest.json")
    whole, refused = file.read_bytes(), 0
    for offset in range(info.header_offset, len(whole)):
        content = bytearray(whole)
        content[offset] ^= 0xFF
        file.write_bytes(content)
        try:
            assert read_manifest(file).model == "model"  # some bytes mean nothing
        except PackError:
            refused += 1
            damaged = bytes(content)
    assert refused > info.compress_size / 2
    file.write_bytes(damaged)
    assert open_packs(file, mesh=mesh).describe([]) == "some.pack is no pack of this version of Lumesh, or damaged"


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04torn"])
def test_a_file_that_is_no_pack_is_refused(tmp_path: Path, mesh: Mesh, content: bytes) -> None:
    (tmp_path / "odd.pack").write_bytes(content)
    with pytest.raises(PackError):
        read_manifest(tmp_path / "odd.pack")
    assert open_packs(tmp_path, mesh=mesh).describe([]) == "odd.pack is no pack of this version of Lumesh, or damaged"


@pytest.mark.parametrize("change", [{"format": 2}, {"programs": "none"}, {"surprise": 1}])
def test_a_manifest_of_another_form_is_refused(file: Path, change: dict[str, Any]) -> None:
    rewrite(file, lambda manifest, _programs: manifest.update(change))
    with pytest.raises(PackError):
        read_manifest(file)


def test_of_other_models_only_a_named_pack_is_told_about(file: Path, mesh: Mesh) -> None:
    assert open_packs(file.parent, mesh=mesh, model_id="other").describe([]) == ""
    told = open_packs(file, mesh=mesh, model_id="other").describe([])
    assert told == "some.pack is not used: made for model, not for other"


def test_in_a_folder_the_pack_that_fits_is_enough(file: Path, mesh: Mesh, tmp_path: Path) -> None:
    pack(tmp_path / "a.pack", make_program(mesh), mesh=mesh)
    rewrite(tmp_path / "a.pack", lambda manifest, _programs: manifest["target"].update(jax="0.1"))
    packs, program = open_packs(tmp_path, mesh=mesh), make_program(mesh)
    Programs(packs.find).compile_all([program])
    assert packs.describe([program]) == "from some.pack"


def test_a_pack_is_whole_or_not_there(file: Path) -> None:
    assert [one.name for one in file.parent.iterdir()] == ["some.pack"]


def test_kernels_are_the_same_program_when_lumesh_moves_or_its_lines_do(v6e_8: list[Any]) -> None:
    """Left alone they carry files and lines of their source, in bytecode."""
    sharding = NamedSharding(build_mesh("dp=1", devices=v6e_8), PartitionSpec())
    query = jax.ShapeDtypeStruct((1, 1024, 2 * 128), jnp.bfloat16, sharding=sharding)
    text = lower(
        Program(key=("attend",), function=lambda q: flash_attention(q, q, q, heads=2, scale=0.1), arguments=(query,))
    ).as_text()
    kernels = [base64.b64decode(body) for body in re.findall(r"body\\22: \\22([\w+/=]+)", text)]
    assert kernels
    for kernel in kernels:
        assert b".py" not in kernel
        assert str(ROOT).encode() not in kernel
