"""Presets as files: one JSON document with its thumbnail inside, or a pack, which is a zip of such documents.

Input is read only up to a preset's maximal size, and nothing of a pack is ever written under its own name. Thumbnails
are decoded and re-encoded, so that only their pixels survive.
"""

import base64
import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PIL import Image

from pipelines.messages import Message, join, say
from studio.library.download_names import make_slug
from studio.library.files import THUMB_SIDE_PX
from studio.library.presets.preset import Preset, PresetError, clean_line, read_preset
from studio.library.uploads import UploadError, decode

MAX_FILE_BYTES = 1_000_000
MAX_PACK_BYTES = 16_000_000
MAX_PACK_FILES = 100
MAX_THUMBNAIL_PIXELS = 4_000_000
_DATA_URL = "data:image/webp;base64,"
MAX_PACK_ENTRIES = 10 * MAX_PACK_FILES  # folders count too
_ZIP_MAGIC = b"PK"
_ZIP_ENTRY = b"PK\1\2"  # signature of each entry of a zip's central directory
# What the standard library raises for damaged or malicious packs; RuntimeError means that one asks for a password.
_PACK_ERRORS = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A file of a pack that is not a valid preset, and why."""

    name: str
    detail: Message


@dataclass(frozen=True, kw_only=True)
class Found:
    """The content of a file: presets with re-encoded thumbnails, and what was refused."""

    presets: tuple[Preset, ...]
    refused: tuple[Refusal, ...] = ()


def read_file(content: bytes) -> Found:
    """Reads a JSON document or a pack; raises PresetError when nothing in it is usable."""
    return _read_pack(content) if content.startswith(_ZIP_MAGIC) else Found(presets=(_read_document(content),))


def write_document(preset: Preset) -> bytes:
    """Returns the preset as the JSON document that is shared."""
    return (json.dumps(preset.to_json(), indent=2, ensure_ascii=False) + "\n").encode()


def write_pack(presets: Iterable[Preset]) -> bytes:
    """Returns a zip of documents, each named by its title."""
    pack = io.BytesIO()
    with zipfile.ZipFile(pack, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, preset in enumerate(presets, 1):
            # A fixed time: equal presets make equal packs.
            entry = zipfile.ZipInfo(f"{number:02}-{name_file(preset)}", (2026, 1, 1, 0, 0, 0))
            archive.writestr(entry, write_document(preset), zipfile.ZIP_DEFLATED)
    return pack.getvalue()


def name_file(preset: Preset) -> str:
    """Returns a file name that resembles the title."""
    return (make_slug(preset.title) or "preset") + ".lumesh.json"


def embed(webp: bytes) -> str:
    """Encodes a WebP as the thumbnail field of a document."""
    return _DATA_URL + base64.b64encode(webp).decode()


def take_thumbnail(preset: Preset) -> bytes | None:
    """Returns the thumbnail as WebP; the preset must come from `read_file`."""
    return base64.b64decode(preset.thumbnail.partition(",")[2]) if preset.thumbnail else None


def draw_thumbnail(picture: Image.Image) -> bytes:
    """Encodes a picture as a WebP of at most 384 px."""
    small = picture.convert("RGB")
    small.thumbnail((THUMB_SIDE_PX, THUMB_SIDE_PX))
    webp = io.BytesIO()
    small.save(webp, "WEBP", quality=82, method=6)
    return webp.getvalue()


def _read_document(content: bytes) -> Preset:
    if len(content) > MAX_FILE_BYTES:
        raise PresetError(
            say("It has more than {size} MB.", size=MAX_FILE_BYTES // 1_000_000),
            advice=say("Make its thumbnail smaller."),
        )
    preset = read_preset(content)
    if preset.thumbnail is None:
        return preset
    try:
        picture = decode(base64.b64decode(preset.thumbnail.partition(",")[2]), max_pixels=MAX_THUMBNAIL_PIXELS).image
    except (UploadError, ValueError) as error:
        message = error.detail if isinstance(error, UploadError) else say("it is not base64")
        raise PresetError(
            say("Its thumbnail cannot be used: {reason}", reason=message), fields={"thumbnail": message}
        ) from error
    return preset.model_copy(update={"thumbnail": embed(draw_thumbnail(picture))})


def _read_pack(content: bytes) -> Found:
    if len(content) > MAX_PACK_BYTES:
        raise PresetError(
            say("The pack has more than {size} MB.", size=MAX_PACK_BYTES // 1_000_000), advice=say("Split it.")
        )
    # Entries are counted before zipfile reads the directory: 16 MB of directory would take 200 MB of memory.
    if (entries := content.count(_ZIP_ENTRY)) > MAX_PACK_ENTRIES:
        raise PresetError(
            say("The pack has {count} entries; at most {limit} files are taken.", count=entries, limit=MAX_PACK_FILES)
        )
    presets: list[Preset] = []
    refused: list[Refusal] = []
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if len(entries) > MAX_PACK_FILES:
                raise PresetError(
                    say(
                        "The pack has {count} files; at most {limit} are taken.",
                        count=len(entries),
                        limit=MAX_PACK_FILES,
                    )
                )
            for entry in entries:
                try:
                    presets.append(_read_document(_read_entry(archive, entry)))
                except PresetError as error:
                    refused.append(Refusal(name=clean_line(entry.filename)[-80:], detail=error.detail))
    except _PACK_ERRORS as error:
        raise PresetError(say("The pack is damaged or not a plain zip."), advice=say("Download it again.")) from error
    if not presets:
        raise PresetError(
            join((say("There is no preset in this pack."), *name_first(refused))),
            advice=say("Choose a pack that Lumesh exported."),
        )
    return Found(presets=tuple(presets), refused=tuple(refused))


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Reads at most a preset's maximal size, whatever the entry's header claims.

    Only stored and deflated entries are accepted: an LZMA header can ask for gigabytes.
    """
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise PresetError(say("It is packed in a way that is not taken."))
    with archive.open(entry) as stream:
        return stream.read(MAX_FILE_BYTES + 1)


def name_first(refused: Sequence[Refusal]) -> list[Message]:
    """Returns the first refusal as a sentence, if there is one."""
    return [say("{name}: {text}", name=one.name, text=one.detail) for one in refused[:1]]
