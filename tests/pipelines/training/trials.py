"""What trying a training by hand has in common, whatever is learnt: prompts to keep, a LoRA's pictures, their judging.

Each subject is a module beside this one, with `make`, `write_prompts` and `judge_lora`, and these three as commands.
"""

import argparse
import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

Draw = Callable[..., np.ndarray]
"""draw(prompt, seed, has_lora=False) -> uint8 pixels of one output."""


def write_captions(file: Path, draw: Callable[[np.random.Generator], str], count: int) -> Path:
    """Writes so many different captions, one a line, as `draw` makes them."""
    rng = np.random.default_rng(7)
    prompts: dict[str, None] = {}
    while len(prompts) < count:
        prompts[draw(rng)] = None
    file.write_text("\n".join(prompts) + "\n", "utf-8")
    return file


@contextlib.contextmanager
def loaded(model_id: str, file: Path) -> Iterator[Draw]:
    """Gives what draws outputs of a model, with the LoRA of this file and without."""
    from pipelines import registry
    from pipelines.generate import generate
    from pipelines.loras.files import inspect_lora
    from pipelines.models.catalog import Catalog, load_catalog
    from pipelines.recipes.recipe import Lora, Recipe
    from pipelines.recipes.resolving import resolve
    from pipelines.stages import ignore_progress

    ref = str(file.resolve().with_suffix(""))
    model = load_catalog().get(model_id)
    catalog = Catalog(models=(model,), own_loras=(replace(inspect_lora(file, ref=ref), ref=ref),))
    with tempfile.TemporaryDirectory() as cache:
        family = registry.load(model, mesh="dp=1", cache_dir=Path(cache), on_progress=ignore_progress, allow_cpu=True)

        def draw(prompt: str, seed: int, *, has_lora: bool = False) -> np.ndarray:
            loras = (Lora(ref=ref),) if has_lora else ()
            recipe = resolve(Recipe(model=model.id, prompt=prompt, seed=seed, loras=loras), catalog)
            return generate(family, recipe).pixels[0]

        yield draw


def judge_held_out(
    draw: Draw,
    asked: Sequence[tuple[str, Any]],
    score: Callable[[list[np.ndarray], list[Any]], Iterator[Mapping[Any, bool]]],
) -> dict[str, float]:
    """Returns how many attributes of held-out prompts the committed judge finds right, in %, without and with it."""
    found: dict[str, float] = {}
    for name, has_lora in (("judge_before", False), ("judge_with_lora", True)):
        counts: Counter[bool] = Counter()
        drawn = [draw(prompt, index, has_lora=has_lora) for index, (prompt, _) in enumerate(asked)]
        for scores in score(drawn, [wanted for _, wanted in asked]) if drawn else ():
            counts.update(scores.values())
        found[name] = round(100 * counts[True] / max(counts.total(), 1), 1)
    return found


def run(
    description: str,
    *,
    make: Callable[[Path], Path],
    write_prompts: Callable[[Path, int], Path],
    judge_lora: Callable[..., dict[str, Any]],
    prompts: int,
    held_out: int,
    model: str | None = None,
) -> None:
    """Runs `make FOLDER`, `prompts FILE` or `judge [MODEL] LORA`; without a `model` it is named there."""
    parser = argparse.ArgumentParser(description=description)
    verbs = parser.add_subparsers(dest="verb", required=True)
    maker = verbs.add_parser("make")
    maker.add_argument("folder", type=Path)
    asking = verbs.add_parser("prompts")
    asking.add_argument("file", type=Path)
    asking.add_argument("--count", type=int, default=prompts)
    judging = verbs.add_parser("judge")
    if model is None:
        judging.add_argument("model")
    judging.add_argument("lora", type=Path)
    judging.add_argument("--sheet", type=Path, default=None, help="where to write what is judged")
    judging.add_argument("--held-out", type=int, default=held_out, help="prompts for the committed judge; 0 for none")
    options = parser.parse_args()
    if options.verb == "make":
        make(options.folder)
    elif options.verb == "prompts":
        write_prompts(options.file, options.count)
    else:
        named = model or options.model
        print(judge_lora(named, options.lora, sheet=options.sheet, held_out=options.held_out))  # noqa: T201
