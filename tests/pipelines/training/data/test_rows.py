"""Each row that is learnt has a twin that is to be kept: the same picture without the trigger, or a prior picture."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines import registry
from pipelines.models.catalog import load_catalog
from pipelines.training.checks import Checked, check_training
from pipelines.training.data.rows import TWIN, RowSource
from pipelines.training.settings import read_settings
from tests.pipelines.training.data.pictures import write_picture

LEARNT = {"a.png": (256, 256), "b.png": (256, 256), "c.png": (320, 192)}
PRIOR = {"boat.png": (256, 256), "house.png": (256, 256), "tree.png": (200, 320), "hill.png": (320, 200)}


class Echo:
    """Encodes captions and pictures as themselves, in place of a family's encoders."""

    def read(self, given: Any) -> dict[str, Any]:
        if isinstance(given, str):
            return {"caption": np.asarray(given, "U80")}
        return {"size": np.asarray(given.shape[1:3][::-1])}

    def close(self) -> None:
        """Does nothing."""


def check(folder: Path, **asked: Any) -> Checked:
    for group, pictures in (("learnt", LEARNT), ("prior", PRIOR)):
        for name, size in pictures.items():
            write_picture(folder / group / name, *size, text=f"a {Path(name).stem}")
    settings = read_settings(
        {"model": "demo-sdxl", "data": (str(folder / "learnt"), f"{folder / 'prior'},prior"), "lora": True}
        | {"trigger": "zorb", "caption_dropout": 0.0, "mesh": "dp=1"} | asked
    )  # fmt: skip
    model = load_catalog().get(settings.model)
    return check_training(settings, model, registry.find_learner(model), name=None)


def read_pairs(checked: Checked, steps: int) -> list[tuple[tuple[int, int], str, str]]:
    """Returns the size and both captions of each row and its twin."""
    learner: Any = SimpleNamespace(describe_cut=lambda _ids: {})
    rows = RowSource(
        data=checked.data, captions=checked.captions, cache=None, learner=learner, text_print="", picture_print=""
    )
    reader: Any = Echo
    rows.prepare(steps, reader, reader, lambda _done, _total: None)
    pairs = []
    for step in range(steps):
        batch = rows.make_batch(step)
        np.testing.assert_array_equal(batch[TWIN], [0, 1] * checked.batch_size)
        np.testing.assert_array_equal(batch["weight"][1::2], 0.5 * batch["weight"][::2])
        assert len({tuple(size) for size in batch["size"]}) == 1
        pairs += [
            (tuple(map(int, size)), str(caption), str(twin))
            for size, caption, twin in zip(
                batch["size"][::2], batch["caption"][::2], batch["caption"][1::2], strict=True
            )
        ]
    return pairs


@pytest.mark.usefixtures("cache_dir")
def test_every_other_twin_is_a_prior_picture_of_its_size_and_none_of_them_is_learnt(tmp_path: Path) -> None:
    checked = check(tmp_path, preserve=0.5, global_batch_size=2)
    pairs = read_pairs(checked, 24)

    square = [(caption, twin) for size, caption, twin in pairs if size == (256, 256)]
    own = [(caption, twin) for caption, twin in square if twin == caption.removeprefix("zorb, ")]
    others = [twin for caption, twin in square if twin != caption.removeprefix("zorb, ")]
    assert {caption for _, caption, _ in pairs} == {"zorb, a a", "zorb, a b", "zorb, a c"}
    assert len(own) == len(others)
    assert set(others) == {"a boat", "a house", "a tree"}


@pytest.mark.usefixtures("cache_dir")
def test_prior_pictures_make_no_size_and_no_larger_batch_of_their_own(tmp_path: Path) -> None:
    kept, learnt = check(tmp_path, preserve=0.5), check(tmp_path)
    sizes = {cut.bucket[:2] for cut in kept.data.cuts}
    assert sizes == {(256, 256), (320, 192)}
    assert {cut.bucket[:2] for cut in learnt.data.cuts} > sizes
    assert kept.schedule.steps_per_epoch == 2
    assert kept.batch_size < learnt.batch_size
