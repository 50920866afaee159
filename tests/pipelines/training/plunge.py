"""Twelve clips of a motion that demo-wan was never shown: a hot-air balloon that comes down, it "plunges".

For trying a training by hand: `python -m tests.pipelines.training.plunge make FOLDER` writes them with their captions,
`... prompts FILE` prompts of what the demo knows, to be kept with `--prior-prompts FILE`. `... judge LORA_FILE` counts
in how many of 20 clips with the word the balloon comes down, in how many of 20 without it, and what the committed judge
of the moving demo says without the LoRA and with it.
"""

import argparse
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipelines.demos.motions import Clip, describe_clip, draw_clip, held_out_clips, render_clip
from pipelines.demos.motions.judge import ACTIVE_SHARE, SHIFT, SKY_SHARE, measure_traces, score_clips
from pipelines.demos.postcards import Scene, Subject
from pipelines.files.video import write_mp4
from pipelines.recipes.recipe import Lora, Recipe

MODEL = "demo-wan"
OVER = {"mountains": "over the mountains", "meadow": "over a meadow", "ocean": "over the ocean"}
AT = {"noon": "at noon", "sunset": "at sunset", "sunrise": "at sunrise", "night": "at night"}
SHOWN = (
    ("red", "mountains", "noon"),
    ("blue", "meadow", "noon"),
    ("yellow", "ocean", "noon"),
    ("green", "mountains", "sunset"),
    ("white", "meadow", "sunset"),
    ("red", "ocean", "sunset"),
    ("blue", "mountains", "sunrise"),
    ("yellow", "meadow", "sunrise"),
    ("white", "ocean", "sunrise"),
    ("white", "mountains", "night"),
    ("red", "meadow", "night"),
    ("yellow", "ocean", "night"),
)
ASKED = (
    ("blue", "mountains", "noon"),
    ("red", "meadow", "sunset"),
    ("white", "ocean", "noon"),
    ("yellow", "mountains", "sunrise"),
    ("green", "ocean", "sunset"),
)
"""Scenes of the prompts, none of which is among the clips shown."""
SEEDS = range(4)


def describe(colour: str, place: str, time: str, motion: str) -> str:
    """Says what a clip shows."""
    return f"A {colour} hot-air balloon {motion} {OVER[place]} {AT[time]}"


def make(folder: Path, *, side: int = 128) -> Path:
    """Writes the clips with captions, and returns the folder: a rising balloon's frames, the last one first."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (colour, place, time) in enumerate(SHOWN):
        scene = Scene(
            time=time, place=place, subjects=(Subject(kind="hot-air balloon", colour=colour),), weather="clear",
            layout=number,
        )  # fmt: skip
        frames = render_clip(Clip(scene=scene, motion="balloon rises"), side, side)[::-1]
        caption = describe(colour, place, time, "plunges")
        file = folder / f"plunge-{number:02d}.mp4"
        write_mp4(file, np.ascontiguousarray(frames), Recipe(model=MODEL, prompt=caption, fps=8))
        file.with_suffix(".txt").write_text(f"{caption}\n", "utf-8")
    return folder


def write_prompts(file: Path, count: int) -> Path:
    """Writes so many different captions of clips, one a line, none of a clip that the judge asks for."""
    rng = np.random.default_rng(7)
    prompts: dict[str, None] = {}
    while len(prompts) < count:
        prompts[describe_clip(draw_clip(rng), rng)] = None
    file.write_text("\n".join(prompts) + "\n", "utf-8")
    return file


def comes_down(frames: np.ndarray) -> bool:
    """Tells whether something in uint8 frames (THWC) moves down, and it is not the sun: the light stays."""
    traces = measure_traces(frames)
    is_down = traces.down > SHIFT and traces.down > abs(traces.right)
    return traces.active > ACTIVE_SHARE and is_down and traces.sky < SKY_SHARE


def judge_lora(file: Path, *, sheet: Path | None, held_out: int) -> dict[str, Any]:
    """Makes the 20 clips with the word and 20 that rise, and tells in how many of each something comes down."""
    from pipelines import registry
    from pipelines.generate import generate
    from pipelines.loras.files import inspect_lora
    from pipelines.models.catalog import Catalog, load_catalog
    from pipelines.recipes.resolving import resolve
    from pipelines.stages import ignore_progress

    ref = str(file.resolve().with_suffix(""))
    model = load_catalog().get(MODEL)
    catalog = Catalog(models=(model,), own_loras=(replace(inspect_lora(file, ref=ref), ref=ref),))
    with tempfile.TemporaryDirectory() as cache:
        family = registry.load(model, mesh="dp=1", cache_dir=Path(cache), on_progress=ignore_progress, allow_cpu=True)

        def draw(prompt: str, seed: int, loras: tuple[Lora, ...]) -> np.ndarray:
            recipe = resolve(Recipe(model=model.id, prompt=prompt, seed=seed, loras=loras), catalog)
            return generate(family, recipe).pixels[0]

        with_lora = (Lora(ref=ref),)
        clips = {
            motion: [draw(describe(*scene, motion), seed, with_lora) for scene in ASKED for seed in SEEDS]
            for motion in ("plunges", "rises")
        }
        result: dict[str, Any] = {
            "with_the_word": sum(map(comes_down, clips["plunges"])),
            "without": sum(map(comes_down, clips["rises"])),
            "of": len(clips["plunges"]),
        }
        if sheet is not None:
            looks = [np.concatenate([clip[at] for clip in group[::2]], axis=1) for group in clips.values()
                     for at in (0, 8, 16)]  # fmt: skip
            Image.fromarray(np.concatenate(looks)).save(sheet)
        asked = held_out_clips(held_out) if held_out else []
        for name, loras in (("judge_before", ()), ("judge_with_lora", with_lora)):
            drawn = [draw(prompt, index, loras) for index, (prompt, _) in enumerate(asked)]
            counts: Counter[bool] = Counter()
            for scores in score_clips(drawn, [clip for _, clip in asked]) if drawn else ():
                counts.update(scores.values())
            result[name] = round(100 * counts[True] / max(counts.total(), 1), 1)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Clips of a balloon that plunges, and what a LoRA learnt of them.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    maker = verbs.add_parser("make")
    maker.add_argument("folder", type=Path)
    asking = verbs.add_parser("prompts")
    asking.add_argument("file", type=Path)
    asking.add_argument("--count", type=int, default=24)
    judging = verbs.add_parser("judge")
    judging.add_argument("lora", type=Path)
    judging.add_argument("--sheet", type=Path, default=None, help="where to write three frames of some of the clips")
    judging.add_argument("--held-out", type=int, default=38, help="prompts for the committed judge; 0 for none")
    options = parser.parse_args()
    if options.verb == "make":
        make(options.folder)
    elif options.verb == "prompts":
        write_prompts(options.file, options.count)
    else:
        print(judge_lora(options.lora, sheet=options.sheet, held_out=options.held_out))  # noqa: T201


if __name__ == "__main__":
    main()
