"""Clips over REST: written anew without what tells more, for their owner's trainings of models of videos alone."""

import asyncio
import dataclasses
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import imageio_ffmpeg
import numpy as np
import pytest
from fastapi.testclient import TestClient

from pipelines.files.foreign_video import measure_video
from pipelines.models.catalog import Catalog
from studio.access.turns import Turns
from studio.access.users import Users
from studio.access_settings import Mode
from studio.api.application import create_api
from studio.api.middleware import limits
from studio.context import CLIPS_TOO_MANY
from studio.database import Database
from studio.library import uploaded_clips
from studio.library.uploaded_clips import MAX_BYTES
from studio.library.uploads import Quota
from studio.settings import Settings
from studio.worker.learning import Learnt, Lesson
from studio.worker.loop import Worker
from tests.conftest import wait_for
from tests.studio.scopes import make_scope

URL = "/api/v1/clips"
Film = Callable[..., bytes]


@pytest.fixture
def film(tmp_path: Path) -> Film:
    """Films a test card, as a phone does: with its sound, and where it was."""

    def film(*options: str, seconds: float = 1.0, size: str = "96x64") -> bytes:
        file = tmp_path / "film.mp4"
        card, sound = f"testsrc2=s={size}:r=10:d={seconds}", f"sine=d={seconds}"
        command = [
            imageio_ffmpeg.get_ffmpeg_exe(),
            "-v",
            "error",
            "-f",
            "lavfi",
            "-i",
            card,
            "-f",
            "lavfi",
            "-i",
            sound,
        ]
        coded = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-c:a", "aac", "-metadata", "location=+48.85+002.29/")
        subprocess.run([*command, *coded, *options, "-y", str(file)], check=True)
        return file.read_bytes()

    return film


def bring(client: TestClient, content: bytes) -> Any:
    return client.post(URL, content=content, headers={"Content-Type": "video/mp4"})


def test_a_clip_comes_back_as_its_frames_alone(client: TestClient, film: Film, tmp_path: Path) -> None:
    content = film()
    assert b"loci" in content
    answer = bring(client, content)
    assert answer.status_code == 201
    clip = answer.json()
    assert (clip["width"], clip["height"], clip["frames"], clip["notes"]) == (96, 64, 10, [])
    kept = client.get(clip["url"])
    assert kept.headers["content-type"] == "video/mp4"
    assert b"loci" not in kept.content and b"mp4a" not in kept.content
    assert client.get(clip["thumb_url"]).headers["content-type"] == "image/webp"
    assert bring(client, content).json()["id"] == clip["id"], "the same again is the same clip"


def test_what_no_training_learns_is_not_kept_which_is_told(
    client: TestClient, film: Film, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploaded_clips, "KEPT_S", 2.0)
    monkeypatch.setattr(uploaded_clips, "KEPT_SIDE_PX", 64)
    clip = bring(client, film(seconds=4)).json()
    assert clip["notes"] == ["Of its 4 s the first 2 are kept."]
    (tmp_path / "kept.mp4").write_bytes(client.get(clip["url"]).content)
    size = measure_video(tmp_path / "kept.mp4")
    assert (size.width, size.height, size.frames) == (64, 42, 20)


@pytest.mark.parametrize(
    ("seconds", "notes"),
    [(6.0, ["Of its 6 s the first 2 are kept."]), (2.8, ["Its first 2 s are kept."]), (2.2, [])],
)
def test_a_clip_that_does_not_say_its_length_is_told_to_be_cut(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, seconds: float, notes: list[str]
) -> None:
    """What browsers record has no length in its header."""
    monkeypatch.setattr(uploaded_clips, "KEPT_S", 2.0)
    card = ("-f", "lavfi", "-i", f"testsrc2=s=96x64:r=10:d={seconds}")
    live = ("-c:v", "libvpx", "-live", "1", "-f", "webm", "-")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *card, *live]
    content = subprocess.run(command, check=True, capture_output=True).stdout
    assert bring(client, content).json()["notes"] == notes


@pytest.mark.parametrize("content", [b"", b"hello", b"ffconcat version 1.0\nfile /etc/hostname\n"])
def test_what_is_no_video_is_refused_and_leaves_nothing(client: TestClient, settings: Any, content: bytes) -> None:
    answer = bring(client, content)
    assert answer.status_code == 422
    assert answer.json()["error"]["title"] == "This video cannot be used"
    assert not [*settings.uploads_dir.iterdir()]


def test_a_single_frame_is_a_picture(client: TestClient, film: Film) -> None:
    answer = bring(client, film("-frames:v", "1"))
    assert (answer.status_code, answer.json()["error"]["detail"]) == (422, "It has a single frame.")


def test_a_slideshow_of_which_one_picture_would_be_kept_is_a_picture(
    client: TestClient, settings: Settings, film: Film, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploaded_clips, "KEPT_S", 2.0)
    answer = bring(client, film("-r", "1/4", seconds=12))
    assert (answer.status_code, answer.json()["error"]["detail"]) == (422, "It has a single frame.")
    assert not [*settings.uploads_dir.iterdir()]


