"""`encode`, `denoise`, `decode`: the three stages, each loading only its own part of the model.

Encode once, then loop seeds through the other two; size, steps, guidance, seed and LoRAs may be set in `denoise`. Each
stage merges the LoRAs into its own part of the model, so those that change text encoders belong to `encode` too.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from pipelines import finite
from pipelines.commands import asked, inputs, options
from pipelines.commands.generate import WarmupSteps, check_output
from pipelines.commands.notes import Notes
from pipelines.commands.progress import TerminalProgress
from pipelines.errors import RecipeError
from pipelines.files import stage_files
from pipelines.files.outputs import save_outputs, suffix_of
from pipelines.generate import find_references, uses_cfg
from pipelines.messages import english
from pipelines.models.catalog import Model
from pipelines.prompts.reading import list_notes
from pipelines.recipes.recipe import Recipe, read_recipe

STAGE_DIR = Path("stage_outputs")
FOLDER_HELP = "Folder of the stage files."

OutputDir = Annotated[Path, typer.Option(help=FOLDER_HELP)]
InputDir = Annotated[Path, typer.Option(help=FOLDER_HELP)]

FOLLOWS = {"flow_shift": "shape", "guidance_scale_2": "guidance_scale", "sigmas": "steps"}
"""Settings whose default depends on another setting: a new value of that one resets them, unless they are given too."""


def encode(
    *,
    model: options.ModelId,
    prompt: options.Prompt,
    negative_prompt: options.NegativePrompt = None,
    max_sequence_length: options.MaxSequenceLength = None,
    shape: options.ShapeText = None,
    height: options.Height = None,
    width: options.Width = None,
    frames: options.Frames = None,
    num_inference_steps: options.Steps = None,
    guidance_scale: options.GuidanceScale = None,
    guidance_scale_2: options.GuidanceScale2 = None,
    scheduler: options.Scheduler = None,
    flow_shift: options.FlowShift = None,
    sigmas: options.SigmasText = None,
    step_cache: options.StepCacheText = None,
    fps: options.Fps = None,
    seed: options.Seed = None,
    image: options.Images = None,
    strength: options.Strength = None,
    fit: options.FitText = None,
    lora: options.Loras = None,
    text_encoder_url: options.TextEncoderUrl = None,
    text_encoder_token: options.TextEncoderToken = None,
    remote_encoder: options.RemoteEncoder = False,
    output_dir: OutputDir = STAGE_DIR,
    mesh: options.MeshText = None,
    pack: options.PackPaths = None,
    weights: options.Weights = None,
    verify_weights: options.VerifyWeights = False,
    keep_layouts: options.KeepLayouts = False,
    kernels: options.Kernels = None,  # noqa: ARG001 - its callback has chosen
    allow_cpu: options.AllowCpu = False,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Stage 1: prompt to embeddings. Settings of the next stages may be given already; they are written down for them.

    Example: python -m pipelines encode --model demo-sdxl --prompt "A lighthouse at night" --output_dir out
    """
    place = options.DataDirectory(data_dir=data_dir)
    catalog = place.catalog
    if remote_encoder and text_encoder_url is None:
        raise RecipeError({"remote_encoder": english("needs --remote_url http://host:port too")})
    fields = {
        "model": model,
        "prompt": prompt,
        "negative_prompt": negative_prompt,
        "shape": asked.Size(shape=shape, width=width, height=height, frames=frames).choose(catalog, model),
        "steps": num_inference_steps,
        "guidance_scale": guidance_scale,
        "guidance_scale_2": guidance_scale_2,
        "scheduler": scheduler,
        "flow_shift": flow_shift,
        "sigmas": asked.read_sigmas(sigmas),
        "step_cache": step_cache,
        "fps": fps,
        "seed": 0 if seed is None else seed,
        "images": _name_images(image),
        "strength": strength,
        "fit": fit,
        "loras": asked.read_loras(lora),
    }
    notes = Notes(is_silent=as_json)
    recipe, said = asked.make_recipe_with_notes(catalog, fields)
    notes.add(said)
    from pipelines.families.remote_encoder import RemoteEncoder

    family = _load(
        place,
        recipe,
        asked.choose_weights(asked.limit_text(catalog.get(recipe.model), max_sequence_length), weights),
        "encode",
        remote=RemoteEncoder(text_encoder_url, token=text_encoder_token) if text_encoder_url is not None else None,
        mesh=mesh,
        packs=pack,
        verify_weights=verify_weights,
        keep_layouts=keep_layouts,
        allow_cpu=allow_cpu,
        is_silent=as_json,
    )
    with TerminalProgress(is_silent=as_json) as on_progress:
        said = family.apply_loras(recipe.loras, on_progress=on_progress)
    own = list_notes(family.model, recipe.prompt, recipe.negative_prompt, has_loras=bool(recipe.loras))
    notes.add((*said, *own))
    embeddings = family.encode(recipe)
    file = output_dir / stage_files.EMBEDDINGS_FILE
    stage_files.write_tensors(file, embeddings, model_id=recipe.model)
    stage_files.write_config(output_dir, _to_config(recipe))
    _report(file, notes, as_json=as_json)


