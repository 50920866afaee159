"""What the first host of a slice does for the others; what several do together is tested in cluster/test_ray.py."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.errors import Cancelled, ModelError
from pipelines.families.fake import FakeFamily
from pipelines.generate import generate_together
from pipelines.loras.files import find_lora_file
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import Progress, ignore_progress
from pipelines.training.settings import TrainingSettings
from pipelines.training.stop import Stop
from studio.library import training_packs, training_starts
from studio.worker import slice as module
from studio.worker.gauges import FAKE_DEVICE
from studio.worker.learning import Learnt, Lesson
from studio.worker.opening import Devices
from studio.worker.slice import lead

PIXELS = np.zeros((1, 8, 8, 3), np.uint8)


def open_fake() -> Devices:
    return Devices(
        title="nothing",
        chips=1,
        load=lambda model, _on_progress: FakeFamily(model, compile_s=0.0, step_s=0.0),
        find=lambda _model, _on_progress: None,
        measure=lambda: [FAKE_DEVICE],
    )


def test_what_is_led_makes_what_one_host_makes(catalog: Catalog, tmp_path: Path) -> None:
    model, opened = catalog.default, open_fake()
    recipe = resolve(Recipe(model=model.id, prompt="A red sailboat", seed=5, steps=2), catalog)
    led = lead(opened, tmp_path)
    family = led.load(model, ignore_progress)
    family.warm(model.default_shape, batch_size=1, uses_cfg=True, on_progress=ignore_progress)
    made = led.generate(family, [recipe], on_progress=ignore_progress, encode=lambda _, one: family.encode(one))
    alone = generate_together(opened.load(model, ignore_progress), [recipe])
    assert (made.pixels == alone.pixels).all()
    family.unload()


def test_a_host_without_the_model_is_named_before_any_loads(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.hosts, "collect", lambda _topic, own: [own, "It is not there."])
    with pytest.raises(ModelError, match=r"Host 1 of this slice: It is not there\."):
        lead(open_fake(), tmp_path).load(catalog.default, ignore_progress)


def test_a_wish_to_end_is_heard_between_chunks_where_all_hosts_are_told() -> None:
    def end(_progress: Progress) -> None:
        raise Cancelled

    patient = module._Patient(end)
    patient(Progress(phase="loading"))
    with pytest.raises(Cancelled):
        patient(Progress(phase="denoising", draw_preview=lambda: PIXELS))


def test_a_lesson_hears_a_wish_to_end_where_all_hosts_agree_to_stop(catalog: Catalog, tmp_path: Path) -> None:
    """What the studio's watch raises before the first step would end the first host alone."""
    heard: list[Any] = []
    learnt = Learnt(files=())

    def learn(lesson: Lesson) -> Learnt:
        for told in ({"event": "prior"}, {"event": "compiling"}):
            lesson.on_event(told)
        lesson.on_progress(Progress(phase="loading"))
        return learnt

    def hear(told: Any) -> None:
        heard.append(told)
        lesson.stop.ask("pause")
        raise Cancelled

    lesson = Lesson(
        settings=TrainingSettings(),
        model=catalog.default,
        name="zorb",
        output=tmp_path / "training" / "job",
        stop=Stop(),
        on_event=hear,
        on_progress=hear,
    )
    assert lead(replace(open_fake(), learn=learn), tmp_path).learn(lesson) is learnt
    assert len(heard) == 3

    def fail(told: Any) -> None:
        raise OSError(told)

    alone = replace(lesson, stop=Stop(), on_event=fail)
    with pytest.raises(OSError, match="prior"):
        lead(replace(open_fake(), learn=learn), tmp_path).learn(alone)


def test_another_host_learns_on_from_the_lora_that_came_with_the_work(
    catalog: Catalog, tmp_path: Path, add_lora: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (file := add_lora("pixel")).read_bytes()
    training_starts.keep_start(tmp_path / "first", "pixel", file.parent)
    packed = training_packs.pack(tmp_path / "first", leaves_out=module.SHOWN_ONLY) or b""
    monkeypatch.setattr(module.hosts, "share", lambda _topic, _own: packed)
    seen: list[bytes] = []

    def learn(lesson: Lesson) -> Learnt:
        found = find_lora_file("pixel", lesson.model.loras_dir)
        assert found is not None
        seen.append(found.read_bytes())
        return Learnt(files=())

    file.unlink()
    follower = module._Follower(replace(open_fake(), learn=learn), tmp_path, lambda: catalog)
    follower.learn(model=catalog.default.id, name="zorb", folder="training/job", settings={"start_from": "pixel"})
    assert seen == [content]


def test_a_preview_is_drawn_at_once_and_not_too_often() -> None:
    drawn: list[int] = []
    seen: list[Any] = []

    def draw() -> np.ndarray:
        drawn.append(len(seen))
        return PIXELS

    patient = module._Patient(seen.append)
    for _ in range(3):
        patient(Progress(phase="denoising", draw_preview=draw))
    assert drawn == [0]
    assert [progress.draw_preview is not None for progress in seen] == [True, False, False]
    assert seen[0].draw_preview() is PIXELS


def test_pictures_are_named_as_on_any_host(tmp_path: Path) -> None:
    picture = tmp_path / "cache" / "inputs" / "a.png"
    recipe = Recipe(model="m", prompt="A boat", images=(str(picture),))
    told = module._write(recipe, tmp_path)
    assert told["images"] == ["cache/inputs/a.png"]
    assert module._read(told, tmp_path / "other").images == (str(tmp_path / "other" / "cache" / "inputs" / "a.png"),)


def test_hosts_that_ended_otherwise_have_come_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.hosts, "collect", lambda _topic, own: [own, "failed: OSError"])
    given_up: list[str] = []

    def give_up(why: str) -> None:
        given_up.append(why)
        raise SystemExit

    monkeypatch.setattr(module.hosts, "give_up", give_up)
    with pytest.raises(SystemExit):
        module._together(lambda: 1)
    assert given_up == ["the hosts have come apart: done, failed: OSError"]
