"""Pictures that the model makes of its own words before it learns new ones, so that it keeps both.

Trained beside the new subject, they hold what the words meant before (prior preservation: Ruiz et al. 2022). They are
made once, by the studio's own programs, and kept in the training's folder with their prompts.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipelines.files.outputs import save_outputs, suffix_of
from pipelines.generate import generate
from pipelines.models.catalog import Catalog, Model, Shape
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.runtime.devices import hosts
from pipelines.stages import OnProgress
from pipelines.training.engine.loop import OnEvent, Stop
from pipelines.training.place import Place
from pipelines.training.results.samples import load_beside

FOLDER = "prior"


class PriorMaker:
    """Makes the prior pictures of one model that are not in the folder yet."""

    def __init__(self, model: Model, place: Place, *, on_progress: OnProgress) -> None:
        self._model = model
        self._folder = place.output / FOLDER
        self._place = place
        self._on_progress = on_progress

    def make(
        self,
        prompts: tuple[str, ...],
        count: int,
        *,
        shapes: Sequence[Shape],
        seed: int,
        stop: Stop,
        on_event: OnEvent,
    ) -> bool:
        """Makes `count` pictures, of each prompt and in each shape in turn; their seeds follow `seed`.

        Returns whether all are there: False after a stop, on all hosts.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        files = [self._folder / f"{number:04d}{suffix_of(self._model)}" for number in range(count)]
        wanted = [f"{prompts[number % len(prompts)]}\n" for number in range(count)]
        missing = [number for number, file in enumerate(files) if _read_caption(file) != wanted[number]]
        on_all = hosts.collect("prior pictures to make", missing)  # each host may have a folder of its own
        missing = sorted({number for own in on_all for number in own})
        if not missing:
            return True
        on_event({"event": "prior", "done": 0, "total": len(missing)})
        catalog = Catalog(models=(self._model,))
        family = load_beside(self._model, cache_dir=self._place.cache_dir, on_progress=self._on_progress)
        try:
            for done, number in enumerate(missing):
                if any(hosts.collect("stop", stop.is_asked)):
                    stop.ask("another host")
                    return False
                asked = Recipe(
                    model=self._model.id,
                    prompt=prompts[number % len(prompts)],
                    shape=str(shapes[number % len(shapes)]),
                    seed=seed + number,
                )
                recipe = resolve(asked, catalog)
                pixels: np.ndarray = generate(family, recipe, on_progress=self._on_progress).pixels
                if self._place.is_written_here:
                    save_outputs(pixels, recipe, files[number])
                    # Last, since its caption makes a picture count as made.
                    files[number].with_suffix(".txt").write_text(wanted[number], "utf-8")
                on_event({"event": "prior", "done": done + 1, "total": len(missing)})
        finally:
            family.unload()
        hosts.wait("the prior pictures are written")
        return True


def _read_caption(file: Path) -> str | None:
    """Returns the prompt that a picture was made of, None where it is not made yet."""
    try:
        return file.with_suffix(".txt").read_text("utf-8")
    except FileNotFoundError:
        return None