def denoise(
    *,
    input_dir: InputDir = STAGE_DIR,
    output_dir: Annotated[Path | None, typer.Option(help=FOLDER_HELP, show_default="the input folder")] = None,
    shape: options.ShapeText = None,
    height: options.Height = None,
    width: options.Width = None,
    frames: options.Frames = None,
    num_inference_steps: options.Steps = None,
    guidance_scale: options.GuidanceScale = None,
    guidance_scale_2: options.GuidanceScale2 = None,
    scheduler: options.Scheduler = None,
    flow_shift: options.FlowShift = None,
    sigmas: options.SigmasText = None,
    step_cache: options.StepCacheText = None,
    fps: options.Fps = None,
    seed: options.Seed = None,
    batch_size: options.BatchSize = 1,
    window_size: options.WindowSize = None,
    use_k_smooth: options.SmoothsKeys = False,
    warmup_steps: WarmupSteps = 0,
    image: options.Images = None,
    strength: options.Strength = None,
    fit: options.FitText = None,
    lora: options.Loras = None,
    mesh: options.MeshText = None,
    pack: options.PackPaths = None,
    weights: options.Weights = None,
    verify_weights: options.VerifyWeights = False,
    keep_layouts: options.KeepLayouts = False,
    kernels: options.Kernels = None,  # noqa: ARG001 - its callback has chosen
    allow_cpu: options.AllowCpu = False,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Stage 2: embeddings to latents.

    Example: python -m pipelines denoise --input_dir out --seed 7 --num_inference_steps 20
    """
    place = options.DataDirectory(data_dir=data_dir)
    catalog = place.catalog
    earlier = from_config(stage_files.read_config(input_dir))
    size = asked.Size(shape=shape, width=width, height=height, frames=frames)
    given = {
        "shape": size.choose(catalog, earlier["model"], earlier=earlier.get("shape")),
        "steps": num_inference_steps,
        "guidance_scale": guidance_scale,
        "guidance_scale_2": guidance_scale_2,
        "scheduler": scheduler,
        "flow_shift": flow_shift,
        "sigmas": asked.read_sigmas(sigmas),
        "step_cache": step_cache,
        "fps": fps,
        "seed": seed,
        "batch_size": batch_size,
        "images": _name_images(image),
        "strength": strength,
        "fit": fit,
        "loras": asked.read_loras(lora),
    }
    notes = Notes(is_silent=as_json)
    recipe, said = asked.make_recipe_with_notes(catalog, choose_fields(earlier, given))
    notes.add(said)
    shipped = catalog.get(recipe.model)
    model = asked.limit_attention(shipped, window_size=window_size, smooths_keys=use_k_smooth)
    model = asked.choose_weights(model, weights)
    asked.tell_changes(shipped, model)
    length = stage_files.measure_text(input_dir / stage_files.EMBEDDINGS_FILE)
    if length is not None and not model.traits.has_fixed_text_length:
        model = replace(model, text_length=length)  # older scripts encoded 226 tokens
    notes.add(inputs.check_pictures(recipe, shipped))
    family = _load(
        place,
        recipe,
        model,
        "denoise",
        mesh=mesh,
        packs=pack,
        verify_weights=verify_weights,
        keep_layouts=keep_layouts,
        allow_cpu=allow_cpu,
        is_silent=as_json,
    )
    embeddings = stage_files.read_tensors(
        input_dir / stage_files.EMBEDDINGS_FILE,
        family.embedding_shapes(family.count_text_chunks(recipe)),
        model_id=recipe.model,
        repo=model.repo,
        stage="encode",
    )
    with TerminalProgress(is_silent=as_json) as on_progress:
        said = family.apply_loras(recipe.loras, on_progress=on_progress)
        if warmup_steps:
            family.denoise(recipe.model_copy(update={"steps": warmup_steps}), embeddings, on_progress=on_progress)
        latents = family.denoise(recipe, embeddings, on_progress=on_progress)
    notes.add(said)
    target = output_dir or input_dir
    file = target / stage_files.LATENTS_FILE
    finite.refuse(finite.find_not_finite(latents, rows=recipe.batch_size), recipe)
    kept = np.asarray(latents)[: recipe.batch_size]
    stage_files.write_tensors(file, {"latents": kept}, model_id=recipe.model)
    stage_files.write_config(target, _to_config(recipe))
    _report(file, notes, as_json=as_json)


def decode(
    *,
    input_dir: InputDir = STAGE_DIR,
    output: Annotated[
        Path | None,
        typer.Option(help="File to write.", show_default="output_image.png or output_video.mp4 in the input folder"),
    ] = None,
    output_dir: Annotated[Path | None, typer.Option(help="Folder of the file, with --output left out.")] = None,
    fps: options.Fps = None,
    mesh: options.MeshText = None,
    pack: options.PackPaths = None,
    verify_weights: options.VerifyWeights = False,
    keep_layouts: options.KeepLayouts = False,
    kernels: options.Kernels = None,  # noqa: ARG001 - its callback has chosen
    allow_cpu: options.AllowCpu = False,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Stage 3: latents to pictures or video.

    Example: python -m pipelines decode --input_dir out --output lighthouse.png
    """
    place = options.DataDirectory(data_dir=data_dir)
    fields = from_config(stage_files.read_config(input_dir))
    loras = fields.pop("loras", [])  # they only affected the latents, and need not be on this machine
    recipe = asked.make_recipe(place.catalog, fields if fps is None else fields | {"fps": fps})
    recipe = recipe.model_copy(update={"loras": read_recipe({"model": "", "prompt": "", "loras": loras}).loras})
    model = place.catalog.get(recipe.model)
    suffix = suffix_of(model)
    check_output(output, suffix)
    family = _load(
        place,
        recipe,
        model,
        "decode",
        mesh=mesh,
        packs=pack,
        verify_weights=verify_weights,
        keep_layouts=keep_layouts,
        allow_cpu=allow_cpu,
        is_silent=as_json,
    )
    latents = stage_files.read_tensors(
        input_dir / stage_files.LATENTS_FILE,
        {"latents": (recipe.batch_size, *family.latents_shape(recipe.parsed_shape))},
        model_id=recipe.model,
        repo=model.repo,
        stage="denoise",
    )["latents"]
    name = "output_video.mp4" if suffix == ".mp4" else "output_image.png"
    file = output or (output_dir or input_dir) / name
    pixels = family.decode(recipe, latents)
    finite.refuse(finite.find_black(pixels, recipe.model_copy(update={"images": ()})), recipe)
    files = save_outputs(pixels, recipe.made_with(family.revision), file)
    for file in files:
        _report(file, Notes(is_silent=as_json), as_json=as_json)


def choose_fields(earlier: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Returns a recipe's fields: the `given` ones that are not None, else those of an `earlier` stage."""
    given = {name: value for name, value in given.items() if value is not None}
    return {name: value for name, value in earlier.items() if FOLLOWS.get(name) not in given} | given


def _load(
    place: options.DataDirectory,
    recipe: Recipe,
    model: Model,
    stage: str,
    *,
    mesh: str | None,
    packs: Sequence[Path] | None,
    verify_weights: bool,
    keep_layouts: bool,
    allow_cpu: bool,
    is_silent: bool,
    remote: Any = None,
) -> Any:
    from pipelines import registry

    with TerminalProgress(is_silent=is_silent) as on_progress:
        family = registry.load(
            model,
            mesh=mesh,
            cache_dir=place.cache_dir,
            on_progress=on_progress,
            stages=(stage,),
            packs=place.list_packs(packs),
            verify_weights=verify_weights,
            keep_layouts=keep_layouts,
            allow_cpu=allow_cpu,
            remote_encoder=remote,
        )
        family.warm(
            recipe.parsed_shape,
            batch_size=recipe.batch_size,
            uses_cfg=uses_cfg(recipe),
            references=find_references(family.model, recipe) if stage == "denoise" else None,  # the only one with files
            text_chunks=family.count_text_chunks(recipe),
            cache_kind=recipe.cache_kind,
            on_progress=on_progress,
        )
    return family


def _to_config(recipe: Recipe) -> dict[str, Any]:
    shape = recipe.parsed_shape
    return {
        "prompt": recipe.prompt,
        "negative_prompt": recipe.negative_prompt,
        "width": shape.width,
        "height": shape.height,
        "num_inference_steps": recipe.steps,
        "guidance_scale": recipe.guidance_scale,
        "scheduler": recipe.scheduler,
        "seed": recipe.seed,
        "batch_size": recipe.batch_size,
        "model_id": recipe.model,
        **({"frames": shape.frames, "fps": recipe.fps, "flow_shift": recipe.flow_shift} if recipe.fps else {}),
        **({} if recipe.guidance_scale_2 is None else {"guidance_scale_2": recipe.guidance_scale_2}),
        **({"images": list(recipe.images)} if recipe.images else {}),
        **({"sigmas": list(recipe.sigmas)} if recipe.sigmas else {}),
        **({} if recipe.step_cache is None else {"step_cache": recipe.step_cache}),
        **({} if recipe.strength is None else {"strength": recipe.strength}),
        **({} if recipe.fit is None else {"fit": recipe.fit}),
        **({"loras": [lora.model_dump(mode="json") for lora in recipe.loras]} if recipe.loras else {}),
    }


def _name_images(images: list[Path] | None) -> list[str] | None:
    """Returns absolute paths for the recipe, since a later stage may run in another folder."""
    return [str(image.resolve()) for image in images] if images else None


def from_config(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the recipe's fields in a file of settings, and says which of the others mean nothing."""
    names = {"num_inference_steps": "steps", "model_id": "model"}
    sizes = ("width", "height", "frames")
    known = {*names, *Recipe.model_fields}
    if unknown := [name for name in config if name not in known and name not in sizes]:
        typer.echo(f"lumesh: {stage_files.CONFIG_FILE}: {', '.join(unknown)} means nothing here.", err=True)
    fields = {names.get(name, name): value for name, value in config.items() if name in known}
    if "width" in config or "height" in config:
        # People edit this file, so its values are checked with the rest of the recipe.
        fields["shape"] = "x".join(str(config.get(name)) for name in sizes if name != "frames" or name in config)
    return fields


def _report(file: Path, notes: Notes, *, as_json: bool) -> None:
    if as_json:
        options.print_json({"output": str(file), "notes": notes.all})
    else:
        typer.echo(file)
