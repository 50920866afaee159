"""`generate`: prompt to files in one go."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands import asked, inputs, options
from pipelines.commands.notes import Notes
from pipelines.commands.progress import TerminalProgress
from pipelines.errors import RecipeError
from pipelines.files.outputs import save_outputs, suffix_of
from pipelines.generate import find_references, generate, uses_cfg
from pipelines.loras.files import get_lora
from pipelines.loras.settings import find_adapter_config
from pipelines.messages import english
from pipelines.models.catalog import Model
from pipelines.prompts.reading import list_notes
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices import hosts, pods
from pipelines.runtime.kernels.switches import list_off
from pipelines.stages import Family, OnProgress, Outcome

WarmupSteps = Annotated[int, typer.Option(min=0, max=100, help="Steps to run once before the timed picture.")]
Output = Annotated[
    Path | None,
    typer.Option(
        help="File to write; a batch adds -0, -1, ... before the suffix.", show_default="{timestamp}.png or .mp4"
    ),
]


def make(
    *,
    model: options.ModelId,
    prompt: options.Prompt,
    negative_prompt: options.NegativePrompt = None,
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
    max_sequence_length: options.MaxSequenceLength = None,
    window_size: options.WindowSize = None,
    use_k_smooth: options.SmoothsKeys = False,
    warmup_steps: WarmupSteps = 0,
    image: options.Images = None,
    strength: options.Strength = None,
    fit: options.FitText = None,
    lora: options.Loras = None,
    mesh: options.MeshText = None,
    pack: options.PackPaths = None,
    text_encoder_url: options.TextEncoderUrl = None,
    text_encoder_token: options.TextEncoderToken = None,
    remote_encoder: options.RemoteEncoder = False,
    profile: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder for a trace of the making, compiling left out.")
    ] = None,
    weights: options.Weights = None,
    verify_weights: options.VerifyWeights = False,
    keep_layouts: options.KeepLayouts = False,
    kernels: options.Kernels = None,  # noqa: ARG001 - its callback has chosen
    allow_cpu: options.AllowCpu = False,
    output: Output = None,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
    coordinator: options.Coordinator = None,
    processes: options.Processes = None,
    process: options.Process = None,
) -> None:
    """Makes pictures or video from a prompt.

    Example: python -m pipelines generate --model demo-sdxl --prompt "A red sailboat on the ocean at sunset" --seed 42
    """
    place = options.DataDirectory(data_dir=data_dir)
    if remote_encoder and text_encoder_url is None:
        raise RecipeError({"remote_encoder": english("needs --remote_url http://host:port too")})
    catalog = place.catalog
    notes = Notes(is_silent=as_json)
    recipe, said = asked.make_recipe_with_notes(
        catalog,
        {
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
            "seed": seed,
            "batch_size": batch_size,
            "images": [str(file) for file in image or ()] or None,
            "strength": strength,
            "fit": fit,
            "loras": asked.read_loras(lora),
        },
    )
    notes.add(said)
    shipped = catalog.get(recipe.model)
    chosen = asked.limit_text(shipped, max_sequence_length)
    chosen = asked.limit_attention(chosen, window_size=window_size, smooths_keys=use_k_smooth)
    chosen = asked.choose_weights(chosen, weights)
    asked.tell_changes(shipped, chosen)
    suffix = suffix_of(chosen)
    check_output(output, suffix)
    if profile is not None:
        options.make_folder("profile", profile)
    from pipelines import registry
    from pipelines.families.remote_encoder import RemoteEncoder

    notes.add(inputs.check_pictures(recipe, shipped))
    remote = RemoteEncoder(text_encoder_url, token=text_encoder_token) if text_encoder_url is not None else None
    address = pods.find_address(coordinator, processes, process)
    with hosts.together(address, on_loss=lambda: "run the same command again on every host."):
        recipe = _share_recipe(recipe, chosen)
        with TerminalProgress(is_silent=as_json or not hosts.is_leader()) as on_progress:
            family = registry.load(
                chosen,
                mesh=mesh,
                cache_dir=place.cache_dir,
                on_progress=on_progress,
                remote_encoder=remote,
                packs=place.list_packs(pack),
                verify_weights=verify_weights,
                keep_layouts=keep_layouts,
                allow_cpu=allow_cpu,
            )
            if hosts.count() > 1:  # other kernels are other programs, which would wait for each other
                hosts.compare({"kernels that are off": ", ".join(list_off()) or "none"})
            # The tokenizer is here by now.
            notes.add(list_notes(family.model, recipe.prompt, recipe.negative_prompt, has_loras=bool(recipe.loras)))
            if warmup_steps:
                warmup = recipe.model_copy(update={"steps": warmup_steps})
                generate(family, warmup, on_progress=on_progress)
            if profile is None:
                outcome = generate(family, recipe, on_progress=on_progress)
            else:
                outcome = _generate_traced(family, recipe, profile, on_progress=on_progress)
        _compare_work(family)
        if not hosts.is_leader():
            return
        notes.add(outcome.notes)
        made = recipe.made_with(outcome.revision)
        files = save_outputs(outcome.pixels, made, output or Path(time.strftime(f"%Y%m%d-%H%M%S{suffix}")))
        if as_json:
            options.print_json(
                {
                    "output": str(files[0]),
                    "outputs": [str(file) for file in files],
                    "model": recipe.model,
                    "revision": outcome.revision,
                    "shape": recipe.shape,
                    "seed": recipe.seed,
                    "notes": notes.all,
                    "compiles": outcome.compiles,
                    "timings": outcome.timings.to_json(),
                }
            )
            return
        for file in files:
            typer.echo(file)
        typer.echo(describe_timings(outcome.timings.to_json(), recipe), err=True)


def _share_recipe(recipe: Recipe, model: Model) -> Recipe:
    """Returns the first host's recipe, with its seed; raises HostsError where hosts have other files of that name."""
    recipe = Recipe.model_validate(hosts.agree("recipe", recipe.model_dump(mode="json", by_alias=True)))
    if hosts.count() > 1:
        files = [Path(image) for image in recipe.images]
        loras = [get_lora(lora.ref, model.loras_dir).path for lora in recipe.loras]
        files += [*loras, *filter(None, map(find_adapter_config, loras))]
        hosts.compare({str(file): hosts.digest(file.read_bytes()) for file in files})
    return recipe


