"""`--lora` on the command line: from the loras folder or a file anywhere, through all stages, refused in one line."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.__main__ import main
from pipelines.commands.asked import read_loras
from pipelines.files.metadata import read_recipe_of
from pipelines.generate import generate
from pipelines.recipes.recipe import Lora, Recipe
from tests.pipelines.made_loras import RANK, draw_pairs, save_tensors, write_peft

SETTINGS = "--num_inference_steps 4 --guidance_scale 4 --seed 5"

Run = Callable[[str], int]


@pytest.fixture
def run(data_dir: Path, keep_loaded: None, tmp_path: Path) -> Run:
    """Runs a command line on the tests' data directory; `{out}` is this test's folder."""

    def run(line: str) -> int:
        arguments = [part.replace("{out}", str(tmp_path)) for part in shlex.split(line)]
        return main([*arguments, "--data-dir", str(data_dir)])

    return run


@pytest.fixture(name="expected")
def make_expected(
    family: Any, borrow: Callable[[Any], Any], draw_recipe: Callable[..., Recipe], tmp_path: Path
) -> np.ndarray:
    """The picture with `ink` at 0.5; the same LoRA lies in this test's folder as `elsewhere.v2`."""
    pairs = draw_pairs(family, "unet", "text_encoder", seed=7)
    write_peft(family.model.loras_dir / "ink.safetensors", pairs)
    write_peft(tmp_path / "elsewhere.v2.safetensors", pairs)
    recipe = draw_recipe(prompt="a red boat", loras=[{"ref": "ink", "scale": 0.5}])
    return generate(borrow(family), recipe).pixels[0]


def read_picture(file: Path) -> np.ndarray:
    with Image.open(file) as picture:
        return np.asarray(picture)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ink", ("ink", 1.0)),
        ("ink:0.5", ("ink", 0.5)),
        ("ink:-1e-1", ("ink", -0.1)),
        ("ink:v2", ("ink:v2", 1.0)),
        ("ink:v2:0.3", ("ink:v2", 0.3)),
        ("ink.safetensors:2", ("ink", 2.0)),
        ("/files/ink.v2.safetensors:0.7", ("/files/ink.v2", 0.7)),
    ],
)
def test_a_scale_may_follow_the_name(given: str, expected: tuple[str, float]) -> None:
    assert read_loras([given]) == [{"ref": expected[0], "scale": expected[1]}]


def test_a_link_of_the_hub_s_cache_is_a_file_of_the_link_s_name(tmp_path: Path) -> None:
    """There a snapshot's files are links to blobs, which have no suffix."""
    (tmp_path / "blob").touch()
    (tmp_path / "ink.safetensors").symlink_to(tmp_path / "blob")
    assert read_loras([f"{tmp_path}/ink.safetensors"]) == [{"ref": f"{tmp_path}/ink", "scale": 1.0}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ink:0.5@high", {"ref": "ink", "scale": 0.5, "expert": "high"}),
        ("ink@LOW", {"ref": "ink", "scale": 1.0, "expert": "low"}),
        ("wan/ink.SAFETENSORS:3@both", {"ref": "wan/ink", "scale": 3.0, "expert": "both"}),
        ("ink@home", {"ref": "ink@home", "scale": 1.0}),
    ],
)
def test_an_expert_may_follow_the_scale(given: str, expected: dict[str, Any]) -> None:
    assert read_loras([given]) == [expected]


def test_no_option_is_no_wish() -> None:
    assert read_loras(None) is None
    assert read_loras([]) is None


@pytest.mark.parametrize(
    ("lora", "ref"),
    [("ink:0.5", "ink"), ("{out}/elsewhere.v2.safetensors:0.5", "elsewhere.v2"), ("{out}/peft:0.25", "peft")],
)
def test_generate_merges_it_and_the_file_names_it(
    run: Run, expected: np.ndarray, tmp_path: Path, lora: str, ref: str
) -> None:
    """The header of a folder that peft has saved is read too, and its description doubles the scale here."""
    folder = tmp_path / "peft"
    folder.mkdir()
    shutil.copyfile(tmp_path / "elsewhere.v2.safetensors", folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": RANK, "lora_alpha": 2 * RANK}))
    command = f"generate --model tiny --prompt 'a red boat' {SETTINGS} --mesh dp=1 --output {{out}}/a.png --lora {lora}"
    assert run(command) == 0
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png"), expected)
    assert read_recipe_of(tmp_path / "a.png").loras == (Lora(ref=ref, scale=0.25 if ref == "peft" else 0.5),)


def test_the_stages_carry_it(run: Run, expected: np.ndarray, tmp_path: Path, family: Any) -> None:
    assert run("encode --model tiny --prompt 'a red boat' --mesh dp=1 --output_dir {out} --lora ink:0.5") == 0
    assert run(f"denoise --input_dir {{out}} --mesh dp=1 {SETTINGS}") == 0
    (family.model.loras_dir / "ink.safetensors").unlink()
    assert run("decode --input_dir {out} --mesh dp=1") == 0
    np.testing.assert_array_equal(read_picture(tmp_path / "output_image.png"), expected)
    assert read_recipe_of(tmp_path / "output_image.png").loras == (Lora(ref="ink", scale=0.5),)


def test_denoise_may_have_others_than_encode(run: Run, expected: np.ndarray, tmp_path: Path) -> None:
    assert run("encode --model tiny --prompt 'a red boat' --mesh dp=1 --output_dir {out} --lora ink:0.5") == 0
    assert run(f"denoise --input_dir {{out}} --mesh dp=1 {SETTINGS} --lora ink:0") == 0
    assert "loras" not in json.loads((tmp_path / "generation_config.json").read_text())
    assert run("decode --input_dir {out} --mesh dp=1") == 0
    assert (read_picture(tmp_path / "output_image.png") != expected).any()


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ("pencil", "there is no LoRA 'pencil' here"),
        ("{out}/pencil.safetensors", "pencil.safetensors is not there"),
        ("{out}", "adapter_model.safetensors is not there"),
        ("{out}/checkpoint.safetensors", "checkpoint.safetensors cannot be used: it holds nothing of a LoRA"),
        ("ink:21", "ink has a scale of 21.0; allowed: -20.0 to 20.0"),
        ("ink@high", "ink is for the high expert, and tiny has only one; leave the expert out"),
    ],
)
@pytest.mark.usefixtures("expected")
def test_what_cannot_be_used_is_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, lora: str, message: str
) -> None:
    save_tensors(tmp_path / "checkpoint.safetensors", {"unet.conv_in.weight": np.zeros(1)})
    assert run(f"generate --model tiny --prompt 'a red boat' --output {{out}}/a.png --lora {lora}") == 2
    error = capsys.readouterr().err
    assert message in " ".join(error.split())
    assert "Traceback" not in error
