"""Packs: programs compiled ahead for one kind of machine, in one file that a worker loads instead of compiling.

A pack is a zip with `manifest.json` and one serialized executable a program. It is used only where everything is the
same: jax, jaxlib and libtpu, the chips and their mesh, the flags that the environment gives the compiler, and the
program itself, by the fingerprint of its StableHLO and the compiler's options. What does not match is compiled as ever,
and the log and `Packs.describe` say why. It holds no entries of JAX's compilation cache, because what it holds replaces
them: the loader finds a program here by its fingerprint before that cache is asked.

A pack is code: loading it unpickles and then runs what is in it. So packs come from flags, the environment and the data
directory alone, never from a client; the checksums find damage, not malice.
"""

import functools
import hashlib
import json
import logging
import os
import platform
import zipfile
import zlib
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import jax
from jax.experimental import serialize_executable
from jax.sharding import Mesh
from pydantic import BaseModel, ConfigDict

from pipelines.errors import LumeshError
from pipelines.messages import english
from pipelines.runtime.devices.mesh import describe_mesh
from pipelines.runtime.devices.platform import list_flags
from pipelines.runtime.programs.compiled import Program

SUFFIX = ".pack"
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 10_000_000
CPU_FACTS = Path("/proc/cpuinfo")
# What zipfile raises for archives that are damaged, cut off or encrypted.
UNREADABLE = (OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)

log = logging.getLogger(__name__)


class PackError(LumeshError):
    """Raised for a file that is no pack, or damaged; `detail` completes a sentence that begins with its name."""

    title = english("This pack cannot be used")


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TargetMachine(_Facts):
    """The machine that executables are made for; one that differs in any field is another machine."""

    devices: str
    mesh: str
    jax: str
    jaxlib: str
    libtpu: str
    """Empty for machines without TPUs."""
    layout: str
    """Position of each chip of the mesh; for a CPU its kind and features."""
    flags: str = ""
    """Compiler flags from the environment that matter (platform.py); empty in packs older than this field."""

    def find_difference(self, here: "TargetMachine") -> str:
        """Half a sentence for people about the first difference; empty where there is none."""
        for name, wanted in self:
            found = getattr(here, name)
            if wanted == found:
                continue
            if name == "layout":
                return "made for another processor, or for chips that are arranged in another way"
            if name == "flags":
                return f"made with XLA_FLAGS or LIBTPU_INIT_ARGS of {wanted or 'nothing'}; here is {found or 'nothing'}"
            if name in ("devices", "mesh"):
                return f"made for {wanted}; here is {found}"
            return f"made with {name} {wanted or 'none'}; here is {found or 'none'}"
        return ""


class Entry(_Facts):
    """One packed program. `arguments` is a hash of its arguments' types, `fingerprint` one of Program.describe."""

    name: str
    arguments: str
    fingerprint: str
    file: str
    sha256: str


class Manifest(_Facts):
    """A pack's table of contents; `topology`, `shapes`, `batch_size` and `compile_s` are for people."""

    format: Literal[1]
    model: str
    topology: str
    shapes: tuple[str, ...]
    batch_size: int
    compile_s: float
    target: TargetMachine
    programs: tuple[Entry, ...]


def describe_target(mesh: Mesh, *, device_count: int) -> TargetMachine:
    """Describes a mesh's machine, real or only compiled for; `device_count` includes devices outside the mesh."""
    devices = list(mesh.devices.flat)
    if devices[0].platform == "cpu":
        kind, libtpu, layout = "CPU", "", _describe_processor()
    else:
        kind, libtpu = f"{device_count} x {devices[0].device_kind}", ""
        layout = " ".join(f"{device.id}:{device.process_index}:{getattr(device, 'coords', '')}" for device in devices)
    if devices[0].platform == "tpu":
        libtpu = metadata.version("libtpu")
    return TargetMachine(
        devices=kind,
        mesh=describe_mesh(mesh),
        jax=jax.__version__,
        jaxlib=metadata.version("jaxlib"),
        libtpu=libtpu,
        layout=layout,
        flags=list_flags(devices[0].platform),
    )


