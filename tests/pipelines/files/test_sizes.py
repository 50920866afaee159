"""The bytes of files that come and go."""

from pathlib import Path

from pipelines.files.sizes import count_bytes


def test_a_file_that_went_since_it_was_listed_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"four")
    assert count_bytes([tmp_path / "a", tmp_path / "gone.incomplete"]) == 4
