"""The command line of diffusers' training script for TPU runs after `train` unchanged."""

from pathlib import Path

import pytest

from pipelines.commands.old_training_flags import translate

SCRIPT = (
    "--pretrained_model_name_or_path=stabilityai/stable-diffusion-2-base",
    "--dataset_name=lambdalabs/naruto",
    "--resolution=512",
    "--center_crop",
    "--random_flip",
    "--train_batch_size=32",
    "--max_train_steps=50",
    "--learning_rate=1e-06",
    "--mixed_precision=bf16",
    "--profile_duration=80000",
    "--output_dir=/tmp/trained-model/",
    "--dataloader_num_workers=8",
    "--loader_prefetch_size=4",
    "--device_prefetch_size=4",
)


def test_the_scripts_command_line_is_translated_whole() -> None:
    found = translate(SCRIPT, hosts=2)

    assert found.arguments[0] == "stabilityai/stable-diffusion-2-base"
    own = dict(word.removeprefix("--").split("=") for word in found.arguments if "=" in word)
    assert own == {
        "data": "lambdalabs/naruto", "resolution": "512", "steps": "50", "learning-rate": "1e-06",
        "mixed-precision": "bf16", "output": "/tmp/trained-model/",
    }  # fmt: skip
    assert {"--center-crop", "--random-flip", "--full"} <= {*found.arguments}
    assert found.arguments[found.arguments.index("--global-batch-size") + 1] == "64"
    assert found.arguments[found.arguments.index("--lr-scheduler") + 1] == "constant"
    for flag in ("profile_duration", "dataloader_num_workers", "loader_prefetch_size", "device_prefetch_size"):
        assert any(f"--{flag} has no effect" in note for note in found.notes)


@pytest.mark.parametrize("words", [["--dataloader_num_workers", "8"], ["--dataloader_num_workers=8"]])
def test_a_flag_without_effect_takes_its_value_along(words: list[str]) -> None:
    assert translate(["sdxl-base", "--data", "d", *words, "--lora"]).arguments == ["sdxl-base", "--data", "d", "--lora"]


def test_a_command_line_of_ours_stays_as_it_is(tmp_path: Path) -> None:
    words = ["sdxl-base", "--data", str(tmp_path), "--lora", "--rank", "8"]
    found = translate(words)
    assert (found.arguments, found.notes) == (words, [])
