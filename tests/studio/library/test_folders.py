"""What the data directory takes, and emptying a folder of it."""

from pathlib import Path

from studio.library.folders import empty_folder, measure_folder, measure_parts
from studio.settings import Settings


def test_each_part_is_measured_and_a_missing_one_is_empty(settings: Settings) -> None:
    day = settings.outputs_dir / "2026-11-22"
    day.mkdir(parents=True)
    (day / "a.png").write_bytes(b"12345")
    settings.database_file.write_bytes(b"123")
    Path(f"{settings.database_file}-wal").write_bytes(b"12")
    parts = {part.name: part for part in measure_parts(settings)}
    assert (parts["outputs"].bytes, parts["outputs"].files) == (5, 1)
    assert (parts["database"].bytes, parts["database"].files) == (5, 2)
    assert (parts["models"].bytes, parts["models"].files) == (0, 0)


def test_emptying_leaves_the_folder_and_what_links_lead_to(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    for one in (folder / "deep", elsewhere):
        one.mkdir(parents=True)
        (one / "file").write_bytes(b"1234")
    (folder / "link").symlink_to(elsewhere)
    assert empty_folder(folder) == (4, 1)
    assert list(folder.iterdir()) == []
    assert measure_folder(elsewhere) == (4, 1)
    assert empty_folder(tmp_path / "nothing") == (0, 0)
