"""Command lines of older scripts still run: every flag is a flag of today, or one line says why it has no effect."""

import itertools
from typing import Any

import pytest

from pipelines.__main__ import build_group, main
from pipelines.commands import old_flags
from pipelines.commands.old_flags import translate
from pipelines.errors import RecipeError
from pipelines.mesh_text import check_mesh

# Every flag of the one-file and staged scripts for SDXL, FLUX.2 and Wan, as people gave it.
FLAGS = (
    "--prompt 'a red boat'",
    "--negative_prompt blurry",
    "--output made.mp4",
    "--height 720",
    "--width 1280",
    "--frames 81",
    "--fps 16",
    "--num_inference_steps 50",
    "--guidance_scale 5.0",
    "--seed 42",
    "--flow_shift 5.0",
    "--warmup_steps 2",
    "--warmup",
    "--remote_encoder",
    "--remote_url http://localhost:8888",
    "--input_dir stage_outputs",
    "--output_dir stage_outputs",
    "--bqsize 3328",
    "--bkvsize 2816",
    "--bkvcomputesize 256",
    "--use_custom_attention",
    "--window_size 4096",
    "--window_size 4096 1024",
    "--use_k_smooth",
    "--use_dp",
    "--use_fsdp",
    "--sp_num 4",
    "--model_id Wan-AI/Wan2.1-T2V-14B-Diffusers",
)
NEEDED = {"generate": ["--model", "wan2.1-14b", "--prompt", "x"], "encode": ["--model", "wan2.1-14b", "--prompt", "x"]}


def know(command: str) -> set[str]:
    options = build_group()
    return {flag.lstrip("-").replace("-", "_") for one in options.commands[command].params for flag in one.opts}


def parse(command: str, arguments: list[str]) -> dict[str, Any]:
    """Reads the arguments as the command does, without running it."""
    options = build_group()
    return (
        options.commands[command]
        .make_context(command, [*arguments], parent=options.make_context("x", ["models"]))
        .params
    )


@pytest.mark.parametrize(("command", "flag"), [*itertools.product(old_flags.COMMANDS, FLAGS)])
def test_every_flag_is_taken_by_every_command_and_a_lost_one_is_told(command: str, flag: str) -> None:
    words = flag.replace("'", "").replace("a red boat", "a-red-boat").split()
    found = translate(command, words, known=know(command))
    values = parse(command, [*NEEDED.get(command, []), *found.arguments])
    name = words[0].removeprefix("--")
    is_kept = bool(found.arguments)
    assert is_kept or any(name in note for note in found.notes)
    taken_as = {"remote_url": "text_encoder_url", "model_id": "model", "sp_num": "mesh"}.get(name, name)
    assert not is_kept or values.get(taken_as) is not None


@pytest.mark.parametrize("command", old_flags.COMMANDS)
def test_all_flags_together_are_one_command_line(command: str) -> None:
    words = [
        word.strip("'") for flag in FLAGS if " 1024" not in flag for word in flag.replace("a red boat", "boat").split()
    ]
    found = translate(command, words, known=know(command))
    values = parse(command, [*NEEDED.get(command, []), *found.arguments])
    assert values["mesh"] == check_mesh("dp=2,sp=4,tp=*")
    assert len(found.notes) >= 6


@pytest.mark.parametrize(
    ("words", "arguments", "note"),
    [
        ("--use_dp --sp_num 2", "--mesh dp=2,sp=2,tp=*", "--use_dp --sp_num 2 is --mesh dp=2,sp=2,tp=* here."),
        ("--sp-num=8", "--mesh sp=8,tp=*", "--sp_num 8 is --mesh sp=8,tp=* here."),
        ("--use_dp", "", "an even number of devices always shares the guidance pair"),
        ("--sp_num 2 --mesh dp=8", "--mesh dp=8", "--mesh is given too"),
        ("--window_size 64 128", "--window-size 128", "a window is as wide before as behind: 128"),
        ("--window_size=64", "--window-size 64", ""),
        ("--bqsize 3328 --seed 1", "--seed 1", "--bqsize 3328 has no effect: the attention kernel chooses its tiles"),
    ],
)
def test_what_means_something_here_is_kept(words: str, arguments: str, note: str) -> None:
    found = translate("generate", words.split(), known=know("generate"))
    assert " ".join(found.arguments) == arguments
    assert note in " ".join(found.notes)
    assert bool(found.notes) == bool(note)


@pytest.mark.parametrize("words", ["--sp_num", "--sp_num many", "--sp_num 0", "--window_size wide"])
def test_a_number_that_is_none_is_refused(words: str) -> None:
    with pytest.raises(RecipeError, match="number"):
        translate("generate", words.split(), known=know("generate"))


@pytest.mark.parametrize("line", ["plan --topology", "compile --model demo-sdxl --topology"])
def test_a_machine_may_have_the_clouds_name(line: str) -> None:
    command, *arguments = line.split()
    assert parse(command, [*arguments, "v5litepod-8"])["topology"] == "v5e-8"


def test_what_has_no_effect_is_told_before_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--model", "nope", "--prompt", "x", "--bqsize", "3328", "--use_fsdp"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["lumesh"] * 3
    assert "--bqsize 3328 has no effect" in lines[0]
    assert "--use_fsdp has no effect" in lines[1]
