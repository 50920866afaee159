"""Files on a worker's machine are what their hash says, where families look for them, and not more than fit."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.loras.files import find_lora_file
from pipelines.loras.settings import ADAPTER_MODEL
from studio.cluster import stock as module
from studio.cluster.protocol import Attachment
from studio.cluster.stock import Stock
from studio.settings import Settings


@pytest.fixture
def stock(tmp_path: Path) -> Stock:
    return Stock(Settings(host="127.0.0.1", port=0, data_dir=tmp_path))


def attach(content: bytes, name: str = "sea.png", ref: str = "") -> Attachment:
    return Attachment(sha=hashlib.sha256(content).hexdigest(), name=name, size=len(content), ref=ref)


def test_a_picture_is_sent_once_and_again_when_it_changed_here(stock: Stock) -> None:
    one = attach(b"sea")
    assert stock.list_missing([one]) == [one]
    stock.store(one, b"sea")
    assert stock.list_missing([one]) == []
    assert stock.find(one).name == f"{one.sha}.png"
    stock.find(one).write_bytes(b"tea")
    assert stock.list_missing([one]) == [one]


def test_a_lora_lies_under_its_ref_and_another_of_the_same_name_replaces_it(stock: Stock, tmp_path: Path) -> None:
    old, new = attach(b"old", "pixel.safetensors", "styles/pixel"), attach(b"new", "pixel.safetensors", "styles/pixel")
    stock.store(old, b"old")
    assert (tmp_path / "loras" / "styles" / "pixel.safetensors").read_bytes() == b"old"
    assert stock.list_missing([new]) == [new]
    stock.store(new, b"new")
    assert stock.list_missing([old, new]) == [old]


def test_a_folder_of_pefts_replaces_a_file_of_its_ref(stock: Stock, tmp_path: Path) -> None:
    old, new = attach(b"old", "pixel.safetensors", "pixel"), attach(b"new", ADAPTER_MODEL, "pixel")
    stock.store(old, b"old")
    stock.store(new, b"new")
    found = find_lora_file("pixel", tmp_path / "loras")
    assert found is not None and found.read_bytes() == b"new"


@pytest.mark.parametrize("ref", ["../../evil", "/etc/evil"])
def test_a_name_that_leads_elsewhere_is_refused(stock: Stock, ref: str) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        stock.store(attach(b"evil", ref=ref), b"evil")


def test_bytes_that_are_not_what_they_are_said_to_be_are_refused(stock: Stock) -> None:
    with pytest.raises(ValueError, match=r"sea\.png"):
        stock.store(attach(b"sea"), b"tea")


def test_the_oldest_pictures_make_room(stock: Stock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 5)
    for age, content in enumerate((b"abc", b"def")):
        stock.store(attach(content), content)
        os.utime(stock.find(attach(content)), (age, age))
    stock.store(attach(b"gh"), b"gh")
    assert stock.list_missing([attach(b"abc"), attach(b"def"), attach(b"gh")]) == [attach(b"abc")]


def test_all_of_a_job_that_needs_more_than_is_kept_is_there_when_it_begins(
    stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 5)
    wanted = {attach(content): content for content in (b"abc", b"def", b"ghi", b"jkl")}
    here = attach(b"abc")
    stock.store(here, b"abc")
    os.utime(stock.find(here), (1, 1))
    for one in stock.list_missing([*wanted]):
        stock.store(one, wanted[one])
    assert stock.list_missing([*wanted]) == []

    for one in wanted:
        os.utime(stock.find(one), (1, 1))
    stock.store(attach(b"mno"), b"mno")
    assert stock.list_missing([*wanted]) == [*wanted], "a later job has its room"


def test_workers_of_one_machine_store_at_once(tmp_path: Path) -> None:
    """What one of them sees in the folder may be written to its end, and have another name, as it looks at it."""

    def store(worker: int) -> None:
        stock = Stock(Settings(host="127.0.0.1", port=0, data_dir=tmp_path))
        for number in range(60):
            content = f"{worker} {number}".encode()
            stock.store(attach(content), content)
            assert stock.list_missing([attach(content)]) == []

    with ThreadPoolExecutor() as pool:
        for stored in [pool.submit(store, worker) for worker in range(3)]:
            stored.result()
