"""What a step of a denoiser's training sees: pure in the step, crowded often enough, empty where nothing is known."""

import numpy as np
import pytest

from pipelines.demos.learning import Batch
from pipelines.demos.postcards import draw_scene
from pipelines.demos.stills.album import Album
from pipelines.demos.stills.captions import is_empty
from pipelines.demos.stills.course import DROPPED_SHARE, draw_batch


@pytest.fixture(scope="module")
def album() -> Album:
    """Latents that hold the number of their scene."""
    rng = np.random.default_rng(0)
    scenes = tuple(draw_scene(rng) for _ in range(400))
    numbers = np.arange(len(scenes), dtype=np.float16)[:, None, None, None]
    return Album(
        width=48,
        height=32,
        latents=np.broadcast_to(numbers, (len(scenes), 1, 2, 3)),
        scenes=scenes,
        empty_scenes=np.flatnonzero([is_empty(scene) for scene in scenes]),
        crowded_scenes=np.flatnonzero([len(scene.subjects) == 2 for scene in scenes]),
    )


def read(captions: list[str]) -> Batch:
    return {"captions": np.array(captions)}


def test_a_batch_is_a_function_of_its_step(album: Album) -> None:
    first, again, other = (draw_batch(album, read, batch_size=16, step=step) for step in (3, 3, 4))
    assert all((first[name] == again[name]).all() for name in first)
    assert not (first["captions"] == other["captions"]).all()


def test_every_row_knows_its_size(album: Album) -> None:
    np.testing.assert_array_equal(draw_batch(album, read, batch_size=2, step=0)["size"], [[32, 48], [32, 48]])


def test_two_subjects_are_seen_more_often_where_a_stage_wants_it(album: Album) -> None:
    usual, crowded = (
        np.isin(
            draw_batch(album, read, batch_size=4000, step=0, crowded_share=share)["latents"][:, 0, 0, 0].astype(int),
            album.crowded_scenes,
        ).mean()
        for share in (0.0, 0.5)
    )
    assert abs(usual - len(album.crowded_scenes) / len(album.scenes)) < 0.03
    assert crowded > usual + 0.3


def test_some_captions_are_dropped(album: Album) -> None:
    kept = draw_batch(album, read, batch_size=4000, step=0)["is_kept"]
    assert abs((1 - kept).mean() - DROPPED_SHARE) < 0.015


def test_words_that_name_nothing_go_with_an_empty_landscape(album: Album) -> None:
    batch = draw_batch(album, read, batch_size=2000, step=1)
    chosen = batch["latents"][:, 0, 0, 0].astype(int)
    is_strange = np.array(["dragon" in caption or "astronaut" in caption for caption in batch["captions"]])
    assert is_strange.sum() > 5
    assert all(is_empty(album.scenes[index]) for index in chosen[is_strange])
