"""`calibrate`: finds what a step cache needs to know of a model, in one run, and keeps it in the data directory."""

from typing import Annotated, Any

import typer

from pipelines.commands import asked, options
from pipelines.commands.progress import TerminalProgress
from pipelines.errors import RecipeError
from pipelines.messages import english
from pipelines.recipes import step_cache
from pipelines.recipes.cache_kinds import MAGCACHE
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.step_cache import StepCache, Strength

PROMPT = "A red sailboat on the ocean at sunset, mountains behind it"


def calibrate(
    *,
    model: Annotated[str, typer.Argument(help="A model of the catalogue; `models` lists them.")],
    prompt: options.Prompt = PROMPT,
    shape: options.ShapeText = None,
    num_inference_steps: options.Steps = None,
    guidance_scale: options.GuidanceScale = None,
    seed: options.Seed = 0,
    image: options.Images = None,
    mild: Annotated[str, typer.Option(help="What --step_cache mild will mean.")] = "0.12,2,0.2",
    strong: Annotated[str, typer.Option(help="What --step_cache strong will mean.")] = "0.24,6,0.2",
    mesh: options.MeshText = None,
    allow_cpu: options.AllowCpu = False,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Runs a model once, step by step, and keeps by how much its steps differ: then recipes may have a step cache.

    The ratios hardly depend on the prompt, and serve every number of steps. Without --num_inference_steps the model's
    own number is taken.

    Example: python -m pipelines calibrate demo-wan
    """
    place = options.DataDirectory(data_dir=data_dir)
    strengths = _read_strengths(mild, strong)
    recipe = asked.make_recipe(
        place.catalog,
        {
            "model": model,
            "prompt": prompt,
            "shape": shape,
            "steps": num_inference_steps,
            "guidance_scale": guidance_scale,
            "seed": seed,
            "images": [str(file.resolve()) for file in image or ()] or None,
        },
    )
    chosen = place.catalog.get(recipe.model)
    if MAGCACHE not in chosen.traits.cache_kinds:
        raise RecipeError({"model": english(f"{chosen.id} is no transformer, so it can have no step cache")})
    from pipelines import registry

    with TerminalProgress(is_silent=as_json) as on_progress:
        family: Any = registry.load(
            chosen, mesh=mesh, cache_dir=place.cache_dir, on_progress=on_progress, allow_cpu=allow_cpu
        )
        ratios = family.find_ratios(recipe, on_progress=on_progress)
    boundary = chosen.step_cache.boundary if chosen.step_cache else None
    if len(ratios) > 1 and boundary is None:
        boundary = family.parts.boundary_timestep / 1000
    found = StepCache(
        ratios=ratios,
        boundary=boundary,
        source=_describe(recipe, family.revision),
        mild=strengths[0],
        strong=strengths[1],
    )
    file = place.data_dir / step_cache.OWN_FILE
    step_cache.keep(file, chosen.id, found)
    _report(recipe, found, str(file), as_json=as_json)


def _read_strengths(*texts: str) -> tuple[Strength, Strength]:
    found: list[Strength] = []
    for name, text in zip(("mild", "strong"), texts, strict=True):
        try:
            found.append(Strength.parse(text))
        except ValueError as error:
            raise RecipeError({name: english(str(error))}) from error
    return found[0], found[1]


def _describe(recipe: Recipe, revision: str) -> str:
    parts = (f"calibrated at {recipe.shape}", f"{recipe.steps} steps", f"weights {revision}")
    return ", ".join(parts)


def _report(recipe: Recipe, found: StepCache, file: str, *, as_json: bool) -> None:
    reused = {
        name: len(found.list_reused(strength, steps=recipe.denoising_steps, flow_shift=recipe.flow_shift))
        for name, strength in (("mild", found.mild), ("strong", found.strong))
    }
    if as_json:
        options.print_json({"model": recipe.model, "file": file, "ratios": found.ratios, "reused": reused})
        return
    typer.echo(file)
    for name, count in reused.items():
        typer.echo(f"{name}: {count} of {recipe.denoising_steps} steps are reused", err=True)
