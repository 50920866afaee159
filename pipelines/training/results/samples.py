"""Pictures of a training under way, by the studio's own programs with the LoRA of that step merged, or all weights.

They are byte for byte what `generate --lora` makes with the file of that step, which is kept beside them: people pick
the best step by its pictures. Where all weights learn, they are what `generate` makes of the folder written then.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines import registry
from pipelines.files.outputs import save_outputs, suffix_of
from pipelines.generate import generate
from pipelines.loras.files import LoraFile, inspect_lora
from pipelines.models.catalog import Catalog, Model, open_model
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.recipes.resolving import resolve
from pipelines.runtime.devices import hosts
from pipelines.stages import OnProgress


def load_beside(model: Model, *, cache_dir: Path, on_progress: OnProgress) -> Any:
    """Loads the model as for pictures, on its best mesh, while the devices also hold what a training needs."""
    architecture: Any = registry.find_architecture(model)
    mesh = registry.build_mesh_for(model, None)
    return architecture.load(model, mesh=mesh, cache_dir=cache_dir, on_progress=on_progress)


class Sampler:
    """Makes a picture of each prompt; the model is loaded for the first one and stays until `close`."""

    def __init__(
        self,
        model: Model,
        prompts: Sequence[str],
        *,
        cache_dir: Path,
        seed: int,
        on_progress: OnProgress,
    ) -> None:
        self._model = model
        self._prompts = prompts
        self._cache_dir = cache_dir
        self._seed = seed
        self._on_progress = on_progress
        self._family: Any = None

    def make(self, lora: Path, folder: Path, *, beside: Sequence[Path] = ()) -> list[Path]:
        """Makes all prompts' pictures with this LoRA file, and those `beside` it; returns the first host's files."""
        if self._family is None:
            self._family = load_beside(self._model, cache_dir=self._cache_dir, on_progress=self._on_progress)
        own = tuple(_name(file, str(file.resolve().with_suffix(""))) for file in (*beside, lora))
        catalog = Catalog(models=(self._model,), own_loras=own)
        return self._draw(self._family, catalog, folder, lora.stem, loras=tuple(Lora(ref=one.ref) for one in own))

    def make_of_model(self, model: Path, folder: Path, name: str) -> list[Path]:
        """Makes all prompts' pictures with the model in a folder, which is loaded anew each time.

        It has the settings with which the studio lists such a folder.
        """
        own = replace(open_model(model), id=self._model.id)
        family = load_beside(own, cache_dir=self._cache_dir, on_progress=self._on_progress)
        try:
            return self._draw(family, Catalog(models=(own,)), folder, name)
        finally:
            family.unload()

    def _draw(
        self, family: Any, catalog: Catalog, folder: Path, name: str, *, loras: tuple[Lora, ...] = ()
    ) -> list[Path]:
        files: list[Path] = []
        for number, prompt in enumerate(self._prompts):
            recipe = resolve(Recipe(model=self._model.id, prompt=prompt, seed=self._seed, loras=loras), catalog)
            outcome = generate(family, recipe, on_progress=self._on_progress)
            output = folder / f"{name}-{number}{suffix_of(self._model)}"
            if hosts.is_leader():
                files += save_outputs(outcome.pixels, recipe.made_with(outcome.revision), output)
        return files

    def close(self) -> None:
        """Frees the devices."""
        if self._family is not None:
            self._family.unload()
            self._family = None


def _name(lora: Path, ref: str) -> LoraFile:
    return replace(inspect_lora(lora, ref=ref), ref=ref)
