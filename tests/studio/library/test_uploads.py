"""Uploads: pictures alone, without what came with them, as long as somebody may still want them."""

import io
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from studio.database import Database
from studio.jobs.job import Job
from studio.jobs.training import MAX_PICTURES
from studio.library import uploads
from studio.library.uploads import (
    MAX_BYTES,
    TRAINER_QUOTA,
    UNUSED_KEPT_S,
    UPLOAD_QUOTA,
    Quota,
    UploadError,
    UploadQuotaError,
    UploadTooLargeError,
    decode,
)
from studio.settings import Settings

Encode = Callable[..., bytes]


def age(database: Database) -> None:
    """All uploads are now a second older than unused ones are kept."""
    with database.write() as tx:
        tx.execute("UPDATE uploads SET created_at = created_at - ?", (UNUSED_KEPT_S + 1,))


def list_files(settings: Settings) -> list[str]:
    return sorted(file.name for file in settings.uploads_dir.iterdir())


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "AVIF"])
def test_the_kinds_of_the_web_are_taken(encode_picture: Encode, kind: str) -> None:
    picture = decode(encode_picture("#204060", kind=kind)).image
    assert (picture.mode, picture.size) == ("RGB", (60, 40))
    assert np.abs(np.asarray(picture, int) - (0x20, 0x40, 0x60)).max() <= 4


