"""Whole trainings of the quickest model: what is validated, what a state may be gone on with, when a stop is heard."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from pipelines import registry
from pipelines.errors import RecipeError
from pipelines.generate import generate
from pipelines.loras.files import inspect_lora
from pipelines.models.catalog import Catalog, load_catalog, read_data_dir
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import ignore_progress
from pipelines.training.checks import check_training
from pipelines.training.engine.loop import Stop
from pipelines.training.place import Place
from pipelines.training.results.state import read_facts
from pipelines.training.run import Result, train
from pipelines.training.settings import read_settings

STILL = 1e-12
"""A learning rate at which the weights stay as they were."""
SAMPLE = "a red sailboat"
COLOURS = ("red", "green", "blue", "yellow")
TAGS = "a house, trees, a lake, clouds, birds, snow"


def write_pictures(folder: Path, *, captions: Sequence[str] = COLOURS, side: int = 64) -> Path:
    """Writes four pictures of one colour each, with captions."""
    folder.mkdir(parents=True)
    for number, (colour, caption) in enumerate(zip(COLOURS, captions, strict=True)):
        Image.new("RGB", (side, side), colour).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(caption, "utf-8")
    return folder


@dataclass(kw_only=True)
class Short:
    """Trains the quickest model in folders of its own; `told` is what the last training told, `batch_size` its plan."""

    catalog: Catalog
    folder: Path
    cache_dir: Path
    told: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    batch_size: int = 0

    def run(self, output: str, *, stop_at: tuple[str, int] | None = None, **asked: Any) -> Result:
        """Trains in a folder; `stop_at` stops at the event of this kind and number."""
        usual = {"model": "tiny", "data": (str(self.folder / "data"),), "lora": True, "steps": 2, "rank": 2,
                 "mesh": "dp=1", "global_batch_size": 2, "caption_dropout": 0.0}  # fmt: skip
        settings = read_settings(usual | asked)
        model = self.catalog.get(settings.model)
        checked = check_training(settings, model, registry.find_learner(model), name="short")
        stop, self.batch_size = Stop(), checked.batch_size
        self.told = [{"event": "note", "text": str(note)} for note in checked.notes]

        def hear(event: dict[str, Any]) -> None:
            self.told.append(event)
            if stop_at is not None and (event["event"], len(self.list(event["event"]))) == stop_at:
                stop.ask("test")

        cache = self.folder / "cache"
        place = Place(output=self.folder / output, cache=cache, cache_dir=self.cache_dir)
        return train(settings, checked, place, stop=stop, on_event=hear, on_progress=ignore_progress)

    def list(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.told if one["event"] == event]

    def validate(self, output: str, **asked: Any) -> float:
        """Returns the loss of the pictures held back, by weights that have not moved."""
        self.run(output, steps=1, learning_rate=STILL, validate_every=1, **asked)
        (event,) = self.list("validation")
        return event["validation_loss"]


@pytest.fixture(name="short")
def make_short(short_dir: Path, cache_dir: Path, tmp_path: Path) -> Short:
    write_pictures(tmp_path / "data")
    catalog = load_catalog(short_dir / "models", short_dir / "loras")
    return Short(catalog=catalog, folder=tmp_path, cache_dir=cache_dir)


def test_a_validation_loss_is_of_the_pictures_and_captions_held_back_and_always_the_same(short: Short) -> None:
    grey = write_pictures(short.folder / "grey", captions=[TAGS] * 4)
    for file in grey.glob("*.png"):
        Image.new("RGB", (64, 64), (90, 90, 9 * int(file.stem))).save(file)
    renamed = write_pictures(short.folder / "renamed", captions=["snow"] * 4)
    for file in renamed.glob("*.png"):
        file.write_bytes((grey / file.name).read_bytes())
    held = {"validate_with": str(grey)}

    loss = short.validate("first", **held)

    assert loss > 0
    changed = {"caption_dropout": 1.0, "shuffle_tags": True, "keep_tags": 0, "random_flip": True}
    assert short.validate("again", **held, **changed) == loss
    assert short.validate("captions", validate_with=str(renamed)) != loss
    assert short.validate("pictures", validate_with="0.5") != loss


def test_a_folder_to_validate_with_is_read_by_the_same_columns(short: Short) -> None:
    other = write_pictures(short.folder / "other")
    rows = []
    for number, colour in enumerate(COLOURS):
        (other / f"{number}.txt").unlink()
        Image.new("RGB", (64, 64), (number, number, 99)).save(other / f"{number}.png")
        rows.append(json.dumps({"file_name": f"{number}.png", "prompt": colour}))
    (other / "metadata.jsonl").write_text("\n".join(rows), "utf-8")

    assert short.validate("columns", validate_with=str(other), caption_column="prompt") > 0


def test_all_weights_that_learn_another_prediction_are_written_with_a_scheduler_for_it(short: Short) -> None:
    asked = {"lora": False, "full": True, "rank": 16, "steps": 1, "prediction_type": "sample"}
    left = short.folder / "models" / "full" / "state-sampled-xyz"
    left.mkdir(parents=True)
    result = short.run("models/full", **asked, sample=(SAMPLE,), sample_every=1)

    (folder,) = result.files
    assert not left.exists(), "a run that was killed left it"
    config = json.loads((folder / "scheduler" / "scheduler_config.json").read_text("utf-8"))
    assert config["prediction_type"] == "sample"
    (event,) = short.list("sample")
    np.testing.assert_array_equal(
        np.asarray(Image.open(event["file"])), draw(short, read_data_dir(short.folder), "full")
    )


@pytest.mark.parametrize("kind", [None, "v_prediction"])
def test_a_sample_is_byte_for_byte_what_the_lora_of_its_step_makes(short: Short, kind: str | None) -> None:
    """Where another prediction is learnt, on a model that predicts it, which is told."""
    asked = {} if kind is None else {"prediction_type": kind}
    short.run("lora", steps=1, learning_rate=1e-2, sample=(SAMPLE,), sample_every=1, **asked)

    (event,) = short.list("sample")
    assert ["no LoRA file can say" in one["text"] for one in short.list("note")] == [True] * len(asked)
    (file,) = Path(event["file"]).parent.glob("*.safetensors")
    model = replace(short.catalog.get("tiny"), scheduler_changes=asked)
    named = replace(inspect_lora(file, ref="step"), ref=str(file.with_suffix("")))
    catalog = Catalog(models=(model,), own_loras=(named,))
    expected = draw(short, catalog, "tiny", loras=(Lora(ref=named.ref),))
    np.testing.assert_array_equal(np.asarray(Image.open(event["file"])), expected)


def draw(short: Short, catalog: Catalog, model: str, **asked: Any) -> np.ndarray:
    """Returns what `generate` makes of the sample's prompt on all devices."""
    chosen = catalog.get(model)
    family = registry.load(chosen, mesh=None, cache_dir=short.cache_dir, on_progress=ignore_progress)
    recipe = resolve(Recipe(model=model, prompt=SAMPLE, seed=0, **asked), catalog)
    (pixels,) = generate(family, recipe).pixels
    family.unload()
    return pixels


