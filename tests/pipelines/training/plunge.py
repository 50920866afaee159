"""Twelve clips of a motion that demo-wan was never shown: a hot-air balloon that comes down, it "plunges".

For trying a training by hand: `python -m tests.pipelines.training.plunge make FOLDER` writes them with their captions,
`... prompts FILE` prompts of what the demo knows, to be kept with `--prior-prompts FILE`. `... judge LORA_FILE` counts
in how many of 20 clips with the word the balloon comes down, in how many of 20 without it, and what the committed judge
of the moving demo says without the LoRA and with it.
"""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipelines.demos.motions import Clip, describe_clip, draw_clip, held_out_clips, render_clip
from pipelines.demos.motions.judge import ACTIVE_SHARE, SHIFT, SKY_SHARE, measure_traces, score_clips
from pipelines.demos.postcards import Scene, Subject
from pipelines.files.video import write_mp4
from pipelines.recipes.recipe import Recipe
from tests.pipelines.training.trials import judge_held_out, loaded, run, write_captions

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
    return write_captions(file, lambda rng: describe_clip(draw_clip(rng), rng), count)


def comes_down(frames: np.ndarray) -> bool:
    """Tells whether something in uint8 frames (THWC) moves down, and it is not the sun: the light stays."""
    traces = measure_traces(frames)
    is_down = traces.down > SHIFT and traces.down > abs(traces.right)
    return traces.active > ACTIVE_SHARE and is_down and traces.sky < SKY_SHARE


def judge_lora(model_id: str, file: Path, *, sheet: Path | None, held_out: int) -> dict[str, Any]:
    """Makes the 20 clips with the word and 20 that rise, and tells in how many of each something comes down."""
    with loaded(model_id, file) as draw:
        clips = {
            motion: [draw(describe(*scene, motion), seed, has_lora=True) for scene in ASKED for seed in SEEDS]
            for motion in ("plunges", "rises")
        }
        if sheet is not None:
            looks = [np.concatenate([clip[at] for clip in group[::2]], axis=1) for group in clips.values()
                     for at in (0, 8, 16)]  # fmt: skip
            Image.fromarray(np.concatenate(looks)).save(sheet)
        judged = judge_held_out(draw, held_out_clips(held_out) if held_out else [], score_clips)
    return {
        "with_the_word": sum(map(comes_down, clips["plunges"])),
        "without": sum(map(comes_down, clips["rises"])),
        "of": len(clips["plunges"]),
        **judged,
    }


if __name__ == "__main__":
    run(
        "Clips of a balloon that plunges, and what a LoRA learnt of them.",
        make=make, write_prompts=write_prompts, judge_lora=judge_lora, prompts=24, held_out=38, model=MODEL,
    )  # fmt: skip