def _describe_processor() -> str:
    """XLA compiles for the features of the processor it runs on."""
    lines = CPU_FACTS.read_text("utf-8").splitlines() if CPU_FACTS.exists() else []
    flags = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {_hash(' '.join(sorted(flags.split())))[:16]}"


def name_program(program: Program) -> str:
    """`denoise 256x256 1 True`."""
    return _name(program.key)


def _name(key: tuple[Any, ...]) -> str:
    return " ".join(map(str, key))


def write_pack(
    file: Path,
    programs: Sequence[tuple[Program, Any, Any]],
    *,
    target: TargetMachine,
    **facts: Any,
) -> Manifest:
    """Packs (what it is, lowered, compiled) of each program; `facts` are the manifest's other fields."""
    entries = []
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        # The fastest level: a TPU's executables run to hundreds of megabytes.
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for number, (program, lowered, compiled) in enumerate(programs):
                payload, _, _ = serialize_executable.serialize(compiled)
                entry = Entry(
                    name=name_program(program),
                    arguments=_hash_arguments(program),
                    fingerprint=_hash(program.describe(lowered)),
                    file=f"programs/{number}.bin",
                    sha256=hashlib.sha256(payload).hexdigest(),
                )
                archive.writestr(entry.file, payload)
                entries.append(entry)
            manifest = Manifest(format=1, target=target, programs=tuple(entries), **facts)
            archive.writestr(MANIFEST, manifest.model_dump_json(indent=1))
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def read_manifest(file: Path) -> Manifest:
    """Raises PackError."""
    try:
        with zipfile.ZipFile(file) as archive:
            if archive.getinfo(MANIFEST).file_size > MAX_MANIFEST_BYTES:
                raise PackError(english("is no pack: its manifest is too large"))
            return Manifest(**json.loads(archive.read(MANIFEST)))
    except (*UNREADABLE, ValueError, TypeError) as error:  # pydantic and json raise ValueErrors
        raise PackError(english("is no pack of this version of Lumesh, or damaged")) from error


def _read_payload(file: Path, entry: Entry) -> bytes:
    """A packed program's bytes; raises PackError when they cannot be read or their checksum is wrong."""
    try:
        with zipfile.ZipFile(file) as archive:
            payload = archive.read(entry.file)
    except UNREADABLE as error:
        raise PackError(english(f"is damaged: {entry.name} cannot be read")) from error
    if hashlib.sha256(payload).hexdigest() != entry.sha256:
        raise PackError(english(f"is damaged: the checksum of {entry.name} is wrong"))
    return payload


