"""The gallery: one's own before ours, found by words, tag and model, and honest about what cannot run here."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.catalog import Catalog, load_catalog
from studio.database import Database
from studio.library.presets import gallery, store
from studio.library.presets.files import embed
from studio.library.presets.preset import Preset, PresetError, read_preset
from studio.library.presets.shipped import read_shipped
from studio.settings import Settings

Add = Callable[..., store.Entry]


def make(**fields: Any) -> Preset:
    recipe = {"model": "demo-sdxl", "prompt": "A red sailboat", **fields.pop("recipe", {})}
    return read_preset(json.dumps({"title": "Boat", "recipe": recipe, **fields}))


@pytest.fixture
def add(database: Database, settings: Settings) -> Add:
    def add(preset: Preset | None = None, *, owner: str = "local") -> store.Entry:
        return store.add(database, settings.presets_dir, preset or make(), owner=owner, origin="file", origin_name="a")

    return add


@pytest.fixture
def titles(database: Database, settings: Settings, catalog: Catalog) -> Callable[..., list[str]]:
    def titles(**wanted: Any) -> list[str]:
        entries = gallery.list_entries(database, settings.presets_dir, catalog, owner="local")
        return [entry.preset.title for entry in gallery.search(entries, catalog, **wanted)]

    return titles


def test_own_presets_come_first_newest_first_and_nobody_elses(add: Add, titles: Callable[..., list[str]]) -> None:
    add(make(title="First"))
    add(make(title="Second"))
    add(make(title="Hers"), owner="her")
    found = titles()
    assert found[:2] == ["Second", "First"]
    assert "Hers" not in found
    assert len(found) == 2 + len(read_shipped())
    demo = [preset.title for preset in read_shipped().values() if preset.recipe.model == "demo-flux2"]
    assert demo and set(found[2 : 2 + len(demo)]) == set(demo)


@pytest.mark.parametrize("document", ["{", "{}", '{"title": 3}'])
def test_a_preset_that_cannot_be_read_does_not_hide_the_others(
    add: Add, titles: Callable[..., list[str]], database: Database, document: str
) -> None:
    odd = add(make(title="Odd"))
    add(make(title="Sound"))
    with database.write() as tx:
        tx.execute("UPDATE presets SET document = ? WHERE id = ?", (document, odd.id))
    assert titles()[0] == "Sound"
    assert len(titles()) == 1 + len(read_shipped())


def test_words_tag_and_model_narrow_it_down(add: Add, titles: Callable[..., list[str]]) -> None:
    add(make(title="Quiet", author="Ada", tags=["frost"], recipe={"prompt": "A blue house"}))
    assert titles(words="ADA house") == ["Quiet"]
    assert titles(words="ada sailboat") == []
    assert titles(tag="frost") == ["Quiet"]
    assert titles(words="klein sign") == ["A cat with a sign"]
    assert all("wan" not in title.lower() for title in titles(model="demo-sdxl"))
    assert len(titles(model="demo-sdxl")) > 10


def test_the_same_preset_twice_is_one_and_gone_when_removed(
    add: Add, database: Database, settings: Settings, encode_picture: Callable[..., bytes]
) -> None:
    preset = make().model_copy(update={"thumbnail": embed(encode_picture(kind="WEBP"))})
    first = add(preset)
    assert add(preset).id == first.id
    assert add(preset, owner="her").id != first.id
    assert first.thumb is not None
    assert first.thumb.is_file()
    assert gallery.complete(first, load_catalog()).thumbnail == preset.thumbnail
    store.remove(database, settings.presets_dir, first.id)
    assert not first.thumb.exists()
    assert store.read_entry(database, settings.presets_dir, first.id) is None


def test_a_preset_for_a_model_that_is_not_here_says_which_and_how_to_add_it(add: Add, catalog: Catalog) -> None:
    source = {"title": "Sketches", "repo": "ada/sketches"}
    preset = make(recipe={"model": "sketches-xl"}, source=source)
    gallery.require_runnable(preset, catalog)
    described = gallery.describe(add(preset), catalog)
    assert described["model"] == {"id": "sketches-xl", "title": "Sketches"}
    assert described["missing"]["model"] == "sketches-xl"
    assert "models/sketches-xl in the data directory" in described["missing"]["advice"]
    assert "hf download ada/sketches --local-dir models/sketches-xl" in described["missing"]["advice"]
    bare = gallery.describe(add(make(recipe={"model": "sketches-xl"})), catalog)
    assert "hf download" not in bare["missing"]["advice"]


def test_a_shared_preset_names_where_its_model_comes_from(catalog: Catalog, add: Add) -> None:
    preset = gallery.complete(add(make(recipe={"model": "sdxl-base"})), catalog)
    assert preset.source.repo == "stabilityai/stable-diffusion-xl-base-1.0"


def test_a_recipe_that_the_model_does_not_take_is_refused_by_field(catalog: Catalog) -> None:
    with pytest.raises(PresetError) as caught:
        gallery.require_runnable(make(recipe={"shape": "64x64", "fps": 9}), catalog)
    assert set(caught.value.fields) == {"recipe.shape", "recipe.fps"}


def test_a_preset_for_a_model_that_starts_from_a_picture_may_come_without_one(catalog: Catalog) -> None:
    gallery.require_runnable(make(recipe={"model": "wan2.1-i2v-14b"}), catalog)


def test_loras_are_names_that_may_come_later_but_must_fit_when_they_are_here(
    catalog: Catalog, settings: Settings, add_lora: Callable[..., Path]
) -> None:
    catalog = replace(catalog, loras_dir=settings.loras_dir)
    preset = make(recipe={"loras": [{"ref": "pixel", "scale": 0.5}, {"ref": "later"}]})
    gallery.require_runnable(preset, catalog)
    add_lora("pixel", "sdxl")
    gallery.require_runnable(preset, catalog)
    add_lora("pixel", "wan")
    with pytest.raises(PresetError, match="pixel is for wan models"):
        gallery.require_runnable(preset, catalog)


def test_a_preset_without_loras_or_a_picture_is_the_document_it_always_was() -> None:
    assert not {"loras", "strength", "fit"} & make().to_json()["recipe"].keys()
    named = make(recipe={"loras": [{"ref": "pixel", "scale": 0.5}]})
    assert named.to_json()["recipe"]["loras"] == [{"ref": "pixel", "scale": 0.5}]
    assert [(lora.ref, lora.scale) for lora in named.recipe.to_recipe().loras] == [("pixel", 0.5)]


def test_there_is_a_limit(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_PRESETS", 1)
    add()
    with pytest.raises(PresetError, match="already"):
        add(make(title="One more"))


def test_a_preset_says_which_loras_are_not_here_and_where_they_are(add: Add, catalog: Catalog) -> None:
    source = {"ref": "far/boats", "repo": "ada/boats", "file": "sub/boats.safetensors", "licence": "MIT"}
    preset = make(recipe={"loras": [{"ref": "far/boats"}, {"ref": "unknown"}]}, loras=[source])
    far, unknown = gallery.describe(add(preset), catalog)["lacks"]
    assert (far["ref"], far["url"], far["licence"], far["size_bytes"]) == (
        "far/boats", "https://huggingface.co/ada/boats/blob/main/sub/boats.safetensors", "MIT", None
    )  # fmt: skip
    assert (unknown["repo"], unknown["url"]) == (None, None)
    assert "Put the LoRA unknown into the loras folder" in unknown["advice"]
    assert gallery.describe(add(make()), catalog)["lacks"] == []


def test_a_preset_without_loras_reads_as_before(add: Add) -> None:
    assert "loras" not in make().to_json()
    for wrong in ({"ref": "../a"}, {"file": "../a.safetensors"}, {"file": "a.pt"}, {"repo": "https://a"}):
        source = {"ref": "boats", "repo": "ada/boats", "file": "boats.safetensors"} | wrong
        with pytest.raises(PresetError):
            make(loras=[source])