def test_a_photo_is_turned_upright_and_tells_nothing_about_its_camera(
    database: Database, settings: Settings, encode_picture: Encode
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # held sideways
    exif[0x010F] = "Camera of Ada"
    content = encode_picture(kind="JPEG", exif=exif, icc_profile=b"profile", comment=b"At home")
    upload = uploads.add(database, settings.uploads_dir, content, owner="local")
    assert (upload.width, upload.height) == (40, 60)
    file = settings.uploads_dir / upload.file
    assert upload.bytes == file.stat().st_size
    with Image.open(file) as kept:
        assert (kept.format, kept.size, kept.info, dict(kept.getexif())) == ("PNG", (40, 60), {}, {})
    assert not any(word in file.read_bytes() for word in (b"Ada", b"home", b"profile"))


def test_text_in_a_png_is_not_kept(encode_picture: Encode) -> None:
    chunks = PngImagePlugin.PngInfo()
    chunks.add_itxt("lumesh", '{"prompt": "secret"}')
    assert decode(encode_picture(pnginfo=chunks)).image.info == {}


@pytest.mark.parametrize("content", [b"", b"hello", b"%PDF-1.7"])
def test_what_is_no_picture_is_refused(content: bytes) -> None:
    with pytest.raises(UploadError, match=r"not a picture of a known kind\. PNG, JPEG, .* are read"):
        decode(content)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_torn_picture_is_refused(kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (80, 80, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    with pytest.raises(UploadError, match=r"(damaged|not a picture of a known kind)"):
        decode(file.getvalue()[: len(file.getvalue()) // 2])


@pytest.mark.parametrize("side_px", [8_200, 10_000, 30_000])
def test_too_many_pixels_are_refused_before_they_are_decoded(encode_picture: Encode, side_px: int) -> None:
    """A short file whose header promises a large picture: pillow would warn of the second and refuse the third."""
    small = encode_picture()
    header = side_px.to_bytes(4) * 2
    bomb = small[:16] + header + small[24:29] + _checksum(b"IHDR" + header + small[24:29]) + small[33:]
    with pytest.raises(
        UploadTooLargeError, match=r"pixels\. A JPEG may have 150 megapixels, a WebP 40, others 65; make it smaller"
    ):
        decode(bomb)


def _checksum(chunk: bytes) -> bytes:
    return zlib.crc32(chunk).to_bytes(4)


def test_too_many_bytes_are_refused(encode_picture: Encode) -> None:
    with pytest.raises(UploadTooLargeError, match=r"It has 20\.0 MB\. At most 20 MB"):
        decode(encode_picture() + bytes(MAX_BYTES))


def test_a_picture_brought_twice_is_one_and_everybody_has_their_own_id(
    database: Database, settings: Settings, upload: Callable[..., str]
) -> None:
    assert upload("red") == upload("red")
    assert len({upload("red"), upload("blue"), upload("red", owner="her")}) == 3
    assert len(list_files(settings)) == 4, "two pictures, two thumbnails"


def test_a_file_that_was_lost_comes_back_with_the_picture(settings: Settings, upload: Callable[..., str]) -> None:
    before = upload()
    for file in settings.uploads_dir.iterdir():
        file.unlink()
    assert upload() == before
    assert len(list_files(settings)) == 2


def test_what_no_job_uses_goes_after_a_day(
    database: Database, settings: Settings, upload: Callable[..., str], submit: Callable[..., Job]
) -> None:
    used, unused = upload("red"), upload("blue")
    submit(model="flux2-klein-4b", images=[used])
    age(database)
    fresh = upload("green")
    uploads.forget_unused(database, settings.uploads_dir, now_s=time.time())
    found = {upload_id: uploads.read_upload(database, upload_id) for upload_id in (used, unused, fresh)}
    assert found[unused] is None
    kept = [found[used], found[fresh]]
    assert list_files(settings) == sorted(name for upload in kept for name in (upload.file, upload.thumb))


def test_a_picture_that_somebody_else_has_too_stays(
    database: Database, settings: Settings, upload: Callable[..., str]
) -> None:
    upload()
    age(database)
    hers = uploads.read_upload(database, upload(owner="her"))
    uploads.forget_unused(database, settings.uploads_dir, now_s=time.time())
    assert (settings.uploads_dir / hers.file).is_file()
    assert [row["owner"] for row in database.read("SELECT owner FROM uploads")] == ["her"]


def test_a_picture_brought_again_is_new_again(
    database: Database, settings: Settings, upload: Callable[..., str]
) -> None:
    upload_id = upload()
    age(database)
    upload()
    uploads.forget_unused(database, settings.uploads_dir, now_s=time.time())
    assert Path(settings.uploads_dir / uploads.read_upload(database, upload_id).file).is_file()


def test_an_owner_may_keep_so_many_pictures_waiting(
    database: Database, settings: Settings, encode_picture: Encode, submit: Callable[..., Job]
) -> None:
    def bring(colour: str, owner: str = "local") -> str:
        content = encode_picture(colour)
        return uploads.add(database, settings.uploads_dir, content, owner=owner, quota=Quota(pictures=2)).id

    red = bring("red")
    bring("blue")
    with pytest.raises(UploadQuotaError, match=r"used yet: 2 \(0 MB\); at most 2 .* unused are deleted after a day"):
        bring("green")
    assert len(list_files(settings)) == 4, "nothing of the refused one is kept"
    assert bring("red") == red, "the same picture takes no more room"
    bring("green", owner="her")
    submit(model="flux2-klein-4b", images=[red])
    bring("green")


def test_all_pictures_of_a_training_may_wait_at_once_for_those_who_may_train(database: Database) -> None:
    photo = {"owner": "ada", "width": 4000, "height": 3000, "bytes": 20_000_000, "created_at": time.time()}
    with database.write() as tx:
        for number in range(MAX_PICTURES - 1):
            tx.execute(
                "INSERT INTO uploads (id, owner, sha, width, height, bytes, created_at) "
                "VALUES (:id, :owner, :id, :width, :height, :bytes, :created_at)",
                photo | {"id": f"upload-{number}"},
            )
    uploads.check_room(database, owner="ada", quota=TRAINER_QUOTA)
    with pytest.raises(UploadQuotaError, match="at most 200"):
        uploads.check_room(database, owner="ada", quota=UPLOAD_QUOTA)


def test_an_owner_may_keep_so_many_bytes_waiting(
    database: Database, settings: Settings, upload: Callable[..., str], encode_picture: Encode
) -> None:
    kept = uploads.read_upload(database, upload("red")).bytes
    content = encode_picture("blue")
    with pytest.raises(UploadQuotaError):
        uploads.add(database, settings.uploads_dir, content, owner="local", quota=Quota(bytes=2 * kept - 1))
    uploads.add(database, settings.uploads_dir, content, owner="local", quota=Quota(bytes=2 * kept + 9))