class Packs:
    """The packs that one loaded model may use.

    `paths` are packs or folders of them. Packs of other models and machines in a folder are
    reported only where no pack fits.
    """

    def __init__(self, paths: Sequence[Path], *, model_id: str, mesh: Mesh) -> None:
        self._devices = list(mesh.devices.flat)
        self._usable: dict[Path, Manifest] = {}
        self._loaded: dict[str, str] = {}
        self._unusable: list[str] = []
        self._missing: dict[str, list[str]] = {}
        target = describe_target(mesh, device_count=jax.device_count())
        found: list[str] = []
        for path in paths:
            if not path.is_dir():
                self._unusable += self._open(path, target, model_id=model_id)
                continue
            for file in sorted(path.glob(f"*{SUFFIX}")):
                found += self._open(file, target, model_id=model_id, is_for_others=True)
        if not self._usable:
            self._unusable += found
        for reason in self._unusable:
            log.warning("%s", reason)

    def find(self, program: Program, lowered: Any) -> Callable[[], Any] | None:
        """A function that loads the program (or gives None if its file is damaged); None when no pack has it."""
        if not self._usable:
            return None
        fingerprint = _hash(program.describe(lowered))
        for file, manifest in self._usable.items():
            for entry in manifest.programs:
                if entry.fingerprint == fingerprint:
                    return functools.partial(self._load, name_program(program), lowered, file=file, entry=entry)
        for file, manifest in self._usable.items():
            self._miss(name_program(program), f"{file.name} {_explain_missing(program, manifest)}")
        return None

    def has(self, *keys: tuple[Any, ...]) -> bool:
        """Whether one pack holds programs of these names; only tracing them would tell whether they are the same."""
        names = {_name(key) for key in keys}
        if names & self._missing.keys():
            return False
        return any(names <= {entry.name for entry in manifest.programs} for manifest in self._usable.values())

    def has_loaded(self, programs: Sequence[Program]) -> bool:
        """Whether any of these programs came from a pack."""
        return any(name_program(program) in self._loaded for program in programs)

    def describe(self, programs: Sequence[Program]) -> str:
        """Text for people: which packs these programs came from so far, and why others are not used."""
        names = [name_program(program) for program in programs]
        used = sorted({self._loaded[name] for name in names if name in self._loaded})
        missing = [reason for name in names for reason in self._missing.get(name, ())]
        return "; ".join([*([f"from {', '.join(used)}"] if used else []), *self._unusable, *dict.fromkeys(missing)])

    def _open(self, file: Path, target: TargetMachine, *, model_id: str, is_for_others: bool = False) -> list[str]:
        """Opens a pack; returns why it is not used: nothing if it is, or if a folder for all has it for others."""
        try:
            manifest = read_manifest(file)
        except PackError as error:
            return [f"{file.name} {error.detail}"]
        if manifest.model != model_id:
            return [] if is_for_others else [f"{file.name} is not used: made for {manifest.model}, not for {model_id}"]
        if difference := manifest.target.find_difference(target):
            return [f"{file.name} is not used: {difference}"]
        self._usable[file] = manifest
        return []

    def _load(self, name: str, lowered: Any, *, file: Path, entry: Entry) -> Any | None:
        try:
            loaded = serialize_executable.deserialize_and_load(
                _read_payload(file, entry), lowered.in_tree, lowered.out_tree, execution_devices=self._devices
            )
        except PackError as error:
            self._miss(name, f"{file.name} {error.detail}")
            return None
        except (jax.errors.JaxRuntimeError, ValueError, KeyError) as error:
            self._miss(name, f"{file.name} does not load {name}: {' '.join(str(error).split())[:200]}")
            return None
        self._loaded[name] = file.name
        return loaded

    def _miss(self, name: str, reason: str) -> None:
        if all(reason not in reasons for reasons in list(self._missing.values())):  # others may be loading too
            log.warning("%s", reason)
        self._missing.setdefault(name, []).append(reason)


def _explain_missing(program: Program, manifest: Manifest) -> str:
    name = name_program(program)
    named = next((entry for entry in manifest.programs if entry.name == name), None)
    if named is None:
        size = str(program.key[1]) if len(program.key) > 1 else name
        return f"holds {', '.join(manifest.shapes)}, not {name if size in manifest.shapes else size}"
    takes_others = named.arguments != _hash_arguments(program)
    if program.learns:
        what = "takes other arrays" if takes_others else "is another program"
        return english(
            f"is of other settings (rank, targets, batch, optimizer, loss, seed), or of another version of the source: "
            f"its {name} {what}"
        )
    if takes_others:
        return english(f"is of another config of {manifest.model}: its {name} takes other arrays")
    return english(f"is of another version of the source: its {name} is another program")


def _hash_arguments(program: Program) -> str:
    """Hash of the names, shapes, dtypes and shardings of a program's arguments."""
    found = [
        (jax.tree_util.keystr(path), one.shape, str(one.dtype), str(getattr(one.sharding, "spec", "")))
        for path, one in jax.tree_util.tree_leaves_with_path(program.arguments)
    ]
    return _hash(repr(found))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