@pytest.mark.parametrize(
    "asked", [{"prediction_type": "v_prediction"}, {"trigger": "sks"}, {"rank": 4}, {"seed": 5}, {"resolution": 128}]
)
def test_what_changes_the_meaning_of_a_state_is_refused_by_name(short: Short, asked: dict[str, Any]) -> None:
    short.run("state", steps=1)
    before = (short.folder / "state" / "settings.json").read_bytes()
    with pytest.raises(RecipeError, match="another output folder") as told:
        short.run("state", **asked)
    assert asked.keys() <= told.value.fields.keys()
    assert (short.folder / "state" / "settings.json").read_bytes() == before, "nothing in its folder is changed"
    assert not short.list("preparing"), "it is refused before anything is encoded"


def test_a_training_that_makes_pictures_first_goes_on_with_the_batch_that_its_plan_told(short: Short) -> None:
    asked: dict[str, Any] = {"prior_prompt": ("a boat",), "global_batch_size": None}
    short.run("first", **asked, steps=1)
    short.run("first", **asked, steps=2)
    assert [event["step"] for event in short.list("resumed")] == [1]
    facts = read_facts(short.folder / "first" / "state")
    assert facts is not None and facts["global_batch_size"] == short.batch_size == 2 * len(COLOURS)


def test_epochs_go_through_what_the_model_made_as_often_as_through_the_rest(short: Short) -> None:
    prompts = short.folder / "prompts.txt"
    prompts.write_text("\n".join(f"a boat {number}" for number in range(6)), "utf-8")
    assert short.run("epochs", prior_prompts=str(prompts), steps=None, epochs=1).steps == (len(COLOURS) + 6) / 2
    assert any("more prior pictures than your own" in event["text"] for event in short.list("note"))


