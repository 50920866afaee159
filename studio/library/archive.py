"""Streams many outputs as one zip: neither memory nor disk ever holds the whole of it."""

import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from studio.library.download_names import name_downloads
from studio.library.records import Output

CHUNK_BYTES = 1 << 18
MISSING = "missing.txt"


class _Outbox(io.RawIOBase):
    """The unseekable file object that zipfile writes to; its content is taken out bit by bit."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: bytes, /) -> int:  # pyrefly: ignore[bad-override] - zipfile writes nothing else
        self._parts.append(bytes(content))
        return len(content)

    def take(self) -> bytes:
        """Returns everything written since the last call."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def stream_zip(outputs_dir: Path, outputs: Sequence[Output]) -> Iterator[bytes]:
    """Yields the bytes of the zip, each file named by its prompt and its seed.

    Missing files are listed in `missing.txt` instead of being left out silently. Files are stored, not
    deflated, because pictures and videos are compressed already.
    """
    outbox = _Outbox()
    missing: list[str] = []
    with zipfile.ZipFile(outbox, "w", zipfile.ZIP_STORED) as archive:
        for output, name in name_downloads(outputs):
            file = outputs_dir / output.file
            if not file.is_file():
                missing.append(output.id)
                continue
            entry = zipfile.ZipInfo.from_file(file, name)
            with file.open("rb") as source, archive.open(entry, "w") as target:
                while chunk := source.read(CHUNK_BYTES):
                    target.write(chunk)
                    yield outbox.take()
        if missing:
            archive.writestr(MISSING, "\n".join(("These files are gone from the outputs folder:", *missing, "")))
    yield outbox.take()
