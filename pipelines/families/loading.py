"""Loads, or only describes, a checkpoint in diffusers layout: the steps common to all families.

A family's `architecture.py` declares what differs: its components, how prompts are tokenized, and the `build_parts` of
its load.py, which builds modules without weights and requests each component's weights with their sharding.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from jax.sharding import Mesh
from transformers import AutoTokenizer

from pipelines.families.base import LoadedModel
from pipelines.families.parts import CheckpointParts
from pipelines.families.protocol import FamilyPrograms
from pipelines.families.traits import Traits
from pipelines.models.catalog import Model, Shape
from pipelines.models.fingerprints import find_configs
from pipelines.models.model import FULL, W8A8
from pipelines.runtime.devices import mesh as meshes
from pipelines.runtime.devices.offload import Offloader
from pipelines.runtime.weights import hub
from pipelines.runtime.weights.components import (
    ComponentLoader,
    PlaceWeights,
    describe_component,
    find_checkpoint,
    read_json,
    rounding,
    told_as_incomplete,
)
from pipelines.runtime.weights.lora_spelling import Spell
from pipelines.runtime.weights.single_file import Convert, StoredComponent, read_files
from pipelines.stages import STAGES, OnProgress


class BuildParts(Protocol):
    """Builds modules from the folder's configs, and gets the weights of the components that `stages` need by `place`.

    `learnt_previews` is where a learnt preview map is stored; with `dtype` None the devices decide. Raises ModelError
    and MeshError.
    """

    def __call__(
        self,
        folder: Path,
        model: Model,
        /,
        *,
        mesh: Mesh,
        stages: Sequence[str],
        tokenizers: tuple[Any, ...],
        text_length: int,
        learnt_previews: Path,
        place: PlaceWeights,
        dtype: Any = None,
    ) -> CheckpointParts: ...


def read_tokenizer(folder: Path) -> tuple[Any, ...]:
    """Reads the only tokenizer of a checkpoint, as its config describes it."""
    return (AutoTokenizer.from_pretrained(folder / "tokenizer"),)


def run_all_steps(denoiser: str) -> Callable[[Model, Any, Shape], dict[str, int]]:
    """Returns the `share_steps` of a family with one denoiser."""
    return lambda model, _parts, _shape: {denoiser: model.steps}


@dataclass(frozen=True, kw_only=True)
class CheckpointArchitecture:
    """An `Architecture` (protocol.py) whose checkpoints are folders in diffusers layout.

    Every checkpoint has `components`, some also have `further_components`; `stages_of` says which stages need a
    component's weights. LoRAs are merged into the `adaptable` components; `spell` knows how trainers name their layers;
    `int8` are the components that a model with `weights` of int8 has rounded, but for layers that match the pattern.
    `converters` know how single-file checkpoints hold a component. `limit_text(model, tokenizer's own limit)` is how
    many tokens a prompt gets, as in diffusers.
    """

    traits: Traits
    components: tuple[str, ...]
    further_components: tuple[str, ...] = ()
    stages_of: Mapping[str, Sequence[str]]
    adaptable: tuple[str, ...]
    int8: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    programs: FamilyPrograms
    loaded_class: Callable[..., LoadedModel]
    build_parts: BuildParts
    spell: Spell
    converters: Mapping[str, Convert] = field(default_factory=dict[str, Convert])
    read_tokenizers: Callable[[Path], tuple[Any, ...]] = read_tokenizer
    limit_text: Callable[[Model, int], int] = lambda _model, length: length
    choose_sizes: Callable[[Model, int], dict[str, int]] = lambda _model, count: meshes.choose_sizes(count)
    share_steps: Callable[[Model, Any, Shape], Mapping[str, int]] = run_all_steps("transformer")

    def find(
        self, model: Model, *, on_progress: OnProgress, stages: Sequence[str] = STAGES, verify_weights: bool = False
    ) -> Path:
        """See `Architecture`."""
        return find_checkpoint(
            model,
            components=(*self.components, *self.further_components),
            stages_of=self.stages_of,
            stages=stages,
            is_verified=verify_weights,
            on_progress=on_progress,
            in_files=self.read_files(model),
        )

    def read_files(self, model: Model) -> dict[str, StoredComponent]:
        """Returns the components whose weights are in files of their own; raises ModelError for a damaged one."""
        if not model.own_files:
            return {}
        folder = find_configs(model)
        return read_files(model, self.converters, lambda name: read_json(folder / name / "config.json"))

    def load(
        self,
        model: Model,
        *,
        mesh: Mesh,
        cache_dir: Path,
        on_progress: OnProgress,
        stages: Sequence[str] = STAGES,
        verify_weights: bool = False,
        layouts: Path | None = None,
        dtype: Any = None,
        offloader: Offloader | None = None,
    ) -> LoadedModel:
        """See `Architecture`; `dtype` and `offloader` replace those that suit the devices."""
        started = time.perf_counter()
        folder = self.find(model, on_progress=on_progress, stages=stages, verify_weights=verify_weights)
        with told_as_incomplete(folder, title=self.traits.title, components=self.components):
            tokenizers = self.read_tokenizers(folder)
        loader = ComponentLoader(
            variant=model.variant,
            offloader=offloader or Offloader.of_mesh(mesh),
            on_progress=on_progress,
            layouts=layouts,
            in_files=self.read_files(model),
        )
        parts = self.build_parts(
            folder,
            model,
            mesh=mesh,
            stages=stages,
            tokenizers=tokenizers,
            text_length=self.limit_text(model, tokenizers[0].model_max_length),
            learnt_previews=cache_dir.parent / "previews" / model.id,
            place=self._round(loader, model),
            dtype=dtype,
        )
        loaded = self.loaded_class(model, parts, cache_dir=cache_dir, load_s=time.perf_counter() - started)
        adaptable = {name: parts.modules[name] for name in self.adaptable if name in parts.modules}
        loaded.use_loader(loader, modules=adaptable, spell=self.spell)
        rounded = "" if model.weights == FULL else f"+{model.weights}"
        loaded.revision = hub.find_revision(folder, model.own_files) + rounded
        return loaded

    def describe(self, model: Model, mesh: Mesh) -> CheckpointParts:
        """See `Architecture`."""
        folder = find_configs(model)
        tokenizer_config = read_json(folder / "tokenizer" / "tokenizer_config.json")
        return self.build_parts(
            folder,
            model,
            mesh=mesh,
            stages=STAGES,
            tokenizers=(),
            text_length=self.limit_text(model, int(tokenizer_config["model_max_length"])),
            learnt_previews=folder,
            place=self._round(describe_component, model),
        )

    def _round(self, place: PlaceWeights, model: Model) -> PlaceWeights:
        return place if model.weights == FULL else rounding(place, self.int8, rounds_inputs=model.weights == W8A8)
