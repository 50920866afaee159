"""The files of the studio that a job needs, by hash."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.loras.files import find_lora_file, find_loras
from pipelines.loras.settings import find_adapter_config
from pipelines.recipes.recipe import Lora, Recipe
from studio.cluster.attachments import Attachments
from studio.cluster.stock import Stock
from studio.database import Database
from studio.jobs import queue
from studio.jobs.job import Job
from studio.library.inputs import InputGoneError
from studio.settings import Settings


@pytest.fixture
def ask(database: Database, make_recipe: Callable[..., Recipe]) -> Callable[..., Job]:
    def ask(picture: str, *refs: str) -> Job:
        recipe = make_recipe(model="demo-sdxl", images=(picture,))
        recipe = recipe.model_copy(update={"loras": tuple(Lora(ref=ref) for ref in refs)})
        return queue.submit(database, recipe, owner="local")

    return ask


def test_pictures_and_loras_are_found_and_one_that_changed_is_another(
    settings: Settings,
    database: Database,
    upload: Callable[..., str],
    add_lora: Callable[..., Path],
    ask: Callable[..., Job],
) -> None:
    file = add_lora("pixel", "sdxl")
    job, attachments = ask(upload("green"), "pixel", "elsewhere"), Attachments(settings, database)
    (picture,), (lora,) = attachments.find(job)  # the other LoRA may be on the worker's machine
    assert hashlib.sha256(attachments.read(picture)).hexdigest() == picture.sha
    assert (lora.ref, attachments.read(lora)) == ("pixel", file.read_bytes())
    assert attachments.find_loras(["elsewhere", "pixel"]) == [lora]
    file.write_bytes(b"other")
    _, (changed,) = attachments.find(job)
    assert changed.sha == hashlib.sha256(b"other").hexdigest() != lora.sha


def test_peft_s_description_goes_with_its_lora(
    settings: Settings,
    database: Database,
    upload: Callable[..., str],
    add_lora: Callable[..., Path],
    ask: Callable[..., Job],
) -> None:
    """A worker that lacked it would count the LoRA at another strength."""
    file = add_lora("pixel", "sdxl")
    worker = settings.data_dir / "worker"
    (file.parent / "adapter_config.json").write_text('{"r": 2, "lora_alpha": 8}')
    attachments = Attachments(settings, database)
    _, loras = attachments.find(ask(upload("green"), "pixel"))
    stock = Stock(Settings(host="127.0.0.1", port=0, data_dir=worker))
    for one in loras:
        stock.store(one, attachments.read(one))
    there = find_lora_file("pixel", worker / "loras")
    assert there is not None
    assert there.read_bytes() == file.read_bytes()
    assert find_adapter_config(there) is not None
    assert [one.ref for one in find_loras(worker / "loras")] == ["pixel"]


def test_a_picture_that_is_gone_is_told(
    settings: Settings, database: Database, upload: Callable[..., str], ask: Callable[..., Job]
) -> None:
    job = ask(upload("green"))
    for file in settings.uploads_dir.rglob("*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(InputGoneError):
        Attachments(settings, database).find(job)