def test_another_models_states_are_refused_and_what_a_kill_left_is_removed(short: Short) -> None:
    left = [short.folder / "state" / name for name in ("state-sampled-x", ".unet.part")]
    for folder in left:
        folder.mkdir(parents=True)
    left.append(short.folder / "state" / ".state.0a1b2c3d.part.safetensors")
    left[-1].write_bytes(b"half")
    short.run("state", steps=1)
    assert not any(one.exists() for one in left)
    (short.folder / "state" / "state").rename(short.folder / "state" / "state_high_noise")
    with pytest.raises(RecipeError, match="another model"):
        short.run("state")


def test_another_base_under_the_same_name_does_not_go_on_with_a_state(short: Short, short_dir: Path) -> None:
    models = shutil.copytree(short_dir / "models", short.folder / "models")
    short.catalog = load_catalog(models, short_dir / "loras")
    short.run("state", steps=1)
    file = models / "tiny" / "unet" / "diffusion_pytorch_model.safetensors"
    before = file.read_bytes()
    save_file({name: value * np.float32(1.01) for name, value in load_file(file).items()}, file)
    with pytest.raises(RecipeError, match="another output folder") as told:
        short.run("state")
    assert told.value.fields.keys() == {"base"}
    file.write_bytes(before)
    assert short.run("state").steps == 2


def test_what_may_change_is_said(short: Short) -> None:
    short.run("state", steps=1)
    changed = {"random_flip": True, "snr_gamma": 0.0, "noise_offset": 0.1, "caption_dropout": 0.5,
               "mixed_precision": "bf16", "learning_rate": 1e-3, "adam_weight_decay": 0.1}  # fmt: skip
    result = short.run("state", **changed)

    (note,) = short.list("note")
    assert all(name in note["text"] for name in (*changed, "steps"))
    assert (result.steps, len(result.files)) == (2, 1)
    short.run("state", **changed)
    assert not short.list("note")


def test_fewer_steps_than_a_state_has_give_the_result_that_there_is_and_say_so(short: Short) -> None:
    (file,) = short.run("state", steps=3).files
    learnt = load_file(file)
    result = short.run("state", steps=2)

    assert (result.steps, len(result.files)) == (3, 1)
    notes = " ".join(one["text"] for one in short.list("note"))
    assert "has learnt for 3 steps, more than the 2 asked for" in notes
    again = load_file(result.files[0])
    assert all(np.array_equal(learnt[name], again[name]) for name in learnt)


def test_a_validation_that_a_stop_cut_off_comes_first_in_the_next_run(short: Short) -> None:
    asked = {"steps": 6, "validate_with": "0.5", "validate_every": 3}
    (whole,) = short.run("whole", **asked).files
    expected = [(one["step"], one["validation_loss"]) for one in short.list("validation")]
    assert short.run("broken", **asked, stop_at=("step", 1)).steps == 3  # told two steps late
    before = short.list("validation")
    (broken,) = short.run("broken", **asked).files

    found = [(one["step"], one["validation_loss"]) for one in [*before, *short.list("validation")]]
    assert found == expected
    assert broken.read_bytes() == whole.read_bytes()


