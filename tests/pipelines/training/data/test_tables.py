"""Parquet and arrow files are read by the datasets library, and without it the refusal says how to get it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.training.data.sources import read_examples
from tests.pipelines.training.data.pictures import encode, make_picture, read_well


@pytest.fixture
def arrow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives pyarrow, which comes with datasets; nothing asks the hub."""
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    return pytest.importorskip("pyarrow")


def write_parquet(arrow: Any, file: Path, *, texts: list[Any], column: str = "image") -> None:
    from pyarrow import parquet

    pictures = [{"bytes": encode(make_picture(seed=at)), "path": None} for at in range(len(texts))]
    parquet.write_table(arrow.table({column: pictures, "text": texts}), file)


@pytest.mark.process  # importing datasets takes seconds
def test_tables_of_pictures_are_read(arrow: Any, tmp_path: Path) -> None:
    write_parquet(arrow, tmp_path / "a.parquet", texts=["one", None, "three"])
    found = read_well(tmp_path / "a.parquet", trigger="sks", cache_dir=tmp_path / "cache").examples
    assert [(one.id, one.captions) for one in found] == [
        ("a.parquet#0", ("one",)),
        ("a.parquet#1", ("sks",)),
        ("a.parquet#2", ("three",)),
    ]
    assert {(one.width, one.height) for one in found} == {(24, 16)}
    assert len({one.content for one in found}) == 3 and found[0].content == found[0].reader.hash()
    table = arrow.table({"image": [encode(make_picture())], "text": [["x", "y"]]})
    with arrow.OSFile(str(tmp_path / "b.arrow"), "wb") as file, arrow.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    assert read_well(f"{tmp_path / 'b.arrow'},repeats=2").examples[0].captions == ("x", "y")


@pytest.mark.process
def test_a_table_without_the_column_of_captions_names_those_that_it_has(arrow: Any, tmp_path: Path) -> None:
    write_parquet(arrow, tmp_path / "a.parquet", texts=["one"])
    options = {"caption_column": "caption", "cache_dir": tmp_path / "cache"}
    missing, columns = read_examples([tmp_path / "a.parquet"], **options).problems
    assert "a.parquet#0" in missing and "a.parquet has no column caption" in columns and "it has text." in columns
    assert read_well(tmp_path / "a.parquet", trigger="sks", **options).notes == (columns,)


@pytest.mark.process
def test_a_table_without_pictures_or_with_broken_ones_is_refused_by_name(arrow: Any, tmp_path: Path) -> None:
    import datasets
    from pyarrow import parquet

    write_parquet(arrow, tmp_path / "a.parquet", texts=["one"], column="photo")
    pictures = [{"bytes": b"none", "path": None}, None]
    parquet.write_table(arrow.table({"image": pictures, "text": ["x", "y"]}), tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_bytes(b"PAR1")
    parquet.write_table(arrow.table({"image": [1, 2], "text": ["x", "y"]}), tmp_path / "d.parquet")
    clips = datasets.Dataset.from_dict({"image": [{"bytes": b"none", "path": None}]}).cast(
        datasets.Features({"image": datasets.Video(decode=False)})
    )
    clips.to_parquet(str(tmp_path / "e.parquet"))
    places = [tmp_path / f"{name}.parquet" for name in "abcde"]
    told = "\n".join(read_examples([*places, "no/such"], cache_dir=tmp_path / "cache").problems)
    assert "has no column image; it has photo, text" in told
    assert "b.parquet#0" in told and "b.parquet#1 cannot be used: the row is empty." in told
    assert "d.parquet has no pictures in the column image." in told and "--image_column" in told
    assert "e.parquet has videos in the column image" in told and "into a folder" in told
    assert "c.parquet cannot be read" in told and "no/such cannot be read" in told


def test_without_the_library_the_refusal_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    table, hub = read_examples([tmp_path / "a.parquet", "someone/pictures"]).problems
    assert table.endswith("Run: pip install datasets==5.2.0")
    assert hub.startswith("There is no folder someone/pictures here.")
