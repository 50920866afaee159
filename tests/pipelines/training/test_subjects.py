"""What the trials of training count: the judges see the new subject and the new motion where they are, only there."""

from pathlib import Path

import numpy as np
from PIL import Image

from pipelines.demos.motions import Clip, render_clip
from pipelines.demos.postcards import Scene, Subject, held_out_prompts, render
from tests.pipelines.training import plunge, zorb


def test_the_zorb_is_seen_in_its_pictures_and_not_in_postcards(tmp_path: Path) -> None:
    folder = zorb.make(tmp_path)
    assert all(zorb.shows_zorb(np.asarray(Image.open(file))) for file in folder.glob("*.png"))
    for number, (time, place, _) in enumerate(zorb.PLACES):
        subjects = (Subject(kind="hot-air balloon", colour="purple"),) if number % 2 else ()
        scene = Scene(time=time, place=place, subjects=subjects, weather="clear", layout=number)
        assert not zorb.shows_zorb(render(scene, 256, 256))


def test_a_plunge_is_seen_in_a_balloon_that_comes_down_and_in_no_motion_of_the_demo() -> None:
    for colour, place, time in plunge.ASKED:
        balloon = (Subject(kind="hot-air balloon", colour=colour),)
        scene = Scene(time=time, place=place, subjects=balloon, weather="clear", layout=3)
        rising = render_clip(Clip(scene=scene, motion="balloon rises"), 128, 128)
        assert plunge.comes_down(rising[::-1])
        assert not plunge.comes_down(rising)
    sun = Scene(time="sunset", place="ocean", subjects=(), weather="clear", layout=1)
    assert not plunge.comes_down(render_clip(Clip(scene=sun, motion="sun sets"), 128, 128))


def test_no_prompt_to_keep_is_one_that_the_judge_asks_for(tmp_path: Path) -> None:
    prompts = zorb.write_prompts(tmp_path / "prompts.txt", 40).read_text("utf-8").splitlines()
    assert len(set(prompts)) == 40
    assert not set(prompts) & {prompt for prompt, _ in held_out_prompts(200)}