def _compare_work(family: Family) -> None:
    """Raises HostsError if hosts had other weights or ran other programs, which the picture would not show."""
    if hosts.count() > 1:
        hosts.compare({"weights": family.revision, "programs": hosts.describe_launches()})


def _generate_traced(family: Family, recipe: Recipe, folder: Path, *, on_progress: OnProgress) -> Outcome:
    """Generates with a profiler trace that begins after compilation; the outcome's times and counts include it."""
    from pipelines.runtime.programs.profiling import describe_trace, trace_to

    compiles_before = family.compile_count()
    references = find_references(family.model, recipe)
    compile_s = family.warm(
        recipe.parsed_shape,
        batch_size=recipe.batch_size,
        uses_cfg=uses_cfg(recipe),
        references=references,
        cache_kind=recipe.cache_kind,
        on_progress=on_progress,
    )
    with trace_to(folder):
        outcome = generate(family, recipe, on_progress=on_progress)
    typer.echo(describe_trace(folder), err=True)
    outcome.timings.compile_s += compile_s
    outcome.timings.total_s += compile_s
    return replace(outcome, compiles=family.compile_count() - compiles_before)


def check_output(output: Path | None, suffix: str) -> None:
    """Refuses an output file that cannot be written, before any work is done; raises RecipeError."""
    if output is None:
        return
    if output.suffix.lower() != suffix:
        raise RecipeError({"output": english(f"{output} should end in {suffix}, the format that carries the recipe")})
    if output.is_dir():
        raise RecipeError({"output": english(f"{output} is a folder; name a file in it")})


def describe_timings(timings: dict[str, float], recipe: Recipe) -> str:
    parts = [f"seed {recipe.seed}", f"load {timings['load_s']:.1f} s", f"compile {timings['compile_s']:.1f} s"]
    reused = f", {len(recipe.reused_steps)} of them reused" if recipe.reused_steps else ""
    steps = f"{recipe.denoising_steps} steps{reused}"
    parts.append(f"{steps} {timings['denoise_s']:.2f} s ({timings['step_ms']:.0f} ms each)")
    parts.append(f"total {timings['total_s']:.2f} s")
    return ", ".join(parts)