def test_a_form_is_told_how_to_send_the_file(client: TestClient, film: Film) -> None:
    answer = client.post(URL, files={"file": film()})
    assert (answer.status_code, answer.json()["error"]["detail"]) == (422, "A form is no video.")
    assert "--data-binary" in answer.json()["error"]["advice"]


def test_past_the_quota_nothing_is_read_or_kept(client: TestClient, settings: Settings, film: Film) -> None:
    usual = client.app.state.studio
    client.app.state.studio = dataclasses.replace(usual, trainer_quota=Quota(bytes=100))
    assert bring(client, film()).status_code == 429, "it would not fit"
    assert not [*settings.uploads_dir.iterdir()]
    client.app.state.studio = dataclasses.replace(usual, trainer_quota=Quota(pictures=1))
    assert bring(client, film()).status_code == 201
    kept = sorted(settings.uploads_dir.iterdir())
    assert bring(client, b"hello").status_code == 429, "refused before anything looks at it"
    assert sorted(settings.uploads_dir.iterdir()) == kept


def test_a_clip_that_was_not_read_for_a_reason_of_the_servers_may_be_sent_again(
    client: TestClient, settings: Settings, film: Film, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, killed = film(), tmp_path / "ffmpeg"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o700)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(killed))
    answer = bring(client, content)
    assert (answer.status_code, answer.json()["error"]["advice"]) == (503, "Try again.")
    assert not [*settings.uploads_dir.iterdir()]


