"""Many outputs travel as one zip that is never held whole."""

import io
import zipfile
from collections.abc import Callable

from studio.library.archive import CHUNK_BYTES, stream_zip
from studio.library.records import Output
from studio.settings import Settings


def test_the_zip_holds_the_files_as_they_are(settings: Settings, add_output: Callable[..., Output]) -> None:
    outputs = [add_output(has_files=True), add_output(has_files=True, model="clips")]
    with zipfile.ZipFile(io.BytesIO(b"".join(stream_zip(settings.outputs_dir, outputs)))) as found:
        assert found.testzip() is None
        contents = {name: found.read(name) for name in found.namelist()}
    files = [settings.outputs_dir / output.file for output in outputs]
    assert list(contents.values()) == [file.read_bytes() for file in files]
    names = [f"a-red-sailboat-{output.seed}{file.suffix}" for output, file in zip(outputs, files, strict=True)]
    assert list(contents) == names


def test_it_comes_in_parts_no_longer_than_what_is_read_at_once(
    settings: Settings, add_output: Callable[..., Output]
) -> None:
    output = add_output(has_files=True)
    (settings.outputs_dir / output.file).write_bytes(bytes(4 * CHUNK_BYTES))
    parts = list(stream_zip(settings.outputs_dir, [output]))
    assert len(parts) == 5
    assert max(map(len, parts)) < CHUNK_BYTES + 300  # and an entry's or the zip's own lines


def test_a_file_that_is_gone_is_named(settings: Settings, add_output: Callable[..., Output]) -> None:
    here, gone = add_output(has_files=True), add_output()
    with zipfile.ZipFile(io.BytesIO(b"".join(stream_zip(settings.outputs_dir, [gone, here])))) as found:
        assert len(found.namelist()) == 2
        assert gone.id in found.read("missing.txt").decode()
