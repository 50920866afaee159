"""A training's work as one file, to go on elsewhere: the newest state, the LoRA it began from, the engine's samples.

The same work makes the same bytes, so that nobody sends what the other side has. Pictures and what the page shows are
not in it: whoever trains has the pictures, and only the studio has a page.
"""

import io
import shutil
import zipfile
from collections.abc import Container, Iterator
from pathlib import Path, PurePosixPath

from pipelines.files.whole import write_whole
from studio.library.training_files import DATA, SHOWN

UNFINISHED = "tmp"  # in the name of a state that is being written (orbax)
LEFT_OUT = (DATA, SHOWN)


def is_being_written(folder: Path) -> bool:
    """Tells whether a state is not whole yet."""
    return any(UNFINISHED in entry.name for entry in folder.glob("*/*"))


def pack(folder: Path, *, leaves_out: Container[str] = LEFT_OUT) -> bytes | None:
    """Returns what a training needs to go on; None where there is nothing of it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(_list_files(folder, leaves_out)):
            archive.writestr(zipfile.ZipInfo(str(PurePosixPath(file.relative_to(folder)))), file.read_bytes())
        is_empty = not archive.namelist()
    return None if is_empty else packed.getvalue()


def unpack(packed: bytes, folder: Path, *, leaves_out: Container[str] = LEFT_OUT) -> None:
    """Replaces a training's work by what was packed; raises ValueError for names that lead out of the folder."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        names = [PurePosixPath(name) for name in archive.namelist()]
        for name in names:
            if name.is_absolute() or ".." in name.parts or name.parts[0] in leaves_out:
                raise ValueError(f"{name} is no file of a training's work")
        forget(folder, leaves_out=leaves_out)
        for name in names:
            write_whole(folder / name, archive.read(str(name)))


def forget(folder: Path, *, leaves_out: Container[str] = LEFT_OUT) -> None:
    """Deletes a training's work, but neither its pictures nor what the page shows."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name in leaves_out:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _list_files(folder: Path, leaves_out: Container[str]) -> Iterator[Path]:
    """Yields the files of the work: of states, which lie in folders of their steps, only of the newest."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name in leaves_out or entry.name.startswith("."):
            continue
        if entry.is_file():
            yield entry
            continue
        steps = [int(one.name) for one in entry.iterdir() if one.name.isdecimal()]
        for file in entry.rglob("*"):
            top = file.relative_to(entry).parts[0]
            is_old = top.isdecimal() and int(top) != max(steps, default=0)
            if file.is_file() and not is_old and UNFINISHED not in top:
                yield file
