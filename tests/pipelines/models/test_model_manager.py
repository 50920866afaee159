"""Models of one's own are described, added and removed, and what is none is refused before anything is written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.errors import ModelError
from pipelines.models.catalog import PRESETS_DIR, load_catalog, read_data_dir
from pipelines.models.description import describe_model
from pipelines.models.fingerprints import CONFIGS_DIR
from pipelines.models.model_manager import add_file, add_folder, remove_model
from tests.hub import COMMIT, REPO, make_environment, run_hub
from tests.pipelines.models.test_single_files import VAE, XL_TEXT, list_unet, list_wan, write_header
from tests.places import ROOT

DEMO = PRESETS_DIR / "demo" / "demo-sdxl"


@pytest.fixture
def pony(tmp_path: Path) -> Path:
    return write_header(tmp_path / "pony.safetensors", list_unet() | XL_TEXT, **{"modelspec.license": "Fair AI"})


def list_data(data_dir: Path) -> set[str]:
    return {file.relative_to(data_dir).as_posix() for file in data_dir.rglob("*") if not file.is_dir()}


def test_a_file_is_added_described_and_removed(tmp_path: Path, pony: Path) -> None:
    home, seen = tmp_path / "data", list[tuple[int, int]]()
    assert add_file(home, pony, on_bytes=lambda *done: seen.append(done)) == "pony"
    size = pony.stat().st_size
    assert seen[-1] == (size, size)
    described = describe_model(read_data_dir(home).get("pony"))
    assert (described.family, described.dtype, described.size_bytes, described.licence) == (
        "SDXL", "fp16", size, "Fair AI",
    )  # fmt: skip
    assert {name: str(what) for name, what in described.lacking.items()} == {"vae": "from sdxl-base"}
    assert described.fits["v6e-8"] is True
    dev = describe_model(load_catalog().get("flux2-dev"))
    assert (dev.fits["v5e-1"], dev.fits_in_int8["v5e-8"]) == (False, True)
    assert remove_model(home, "pony") == [str(home / "models" / "pony.safetensors")]
    assert list_data(home) == set()
    assert pony.exists()


def test_what_is_linked_stays_where_it_lies(tmp_path: Path, pony: Path) -> None:
    home = tmp_path / "data"
    assert add_file(home, pony, name="civitai/Pony V6", links=True) == "civitai-pony-v6"
    assert add_folder(home, DEMO, name="cards", links=True) == "cards"
    assert read_data_dir(home).get("cards").path == home / "models" / "cards"
    for model_id in ("civitai-pony-v6", "cards"):
        remove_model(home, model_id)
    assert not [*(home / "models").iterdir()]
    assert pony.exists()
    assert (DEMO / "model_index.json").exists()


def test_a_folder_is_copied_whole(tmp_path: Path) -> None:
    assert add_folder(tmp_path, DEMO, name="cards") == "cards"
    described = describe_model(read_data_dir(tmp_path).get("cards"))
    assert (described.layout, described.dtype) == ("diffusers folder", "fp16")
    remove_model(tmp_path, "cards")
    assert list_data(tmp_path) == set()


def test_what_is_none_of_ours_leaves_nothing_behind(tmp_path: Path, pony: Path) -> None:
    home = tmp_path / "data"
    vae = write_header(tmp_path / "vae.safetensors", VAE)
    pruned = write_header(tmp_path / "ssd.safetensors", list_unet(depths=(0, 2, 4)))
    for file, told in ((vae, "an autoencoder"), (pruned, "those of no SDXL")):
        with pytest.raises(ModelError, match=told):
            add_file(home, file)
    with pytest.raises(ModelError, match="weights"):
        add_folder(home, CONFIGS_DIR / "sdxl-base")
    for name in ("../out", "/etc/x", ".hidden", "a/../../b", "a/b/c/d/e", "---"):
        with pytest.raises(ModelError, match="cannot be a model's name"):
            add_file(home, pony, name=name)
    assert list_data(home) == set()
    add_file(home, pony)
    with pytest.raises(ModelError, match="called pony already"):
        add_file(home, pony)
    with pytest.raises(ModelError, match="called sdxl-base already"):
        add_file(home, pony, name="sdxl-base")
    with pytest.raises(ModelError, match="comes with Lumesh"):
        remove_model(home, "sdxl-base")
    with pytest.raises(ModelError, match="There is no model"):
        remove_model(home, "nothing")


def test_removing_an_entry_leaves_the_rest_of_the_file_as_it_is(tmp_path: Path, pony: Path) -> None:
    before = '# mine\n[[model]]\nid = "sdxl-base"\nsteps = 30 # more\n\n'
    entry = f'[[model]]\nid = "wide"\nfile = "{pony}"\n\n'
    after = '[[model]]\nid = "demo-sdxl"\nsteps = 5\n'
    (tmp_path / "models.toml").write_text(before + entry + after, "utf-8")
    assert remove_model(tmp_path, "wide") == [f"{tmp_path / 'models.toml'}: wide"]
    assert (tmp_path / "models.toml").read_text("utf-8") == before + after
    assert pony.exists(), "it lies elsewhere"


_OPEN = f"""
from pipelines.commands.train import find_model
from pipelines.models.catalog import load_catalog
model = find_model(load_catalog(), {REPO!r})
"""
"""What `train` does with a repository that no model of the catalogue comes from."""
_KNOWN = """
from pipelines.training.configs import find_known_configs
print(find_known_configs(model).name)
"""


@pytest.mark.process
def test_a_repository_is_added_at_the_commit_that_it_is_at(tmp_path: Path) -> None:
    configs = CONFIGS_DIR / "sdxl-base"
    files = {
        file.relative_to(configs).as_posix(): file.read_bytes() for file in configs.rglob("*.json") if file.is_file()
    }
    for component in ("unet", "vae", "text_encoder", "text_encoder_2"):
        files[f"{component}/model.fp16.safetensors"] = files[f"{component}/model.safetensors"] = b"weights"
    home = tmp_path / "data"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return start("-m", "pipelines", "models", *words, "--data-dir", str(home))

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=make_environment(hub, tmp_path),
            capture_output=True,
            text=True,
            timeout=60,
        )

    with run_hub(files) as hub:
        hub.licence = "openrail++"
        trained = start(
            "-c", f"{_OPEN}print(model.repo, model.revision, model.variant, model.family, model.licence)\n{_KNOWN}"
        )
        assert trained.stdout.split() == [REPO, COMMIT, "fp16", "sdxl", "openrail++", COMMIT], trained.stderr
        assert not home.exists()
        refused = run("add", REPO, "--name", "mine", "--variant", "fp32")
        done = run("add", REPO, "--name", "mine")
        assert done.returncode == 0, done.stderr
        assert not any("safetensors" in name for name in hub.fetched())
        unknown = run("add", "someone/else")
    offline = start("-c", f"{_OPEN}print(model.repo, model.revision, model.family)")
    assert offline.stdout.split() == [REPO, COMMIT, "sdxl"], offline.stderr
    assert "the hub cannot be reached" in run("add", REPO, "--name", "again").stderr
    assert "The hub knows no repository someone/else" in unknown.stderr
    assert "has no weights of the variant fp32. It has fp16: name one of them, or none." in refused.stderr
    assert (home / "models.toml").read_text("utf-8") == (
        f'[[model]]\nid = "mine"\nlike = "sdxl-base"\nrepo = "{REPO}"\nrevision = "{COMMIT}"\nvariant = "fp16"\n'
        'licence = "openrail++"\n'
    )
    model = read_data_dir(home).get("mine")
    assert (model.repo, model.revision, model.variant, model.family) == (REPO, COMMIT, "fp16", "sdxl")
    told = json.loads(run("info", "mine", "--json").stdout)
    assert (told["revision"], told["size_bytes"], told["layout"]) == (COMMIT, None, "diffusers folder on the hub")
    assert told["licence"] == "openrail++"


@pytest.mark.process
def test_a_model_is_downloaded_before_its_first_job(tmp_path: Path) -> None:
    with run_hub() as hub:
        (tmp_path / "models.toml").write_text(
            f'[[model]]\nid = "own"\nlike = "sdxl-base"\nvariant = "fp16"\nrepo = "{REPO}"\nrevision = "{COMMIT}"\n'
        )
        command = [sys.executable, "-m", "pipelines", "models", "download", "own", "--data-dir", str(tmp_path)]
        done = subprocess.run(command, env=make_environment(hub, tmp_path), cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "own is on this machine\n"), done.stderr
    assert any((tmp_path / "hf").rglob("*.fp16.safetensors"))


def test_two_experts_that_are_added_become_one_model(tmp_path: Path) -> None:
    home = tmp_path / "data"
    high = write_header(tmp_path / "wan2.2_t2v_High_Noise_14B_fp8.safetensors", list_wan(), dtype="F8_E4M3")
    low = write_header(tmp_path / "wan2.2_t2v_Low_Noise_14B_fp8.safetensors", list_wan(), dtype="F8_E4M3")
    assert add_file(home, low, links=True) == ""
    assert [one.name for one in read_data_dir(home).unusable] == ["wan2.2_t2v_Low_Noise_14B_fp8"]
    assert add_file(home, high, links=True) == "wan2.2-t2v-14b-fp8"
    catalog = read_data_dir(home)
    model = catalog.get("wan2.2-t2v-14b-fp8")
    assert (model.file, model.file_2) == (home / "models" / high.name, home / "models" / low.name)
    assert (model.program_id, catalog.unusable) == ("wan2.2-a14b", ())
    assert len(remove_model(home, model.id)) == 3
    assert list_data(home) <= {"models.toml", ".models.toml.lock"}
    assert low.exists()


def test_what_is_not_the_other_half_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "data"
    add_file(home, write_header(tmp_path / "a_high_noise.safetensors", list_wan(), dtype="F8_E4M3"), links=True)
    other = write_header(tmp_path / "a_low_noise.safetensors", list_wan(width=1536), dtype="F8_E4M3")
    with pytest.raises(ModelError, match="no Wan here"):
        add_file(home, other, links=True)
    assert [file.name for file in (home / "models").iterdir()] == ["a_high_noise.safetensors"]
    remove_model(home, "a-high-noise")
    assert not [*(home / "models").iterdir()]
