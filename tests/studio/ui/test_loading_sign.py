"""Gradio's script of its loading sign is answered with two places changed, or not at all."""

import logging
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from studio.ui import loading_sign

NAME = "statustracker-abc.js"
(COUNTING, RESTING), (SWINGING, HARD) = loading_sign.CHANGES


def _serve(assets: Path) -> TestClient:
    app = FastAPI()
    app.include_router(loading_sign.make_router(assets))
    return TestClient(app)


def test_the_gradio_that_is_required_has_each_place_once(caplog: pytest.LogCaptureFixture) -> None:
    (file,) = loading_sign.ASSETS.glob(loading_sign.NAME)
    sent = _serve(loading_sign.ASSETS).get(f"/assets/{file.name}")
    assert sent.text == file.read_text("utf-8").replace(COUNTING, RESTING).replace(SWINGING, HARD)
    assert sent.text.count(RESTING) == sent.text.count(HARD) == 1
    assert not caplog.records


def test_it_goes_out_as_gradios_other_files_and_never_for_ever(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(f"{COUNTING};{SWINGING}")
    sent = _serve(tmp_path).get(f"/assets/{NAME}", headers={"Accept-Encoding": "br"})
    assert sent.text == f"{RESTING};{HARD}"
    assert sent.headers["content-type"].startswith("text/javascript")
    assert sent.headers["content-encoding"] == "br"
    assert sent.headers["vary"] == "Accept-Encoding"
    assert "cache-control" not in sent.headers  # its name says nothing of what is changed in it
    (tmp_path / NAME).write_text(f"{COUNTING};{SWINGING};")
    assert _serve(tmp_path).get(f"/assets/{NAME}").headers["etag"] != sent.headers["etag"]


@pytest.mark.parametrize("texts", [{}, {NAME: COUNTING}, {NAME: COUNTING + SWINGING * 2}])
def test_a_gradio_that_is_not_known_sends_its_own_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, texts: dict[str, str]
) -> None:
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    with caplog.at_level(logging.WARNING):
        assert _serve(tmp_path).get(f"/assets/{NAME}").status_code == 404  # so the request goes on to Gradio's routes
    (warning,) = caplog.records
    assert "statustracker-*.js" in warning.getMessage()
