"""The command line of diffusers' training script for TPU runs after `train` unchanged."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest
from typer.models import OptionInfo

from pipelines.commands.host_flags import count_hosts, find_address, is_first_host
from pipelines.commands.old_training_flags import translate
from pipelines.commands.train import build_command
from pipelines.errors import RecipeError
from pipelines.runtime.devices.hosts import Address

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
    found = translate(SCRIPT, count_hosts=lambda: 2)

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


README_LINES = {
    "train_text_to_image": """--pretrained_model_name_or_path=SD --dataset_name=D --use_ema --resolution=512
        --center_crop --random_flip --train_batch_size=1 --gradient_accumulation_steps=4 --gradient_checkpointing
        --max_train_steps=15000 --learning_rate=1e-05 --max_grad_norm=1 --enable_xformers_memory_efficient_attention
        --lr_scheduler=constant --lr_warmup_steps=0 --output_dir=O --mixed_precision=fp16""",
    "train_text_to_image_lora": """--pretrained_model_name_or_path=SD --dataset_name=D --caption_column=text
        --resolution=512 --random_flip --train_batch_size=1 --num_train_epochs=100 --checkpointing_steps=5000
        --learning_rate=1e-04 --lr_scheduler=constant --lr_warmup_steps=0 --seed=42 --output_dir=O
        --validation_prompt=cute --report_to=wandb --rank=4 --resume_from_checkpoint latest --use_8bit_adam
        --checkpoints_total_limit 3 --validation_epochs 5 --num_validation_images 4 --scale_lr""",
}


@pytest.mark.parametrize("line", README_LINES.values(), ids=README_LINES)
def test_command_lines_of_the_scripts_readmes_are_settings_of_ours(line: str) -> None:
    found = translate(line.split())
    options = inspect.signature(build_command()).parameters.values()
    known = {word.split("/")[0] for option in options for word in _list_flags(option)}
    unknown = [
        word for word in found.arguments if word.startswith("--") and word.split("=")[0].replace("_", "-") not in known
    ]
    assert not unknown


def test_parts_of_a_batch_multiply_it_as_in_the_scripts() -> None:
    line = README_LINES["train_text_to_image"].split()
    for words in (line, line[::-1]):  # in whatever order
        found = translate(words, count_hosts=lambda: 2).arguments
        assert [found[found.index(flag) + 1] for flag in ("--global-batch-size", "--accumulate")] == ["8", "4"]
        assert (found[found.index("--ema") + 1], "--mixed-precision=bf16" in found) == ("0.9999", True)


def test_a_scripts_rank_makes_a_lora_and_its_rate_is_scaled_by_what_a_step_learns() -> None:
    words = README_LINES["train_text_to_image_lora"].replace("batch_size=1", "batch_size=2").split()
    found = translate(words, count_hosts=lambda: 2).arguments
    assert "--lora" in found and "--full" not in found
    assert found[found.index("--learning-rate") + 1] == "0.0004"


@pytest.mark.parametrize("flag", ["train_batch_size", "gradient_accumulation_steps"])
def test_a_count_that_is_none_is_told(flag: str) -> None:
    with pytest.raises(RecipeError, match="whole number"):
        translate(["--pretrained_model_name_or_path=SD", f"--{flag}", "many"])


def test_hosts_are_counted_as_told_or_as_their_pod_says_and_only_where_a_batch_is_one_hosts() -> None:
    pod = Address(coordinator="a:1", processes=8, process=3)
    assert count_hosts(["--processes", "2"], lambda: pod) == 2
    assert count_hosts(["--processes=4"], lambda: pod) == 4
    assert (count_hosts([], lambda: pod), count_hosts([], lambda: None)) == (8, 1)
    found = translate(SCRIPT, count_hosts=lambda: count_hosts([], lambda: pod)).arguments
    assert found[found.index("--global-batch-size") + 1] == "256"

    def refuse() -> int:
        raise AssertionError("a command line of ours needs no count")

    translate(["sdxl-base", "--data", "d", "--lora"], count_hosts=refuse)


@pytest.mark.parametrize("flag", ["train_batch_size", "pretrained_model_name_or_path", "mixed_precision"])
@pytest.mark.parametrize("after", [[], ["--lora"]])
def test_a_flag_without_its_value_is_told(flag: str, after: list[str]) -> None:
    with pytest.raises(RecipeError, match="needs a value"):
        translate(["sdxl-base", f"--{flag}", *after])


@pytest.mark.parametrize("flag", ["max_train_samples", "dataset_config_name"])
def test_a_flag_that_says_what_is_learnt_is_not_passed_over(flag: str) -> None:
    with pytest.raises(RecipeError, match="--data"):
        translate(["sdxl-base", f"--{flag}=3"])


@pytest.mark.parametrize("words", [["--model", "demo-sdxl"], ["--model=demo-sdxl"]])
def test_a_model_named_as_other_commands_name_it_is_told_how_this_one_does(words: list[str]) -> None:
    with pytest.raises(RecipeError, match="train MODEL --data FOLDER"):
        translate([*words, "--data", "d", "--lora"])


def test_empty_prompts_are_the_dropout_of_captions() -> None:
    assert translate(["--proportion_empty_prompts", "0.2"]).arguments == ["--caption-dropout", "0.2"]


@pytest.mark.parametrize("words", [["--dataloader_num_workers", "8"], ["--dataloader_num_workers=8"]])
def test_a_flag_without_effect_takes_its_value_along(words: list[str]) -> None:
    assert translate(["sdxl-base", "--data", "d", *words, "--lora"]).arguments == ["sdxl-base", "--data", "d", "--lora"]


def test_a_command_line_of_ours_stays_as_it_is(tmp_path: Path) -> None:
    words = ["sdxl-base", "--data", str(tmp_path), "--lora", "--rank", "8"]
    found = translate(words)
    assert (found.arguments, found.notes) == (words, [])


def _list_flags(option: inspect.Parameter) -> Sequence[str]:
    found = next((one for one in get_args(option.annotation) if isinstance(one, OptionInfo)), None)
    return [f"--{option.name.replace('_', '-')}", *(found.param_decls or () if found is not None else ())]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("m --learning_rate abc --scale_lr", ["--learning_rate", "abc"]),
        ("m --ema 0.99 --use_ema", ["--ema", "0.99"]),
        ("m --cache_dir --data d", ["--data", "d"]),
    ],
)
def test_what_is_given_by_itself_counts_before_what_follows_from_a_flag(words: str, told: list[str]) -> None:
    assert [one.replace("-", "_") for one in translate(words.split()).arguments] == [
        "m",
        *(w.replace("-", "_") for w in told),
    ]


def test_a_scaled_rate_is_multiplied_by_a_whole_batch_that_is_given() -> None:
    found = translate(["m", "--global_batch_size", "32", "--scale_lr", "--learning_rate", "1e-5"]).arguments
    assert found[found.index("--learning-rate", found.index("--learning-rate") + 1) + 1] == "0.00032"


def test_the_first_host_alone_tells_what_became_of_flags() -> None:
    second = Address(coordinator="10.0.0.2:8476", processes=8, process=1)
    assert is_first_host([], lambda: None) and not is_first_host([], lambda: second)
    assert is_first_host(["--process", "0"], lambda: second) and not is_first_host(["--process=3"], lambda: None)


def test_a_host_that_ends_early_knows_its_place_by_its_own_words() -> None:
    words = ["--no-such-flag", "--coordinator=10.0.0.2:8476", "--processes", "2", "--process=1"]
    assert find_address(words) == Address(coordinator="10.0.0.2:8476", processes=2, process=1)
    assert find_address(words[1:2]) is None and find_address([*words[1:4], "--process=x"]) is None
