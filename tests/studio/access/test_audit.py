"""Lines are appended by anybody, and files end before they are too large."""

import json
import stat
from pathlib import Path

from studio.access.audit import KEPT_FILES, Audit


def test_each_note_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "audit.jsonl"
    Audit(file).note("login.failed", name="a\nb", address="1.2.3.4")
    Audit(file).note("prompt.refused", prompt="x" * 5000)
    first, second = map(json.loads, file.read_text("utf-8").splitlines())
    assert (first["what"], first["name"], first["address"]) == ("login.failed", "a\nb", "1.2.3.4")
    assert first["at"].endswith("Z")
    assert len(second["prompt"]) == 2000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_full_files_move_on_and_the_oldest_goes(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl", max_bytes=200)
    for number in range(30):
        audit.note("n", number=number, text="x" * 60)
    files = sorted(tmp_path.glob("audit.jsonl*"))
    assert len(files) == KEPT_FILES + 1
    assert all(file.stat().st_size <= 200 for file in files)
    assert json.loads((tmp_path / "audit.jsonl").read_text().splitlines()[-1])["number"] == 29
