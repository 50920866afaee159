"""Latents are made once, in order and whole; albums take their turns."""

from pathlib import Path

import numpy as np

from pipelines.demos.album import AlbumSize, keep_latents, take_turns
from pipelines.runtime.devices.mesh import build_mesh


def test_latents_are_made_once_and_in_order(tmp_path: Path) -> None:
    drawn: list[int] = []

    def draw(index: int) -> np.ndarray:
        drawn.append(index)
        return np.full((2, 2), index)

    size = AlbumSize(width=16, height=16, count=5, batch_size=2)
    for _ in range(2):
        latents = keep_latents(size, draw, lambda pictures: -pictures, together=2, folder=tmp_path)
        np.testing.assert_array_equal(latents[:, 0, 0], -np.arange(5))
    assert drawn == [0, 1, 2, 3, 4]
    assert latents.dtype == np.float16


def test_albums_take_their_turns() -> None:
    sizes = [AlbumSize(width=16, height=16, count=1, batch_size=rows, turns=turns) for rows, turns in ((4, 2), (3, 1))]
    draw = take_turns(
        sizes, ["a", "b"], lambda album, rows, step: {album: np.array([rows, step])}, mesh=build_mesh("dp=1")
    )
    assert [(name, *value) for step in range(4) for name, value in draw(step).items()] == [
        ("a", 4, 0),
        ("a", 4, 1),
        ("b", 3, 2),
        ("a", 4, 3),
    ]
