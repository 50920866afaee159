"""The worker's log stays small while somebody writes to it."""

from pathlib import Path

from studio.worker.logs import KEPT, open_log, rotate


def test_a_log_is_rotated_under_its_writers_hands(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "worker.log"
    with open_log(file) as writer:
        for number in range(KEPT + 2):
            writer.write(f"part {number}\n".encode())
            writer.flush()
            rotate(file, max_bytes=3)
        writer.write(b"now\n")
        writer.flush()
        rotate(file, max_bytes=1000)
    assert file.read_text("utf-8") == "now\n"
    older = sorted(path.name for path in file.parent.iterdir())
    assert older == ["worker.log", *(f"worker.log.{number}" for number in range(1, KEPT + 1))]
    assert (file.parent / "worker.log.1").read_text("utf-8") == f"part {KEPT + 1}\n"
    assert (file.parent / f"worker.log.{KEPT}").read_text("utf-8") == "part 2\n"
