"""Flags, then LUMESH_* variables, then defaults; wrong values end with one line."""

from pathlib import Path

import pytest

from studio.settings import read_settings


def test_defaults_listen_only_on_this_machine() -> None:
    settings = read_settings([], {})
    assert (settings.host, settings.port, settings.fake, settings.model) == ("127.0.0.1", 7860, False, None)


def test_flags_win_over_variables_and_variables_over_gradios() -> None:
    environment = {
        "GRADIO_SERVER_PORT": "1",
        "LUMESH_PORT": "2",
        "GRADIO_SERVER_NAME": "10.0.0.1",
        "LUMESH_MESH": "dp=2",
    }
    assert read_settings(["--port", "3"], environment).port == 3
    settings = read_settings([], environment)
    assert (settings.port, settings.host, settings.mesh) == (2, "10.0.0.1", "dp=2")


def test_spaces_listen_on_every_address() -> None:
    assert read_settings([], {"SPACE_ID": "me/lumesh"}).host == "0.0.0.0"


def test_dashes_and_underscores_mean_the_same() -> None:
    assert read_settings(["--data_dir", "/x"], {}) == read_settings(["--data-dir", "/x"], {})


@pytest.mark.parametrize(("value", "is_fake"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_fake_can_be_a_variable(value: str, is_fake: bool) -> None:  # noqa: FBT001
    assert read_settings([], {"LUMESH_FAKE": value}).fake is is_fake


def test_shapes_to_prewarm_are_a_list_or_all() -> None:
    assert read_settings([], {}).prewarm == ()
    assert read_settings(["--prewarm", "512x512, 832x480x33"], {}).prewarm == ("512x512", "832x480x33")
    assert read_settings([], {"LUMESH_PREWARM": "all"}).prewarm == ("all",)


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        (["--port", "99999"], {}, "'99999' is not a port"),
        ([], {"LUMESH_PORT": "http"}, "'http' is not a port"),
        (["--engine", "ray"], {}, "ray is not available yet"),
        ([], {"LUMESH_ENGINE": "gpu"}, "'gpu' is not an engine"),
        (["--prot", "1"], {}, "--prot"),
        (["--prewarm", "512x512,large"], {}, "'large'"),
        ([], {"LUMESH_PREWARM": "512"}, "'512'"),
    ],
)
def test_a_wrong_value_ends_with_one_line(
    flags: list[str], environment: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        read_settings(flags, environment)
    assert ending.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_the_worker_is_started_with_the_same_settings(tmp_path: Path) -> None:
    settings = read_settings(["--data-dir", str(tmp_path), "--model", "a", "--mesh", "dp=2", "--fake"], {})
    assert read_settings(settings.worker_flags(), {}) == settings