def test_a_stop_while_rows_are_prepared_ends_it_there_and_the_next_run_prepares_the_rest(short: Short) -> None:
    assert not short.run("rows", stop_at=("preparing", 2)).files
    (first, second) = short.list("preparing")
    assert (first["total"], second["done"]) == (8, 2)
    assert not short.list("compiling")
    short.run("rows")
    assert [one["done"] for one in short.list("preparing")] == [*range(1, 7)]


def test_a_stop_while_the_step_is_compiled_ends_it_before_the_step(short: Short) -> None:
    result = short.run("compiled", stop_at=("compiling", 1))
    assert (result.steps, result.files, short.list("step"), short.list("saved")) == (0, (), [], [])
    assert len(short.run("compiled").files) == 1


def test_states_are_saved_as_often_as_asked(short: Short) -> None:
    short.run("often", steps=4, save_every_minutes=1e-9)
    assert [one["step"] for one in short.list("saved")] == [1, 2, 3, 4]
    short.run("seldom", steps=4)
    assert [one["step"] for one in short.list("saved")] == [4]


def test_the_average_is_what_is_written(short: Short) -> None:
    asked = {"steps": 3, "learning_rate": 1e-2, "lora_format": "diffusers"}
    plain, average = (load_file(short.run(f"ema-{ema}", **asked, ema=ema).files[0]) for ema in (0.0, 0.99))

    moved = [name for name in plain if name.endswith("lora_B.weight")]  # from zero: its average is behind
    of_plain, of_average = (
        sum(np.abs(one[name].astype(np.float32)).sum() for name in moved) for one in (plain, average)
    )
    assert 0 < of_average < 0.98 * of_plain


def read_deltas(file: Path, *, factor: float = 1.0) -> dict[str, np.ndarray]:
    """What a LoRA file of diffusers' names, whose alpha over rank is `factor`, adds to each layer."""
    tensors = {name: value.astype(np.float32) for name, value in load_file(file).items()}
    downs = {name: value for name, value in tensors.items() if ".lora_A." in name}
    return {
        name: factor * tensors[name.replace("lora_A", "lora_B")].reshape(-1, len(down)) @ down.reshape(len(down), -1)
        for name, down in downs.items()
    }


def test_a_lora_learns_on_from_a_file(short: Short) -> None:
    (first,) = short.run("first", steps=3, learning_rate=0.1, targets="attn", lora_format="diffusers").files
    learnt = read_deltas(first)
    assert all(delta.any() for delta in learnt.values())

    other = {"rank": 3, "alpha": 5.0, "lora_format": "diffusers"}
    (second,) = short.run("second", steps=1, learning_rate=STILL, start_from=str(first), **other).files

    found = read_deltas(second, factor=5 / 3)
    for name, delta in found.items():
        np.testing.assert_allclose(delta, learnt.get(name, np.zeros_like(delta)), rtol=0.03, atol=1e-4)
    assert learnt.keys() < found.keys(), "layers that it does not have begin anew"
    assert '"start_from": "short"' in inspect_header(second)["lumesh_training"]
    with pytest.raises(RecipeError, match="another LoRA to start from"):
        short.run("second", steps=2, start_from=str(second), **other)
    with pytest.raises(RecipeError, match=r"rank: that of .*short is 2; choose as much"):
        short.run("less", rank=1, start_from=str(first))
    with pytest.raises(RecipeError, match=r"which would not learn on; let targets name"):
        short.run("other", targets="ff", start_from=str(first))
    assert not (short.folder / "other").exists() and not short.told, "before anything is read or encoded"
    with pytest.raises(RecipeError, match="start_from: there is no LoRA nothing"):
        short.run("none", start_from="nothing")
    with pytest.raises(RecipeError, match="start_from: is of a LoRA"):
        short.run("full", lora=False, full=True, rank=16, start_from=str(first))


def inspect_header(file: Path) -> dict[str, str]:
    with safe_open(file, "np") as stored:
        return stored.metadata()
