"""Each row that is learnt has a twin that is to be kept: the same picture without the trigger, or a prior picture."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from pipelines import registry
from pipelines.models.catalog import load_catalog
from pipelines.training.checks import Checked, check_training
from pipelines.training.data.rows import TWIN, RowSource
from pipelines.training.settings import read_settings
from tests.pipelines.training.data.pictures import make_picture, write_picture

LEARNT = {"a.png": (256, 256), "b.png": (256, 256), "c.png": (320, 192)}
PRIOR_SQUARE = {"a boat", "a house", "a tree"}
PRIOR = {"boat.png": (256, 256), "house.png": (256, 256), "tree.png": (200, 320), "hill.png": (320, 200)}


LONGEST = 20


def read_text(codes: np.ndarray) -> str:
    """Reads what `Echo` made of a caption."""
    return bytes(codes.astype(np.uint8)).decode("latin-1").strip()


class Echo:
    """Encodes captions and pictures as themselves, in place of a family's encoders."""

    def read(self, given: Any) -> dict[str, Any]:
        if isinstance(given, str):
            return {"caption": np.frombuffer(given.ljust(LONGEST).encode("latin-1"), np.uint8)}
        return {"size": np.asarray(given.shape[1:3][::-1]), "mean": np.asarray(given.mean())}

    def close(self) -> None:
        """Does nothing."""


def check(folder: Path, **asked: Any) -> Checked:
    for group, pictures in (("learnt", LEARNT), ("prior", PRIOR)):
        for name, size in pictures.items():
            file = write_picture(folder / group / name, *size, text=f"a {Path(name).stem}")
            make_picture(*size, seed=len(file.stem) * ord(file.stem[0])).save(file)
    settings = read_settings(
        {"model": "demo-sdxl", "data": (str(folder / "learnt"), f"{folder / 'prior'},prior"), "lora": True}
        | {"trigger": "zorb", "caption_dropout": 0.0, "mesh": "dp=1"} | asked
    )  # fmt: skip
    model = load_catalog().get(settings.model)
    return check_training(settings, model, registry.find_learner(model), name=None)


class Pair(NamedTuple):
    """A row and its twin: their size, what is said of each, and whether they are the same picture."""

    size: tuple[int, int]
    caption: str
    twin: str
    is_own: bool


def read_pairs(checked: Checked, steps: int) -> list[Pair]:
    """Reads the batches of some steps."""
    learner: Any = SimpleNamespace(describe_cut=lambda _ids: {})
    rows = RowSource(
        data=checked.data, captions=checked.captions, cache=None, learner=learner, text_print="", picture_print=""
    )
    reader: Any = Echo
    rows.prepare(steps, reader, reader, lambda _done, _total: None)
    pairs: list[Pair] = []
    for step in range(steps):
        batch = rows.make_batch(step)
        np.testing.assert_array_equal(batch[TWIN], [0, 1] * checked.batch_size)
        np.testing.assert_array_equal(batch["weight"][1::2], 0.5 * batch["weight"][::2])
        assert len({tuple(size) for size in batch["size"]}) == 1
        pairs += [
            Pair(
                size=tuple(map(int, batch["size"][at])),
                caption=read_text(batch["caption"][at]),
                twin=read_text(batch["caption"][at + 1]),
                is_own=bool(batch["mean"][at] == batch["mean"][at + 1]),
            )
            for at in range(0, len(batch["size"]), 2)
        ]
    return pairs


@pytest.mark.model  # sizes are those of a family, whose code needs torch
@pytest.mark.usefixtures("cache_dir")
def test_twins_are_prior_pictures_of_their_size_and_own_ones_in_their_words_or_without_the_trigger(
    tmp_path: Path,
) -> None:
    checked = check(tmp_path, preserve=0.5, global_batch_size=2)
    pairs = read_pairs(checked, 48)

    square = [twin for twin in pairs if twin.size == (256, 256)]
    assert {twin.caption for twin in pairs} == {"zorb, a a", "zorb, a b", "zorb, a c"}
    for is_own, said in ((True, {"a a", "a b"}), (True, PRIOR_SQUARE), (False, PRIOR_SQUARE)):
        chosen = [one for one in square if one.is_own == is_own and one.twin in said]
        assert {one.twin for one in chosen} == said
        assert len(chosen) == pytest.approx(len(square) / (4 if is_own else 2), abs=3)


@pytest.mark.model  # sizes are those of a family, whose code needs torch
@pytest.mark.usefixtures("cache_dir")
def test_prior_pictures_make_no_size_and_no_larger_batch_of_their_own(tmp_path: Path) -> None:
    kept, learnt = check(tmp_path, preserve=0.5), check(tmp_path)
    sizes = {cut.bucket[:2] for cut in kept.data.cuts}
    assert sizes == {(256, 256), (320, 192)}
    assert {cut.bucket[:2] for cut in learnt.data.cuts} > sizes
    assert kept.schedule.steps_per_epoch == 2
    assert kept.batch_size < learnt.batch_size


@pytest.mark.model  # sizes are those of a family, whose code needs torch
@pytest.mark.usefixtures("cache_dir")
def test_sdxl_is_told_the_size_and_the_cut_of_each_picture(tmp_path: Path) -> None:
    write_picture(tmp_path / "data" / "wide.png", 400, 256, text="a house")
    settings = read_settings(
        {"model": "demo-sdxl", "data": (str(tmp_path / "data"),), "lora": True, "mesh": "dp=1", "resolution": 256}
        | {"center_crop": True, "global_batch_size": 1}
    )  # fmt: skip
    model = load_catalog().get(settings.model)
    learner = registry.find_learner(model)
    checked = check_training(settings, model, learner, name=None)
    rows = RowSource(
        data=checked.data, captions=checked.captions, cache=None, learner=learner, text_print="", picture_print=""
    )
    reader: Any = Echo
    rows.prepare(1, reader, reader, lambda _done, _total: None)

    (told,) = rows.make_batch(0)["time_ids"]

    np.testing.assert_array_equal(told, [256, 400, 0, 72, 256, 256])
