"""Flags, then LUMESH_* variables, then defaults; wrong values end with one line."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.models.catalog import load_catalog
from studio.flags import read_settings


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


@pytest.mark.parametrize("name", ["verify_weights", "keep_layouts", "allow_cpu"])
def test_a_switch_of_the_worker_is_off_and_the_worker_is_told_when_it_is_on(name: str) -> None:
    assert not getattr(read_settings([], {}), name)
    settings = read_settings([], {f"LUMESH_{name.upper()}": "yes"})
    assert getattr(settings, name)
    assert getattr(read_settings(settings.worker_flags(), {}), name)
    assert getattr(read_settings([f"--{name.replace('_', '-')}"], {}), name)


def test_shapes_to_prewarm_are_a_list_or_all() -> None:
    assert read_settings([], {}).prewarm == ()
    assert read_settings(["--prewarm", "512x512, 832x480x33"], {}).prewarm == ("512x512", "832x480x33")
    assert read_settings([], {"LUMESH_PREWARM": "all"}).prewarm == ("all",)
    assert read_settings(["--prewarm", "all, 512x512+1,ALL+02"], {}).prewarm == ("all", "512x512+1", "all+2")
    many = read_settings(["--prewarm", "demo-sdxl:256x256*4, 512X512+1*02"], {})
    assert many.prewarm == ("demo-sdxl:256x256*4", "512x512+1*2")
    assert read_settings(many.worker_flags(), {}).prewarm == many.prewarm
    cached = read_settings(["--prewarm", "832x480x33~, demo-flux2:256x256*2~taylor"], {})
    assert cached.prewarm == ("832x480x33~", "demo-flux2:256x256*2~taylor")
    with pytest.raises(SystemExit):
        read_settings(["--prewarm", "512x512~tailor"], {})


def test_a_text_encoder_alone_is_for_flux2_and_a_named_one_for_its_model() -> None:
    klein, dev, wan = (load_catalog().get(name) for name in ("flux2-klein-4b", "flux2-dev", "wan2.1-1.3b"))
    settings = read_settings([], {"LUMESH_TEXT_ENCODER_URL": "http://one:8888", "LUMESH_TEXT_ENCODER_TOKEN": "secret"})
    assert [settings.find_text_encoder(model) for model in (klein, dev, wan)] == ["http://one:8888"] * 2 + [None]
    assert settings.text_encoder_token == "secret"
    assert "secret" not in f"{settings} {settings.worker_flags()}"
    flags = ["--text_encoder_url", "flux2-dev=https://two/predict?a=b, wan=http://three:1"]
    settings = read_settings(flags, {})
    assert [settings.find_text_encoder(model) for model in (klein, dev, wan)] == [
        None,
        "https://two/predict?a=b",
        "http://three:1",
    ]
    assert (
        read_settings(settings.worker_flags(), settings.worker_environment({})).text_encoder_urls
        == settings.text_encoder_urls
    )


def test_a_password_in_an_address_is_not_among_the_workers_arguments() -> None:
    settings = read_settings([], {"LUMESH_TEXT_ENCODER_URL": "http://user:hidden@one:8888"})
    assert "hidden" not in " ".join(settings.worker_flags())
    environment = settings.worker_environment({"PATH": "/bin"})
    assert environment["PATH"] == "/bin"
    assert read_settings(settings.worker_flags(), environment).text_encoder_urls == settings.text_encoder_urls


def test_packs_are_files_and_folders_and_the_data_directorys_own(tmp_path: Path) -> None:
    one, folder, data_dir = tmp_path / "one.pack", tmp_path / "more", tmp_path / "data"
    one.touch()
    folder.mkdir()
    text = os.pathsep.join(map(str, (one, folder)))
    flags = ["--data-dir", str(data_dir)]
    assert read_settings([*flags, "--pack", text], {}).pack_paths == (one, folder)
    (data_dir / "packs").mkdir(parents=True)
    assert read_settings(flags, {"LUMESH_PACKS": text}).pack_paths == (one, folder, data_dir / "packs")
    assert read_settings(flags, {}).pack_paths == (data_dir / "packs",)


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        (["--port", "99999"], {}, "'99999' is not a port"),
        ([], {"LUMESH_PORT": "http"}, "'http' is not a port"),
        (["--workers", "0"], {}, "--workers 0 leaves nobody to make pictures"),
        ([], {"LUMESH_ENGINE": "gpu"}, "'gpu' is not an engine"),
        (["--prot", "1"], {}, "--prot"),
        (["--mesh", "dp=3x"], {}, "'dp=3x' is not a mesh"),
        ([], {"LUMESH_MESH": "two"}, "'two' is not a mesh"),
        (["--prewarm", "512x512,large"], {}, "'large'"),
        ([], {"LUMESH_PREWARM": "512"}, "'512'"),
        (["--prewarm", "512x512+"], {}, "'512x512+': after the + stands a number of pictures"),
        (["--prewarm", "512x512*"], {}, "'512x512*': after the * stands a number of images at once"),
        (["--prewarm", "512x512*4+1"], {}, "'512x512*4+1': after the * stands a number of images at once"),
        (["--prewarm", ":512x512"], {}, "':512x512': before the : stands a model's id"),
        (["--prewarm", "demo-sdxl:large*2"], {}, "'large'"),
        (["--prewarm", "all+0"], {}, "'all+0': after the + stands a number of pictures"),
        (["--pack", "/nowhere/a.pack"], {}, "there is no pack or folder /nowhere/a.pack"),
        ([], {"LUMESH_PACKS": "/nowhere"}, "there is no pack or folder /nowhere"),
        (["--text_encoder_url", "encoder:8888"], {}, "'encoder:8888' is not an address"),
        ([], {"LUMESH_TEXT_ENCODER_URL": "flux2-dev=8888"}, "'8888' is not an address"),
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
    flags = ["--pack", str(tmp_path), "--profile", str(tmp_path / "traces")]
    settings = read_settings(["--data-dir", str(tmp_path), "--model", "a", "--mesh", "dp=2", "--fake", *flags], {})
    assert read_settings(settings.worker_flags(), {}) == settings


@pytest.mark.parametrize(("text", "size"), [("500", 500), ("1.5gb", 1_500_000_000), ("2 TB", 2 * 10**12)])
def test_sizes_are_written_as_people_write_them(text: str, size: int) -> None:
    assert read_settings(["--max-disk", text], {}).max_disk_bytes == size


@pytest.mark.parametrize("flags", [["--max-disk", "lots"], ["--max-disk", "0"], ["--finish-timeout", "-1"]])
def test_sizes_and_seconds_that_cannot_be_meant_end_with_one_line(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(flags, {})
    assert ended.value.code == 2
    assert flags[0] in capsys.readouterr().err


def test_a_space_says_whether_its_disk_lasts(tmp_path: Path) -> None:
    environment = {"SPACE_ID": "me/lumesh"}
    assert read_settings(["--data-dir", str(tmp_path)], environment).is_ephemeral
    assert not read_settings(["--data-dir", "/data/lumesh"], environment).is_ephemeral
    assert not read_settings(["--data-dir", str(tmp_path)], {}).is_ephemeral


def test_a_price_is_dollars_for_a_chip_and_an_hour_and_the_worker_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert read_settings([], {}).chip_price is None
    settings = read_settings([], {"LUMESH_CHIP_PRICE": "2.7"})
    assert settings.chip_price == 2.7
    assert read_settings(settings.worker_flags(), {}).chip_price == 2.7
    for wrong in ("-1", "nan", "two"):
        with pytest.raises(SystemExit):
            read_settings([f"--chip-price={wrong}"], {})
        assert "is not a price" in capsys.readouterr().err


def test_weights_are_each_models_own_unless_they_are_chosen_and_the_worker_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read_settings([], {}).weights is None
    settings = read_settings([], {"LUMESH_WEIGHTS": "int8"})
    assert settings.weights == read_settings(["--weights", "int8"], {}).weights == "int8"
    for weights in ("int8", "full"):
        assert read_settings(replace(settings, weights=weights).worker_flags(), {}).weights == weights
    with pytest.raises(SystemExit):
        read_settings(["--weights", "int4"], {})
    assert "'int4' is not known; use full, int8" in capsys.readouterr().err