@pytest.fixture
def slow_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing a clip anew takes a minute."""
    slow, real = tmp_path / "ffmpeg", imageio_ffmpeg.get_ffmpeg_exe()
    writes = 'for plain; do :; done; echo > "$plain"; exec sleep 60'
    slow.write_text(f'#!/bin/sh\ncase "$*" in *libx264*) {writes};; esac\nexec {real} "$@"\n')
    slow.chmod(0o700)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(slow))


@pytest.mark.usefixtures("slow_ffmpeg")
def test_a_server_that_stops_does_not_wait_for_a_clip(
    client: TestClient, settings: Settings, film: Film, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("IMAGEIO_FFMPEG_EXE")
        content = film()

    async def bring_it() -> None:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(client.app), base_url="http://testserver"
        ) as browser:
            await browser.post(URL, content=content)

    bringing = client.portal.start_task_soon(bring_it)
    wait_for("the clip to be written anew", lambda: [*settings.uploads_dir.glob("*.plain.part")])
    bringing.cancel()
    wait_for("its thread to end", lambda: not [*settings.uploads_dir.iterdir()], timeout_s=30.0)


@pytest.mark.usefixtures("slow_ffmpeg")
def test_of_a_clip_whose_sender_leaves_nothing_is_kept_and_the_next_one_is_read(
    client: TestClient,
    settings: Settings,
    film: Film,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("IMAGEIO_FFMPEG_EXE")
        content = film()
    has_left = threading.Event()

    async def bring_it() -> None:
        parts = iter([{"type": "http.request", "body": content, "more_body": False}])

        async def receive() -> dict[str, Any]:
            if (part := next(parts, None)) is not None:
                return part
            await asyncio.to_thread(has_left.wait)
            return {"type": "http.disconnect"}

        async def send(_message: dict[str, Any]) -> None:
            pass

        await client.app(make_scope(URL, [(b"content-length", str(len(content)).encode())]), receive, send)

    bringing = client.portal.start_task_soon(bring_it)
    wait_for("the clip to be written anew", lambda: [*settings.uploads_dir.glob("*.plain.part")])
    has_left.set()
    bringing.result(timeout=30.0)
    wait_for("its thread to end", lambda: not [*settings.uploads_dir.iterdir()], timeout_s=30.0)
    assert "Traceback" not in caplog.text
    monkeypatch.delenv("IMAGEIO_FFMPEG_EXE")
    assert bring(client, content).status_code == 201


def test_a_picture_does_not_wait_for_clips(
    client: TestClient, film: Film, encode_picture: Callable[..., bytes]
) -> None:
    turn, films = client.app.state.studio.clip_turn, [film(), film(size="64x64")]
    with ThreadPoolExecutor() as pool:
        with client.portal.wrap_async_context_manager(turn.take("somebody")):
            clips = [pool.submit(bring, client, content) for content in films]
            assert client.post("/api/v1/uploads", files={"file": encode_picture()}).status_code == 201
            assert not any(clip.done() for clip in clips)
        assert [clip.result().status_code for clip in clips] == [201, 201]


def test_clips_of_one_client_beyond_a_few_are_not_received_before_these_are_read(
    client: TestClient, film: Film
) -> None:
    studio, content = client.app.state.studio, film()
    few = Turns(each=1, all_=2, waiting=0, refusal=CLIPS_TOO_MANY)
    client.app.state.studio = dataclasses.replace(studio, clip_room=few)
    with ThreadPoolExecutor() as pool:
        with client.portal.wrap_async_context_manager(studio.clip_turn.take("somebody")):
            clips = [pool.submit(bring, client, content) for _ in range(2)]
            wait_for("one to be refused", lambda: any(clip.done() for clip in clips))
        answers = [clip.result() for clip in clips]
    assert sorted(answer.status_code for answer in answers) == [201, 429]
    [refused] = [answer for answer in answers if answer.status_code == 429]
    assert refused.json()["error"]["detail"] == "Too many clips of yours are on their way or wait to be read."
    assert refused.headers["Retry-After"] == "10"


def test_a_clip_is_learnt_by_its_owner_alone(
    settings: Settings, database: Database, catalog: Catalog, film: Film
) -> None:
    people = frozenset(("ada", "bob"))
    access = dataclasses.replace(settings.access, mode=Mode.PASSWORD, who_may_train=people)
    api, users = create_api(dataclasses.replace(settings, access=access), database, catalog), Users(settings.users_file)
    clients = {}
    for name in people:
        users.add(name, password=None, is_admin=False)
        clients[name] = TestClient(api, headers={"Authorization": f"Bearer {users.add_token(name)}"})
    clip = bring(clients["ada"], film()).json()
    asked = {"model": "demo-wan", "name": "card", "pictures": [{"id": clip["id"], "caption": "A card"}]}
    refused = clients["bob"].post("/api/v1/trainings", json=asked)
    assert refused.status_code == 422
    assert refused.json()["error"]["fields"]["pictures.0.id"].startswith("there is no picture")
    assert clients["bob"].get(clip["url"]).status_code == 404
    assert clients["ada"].post("/api/v1/trainings", json=asked).status_code == 201


def test_a_clip_of_a_blink_is_shown_to_the_operators_hook(client: TestClient, worker: Worker, film: Film) -> None:
    clip = bring(client, film("-frames:v", "3")).json()
    assert clip["frames"] == 3
    asked = {"model": "demo-wan", "name": "card", "pictures": [{"id": clip["id"], "caption": "A card"}], "steps": 2}
    training = client.post("/api/v1/trainings", json=asked).json()["id"]
    seen: list[np.ndarray] = []
    worker.image_hook = lambda *, owner, recipe, pixels: seen.append(pixels)
    worker.run_next()
    assert client.get(f"/api/v1/trainings/{training}").json()["job"]["state"] == "done"
    assert seen[0].shape == (1, 64, 96, 3)


def test_a_clip_of_too_many_bytes_is_refused_before_it_comes_or_as_it_does(
    client: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = client.post(URL, content=b"x", headers={"Content-Length": str(MAX_BYTES + 1)})
    assert answer.status_code == 413
    monkeypatch.setitem(limits.BODIES, URL, limits.Body(limit=2_000_000, is_file=True))
    answer = client.post(URL, content=(b"x" * 1_000_000 for _ in range(3)))
    assert (answer.status_code, answer.json()["error"]["detail"]) == (413, f"A request to {URL} may have 2 MB.")
    assert not [*settings.uploads_dir.iterdir()]


def test_a_model_of_videos_learns_clips_and_pictures(
    client: TestClient, worker: Worker, film: Film, upload: Callable[..., str]
) -> None:
    clip = bring(client, film()).json()["id"]
    pictures = [{"id": clip, "caption": "A card"}, {"id": upload(), "caption": "Red"}]
    asked = {"model": "demo-wan", "name": "card", "pictures": pictures, "steps": 2, "preserve": False}
    answer = client.post("/api/v1/trainings", json=asked)
    assert answer.status_code == 201
    seen: list[str] = []
    usual = worker.learn

    def learn(lesson: Lesson) -> Learnt:
        seen.extend(sorted(file.name for file in Path(lesson.settings.data[0]).iterdir()))
        return usual(lesson)

    worker.learn = learn
    worker.run_next()
    assert seen == ["0001.mp4", "0001.txt", "0002.png", "0002.txt"]
    done = client.get(f"/api/v1/trainings/{answer.json()['id']}").json()
    assert done["job"]["state"] == "done"
    assert [one["is_video"] for one in done["pictures"]] == [True, False]
    assert (done["pictures_count"], done["clips_count"]) == (2, 1)
    still, moving = (client.get(done["samples"][-1]["url"], params=one) for one in ({}, {"moving": True}))
    assert still.content != moving.content, "all of it, not its middle frame"

    made = client.get("/api/v1/outputs").json()["outputs"][0]["id"]
    again = asked | {"name": "again", "pictures": [{"id": made, "caption": "A card"}]}
    assert client.post("/api/v1/trainings", json=again).status_code == 201, "what was made here is a clip, too"


def test_a_clip_is_nothing_for_a_model_of_pictures(client: TestClient, film: Film) -> None:
    clip = bring(client, film()).json()["id"]
    asked = {"model": "demo-sdxl", "name": "card", "pictures": [{"id": clip, "caption": "A card"}]}
    fields = client.post("/api/v1/trainings", json=asked).json()["error"]["fields"]
    assert "is a video" in fields["pictures.0.id"]
    recipe = {"model": "flux2-klein-4b", "prompt": "A card", "images": [clip]}
    assert client.post("/api/v1/jobs", json=recipe).status_code == 422
