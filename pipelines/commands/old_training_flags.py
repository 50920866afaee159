"""The flags of diffusers' text-to-image training scripts, so that their command lines run after `train` unchanged.

What has another name here is renamed; what has no effect is said once, with the reason. A command line that names its
model as the scripts do trains on one square, as they do, and all weights unless it gives a LoRA's rank or says --lora.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelines.commands.old_flags import Translated
from pipelines.errors import RecipeError
from pipelines.messages import english

_RENAMED = {
    "dataset_name": "data",
    "train_data_dir": "data",
    "max_train_steps": "steps",
    "num_train_epochs": "epochs",
    "output_dir": "output",
    "validation_prompt": "sample",
    "checkpoints_total_limit": "keep",
    "lora_alpha": "alpha",
    "proportion_empty_prompts": "caption_dropout",
}
_PREPARED = "pictures and captions are encoded once before training, and batches are made ahead by themselves"
_STATES = (
    "states are saved every --save_every_minutes and at every stop, and the same command goes on from the last one"
)
_SHOWN = "--report_to names what shows the log"
_CHIPS = "it is of other chips"
_AVERAGE = "the average lies on the devices, as the weights do"
# flag -> what to do in its place, since it says what is learnt; `--model` is that of the other commands
_REFUSED = {
    "model": "stands without a flag: train MODEL --data FOLDER --lora",
    "max_train_samples": "is not known here: name a folder of fewer pictures with --data",
    "dataset_config_name": "is not known here: download that part of the data set, and name its folder with --data",
}
# flag -> whether a value follows, and why it has no effect
_WITHOUT_EFFECT: dict[str, tuple[bool, str]] = {
    **dict.fromkeys(
        ("dataloader_num_workers", "loader_prefetch_size", "loader_prefetch_factor", "device_prefetch_size"),
        (True, _PREPARED),
    ),
    "measure_start_step": (True, "the log has every step's time"),
    "profile_duration": (True, "a profile covers whole steps; see --profile"),
    "print_loss": (False, "every step's loss is in log.jsonl and on the progress bar"),
    "debug_loss": (False, "every step's loss is in log.jsonl and on the progress bar"),
    "cache_dir": (True, "models and rows are kept in the data directory"),
    "gradient_checkpointing": (False, "--remat auto decides that"),
    "enable_xformers_memory_efficient_attention": (False, "attention runs in kernels for the device"),
    "allow_tf32": (False, _CHIPS),
    "enable_npu_flash_attention": (False, _CHIPS),
    "use_8bit_adam": (False, "moments are kept in fp32, in parts on all devices"),
    "offload_ema": (False, _AVERAGE),
    "foreach_ema": (False, _AVERAGE),
    "checkpointing_steps": (True, _STATES),
    "resume_from_checkpoint": (True, _STATES),
    "validation_epochs": (True, "--sample_every says after how many steps there is a sample"),
    "num_validation_images": (True, "there is one sample of each prompt"),
    "logging_dir": (True, _SHOWN),
    "tracker_project_name": (True, _SHOWN),
    "local_rank": (True, "hosts find each other by --coordinator, or by what their pod tells them"),
    "pretrained_vae_model_name_or_path": (True, "the model's own autoencoder is used"),
}
_DEFAULTS = {"resolution": "512", "lr_scheduler": "constant", "snr_gamma": "0", "output": "sd-model-finetuned"}
_BATCH = 16  # these two are the scripts' defaults
_RATE = 1e-4
_DECAY = "0.9999"  # of the scripts' average
_PRECISIONS = {"fp16": "bf16", "fp8": "bf16"}


@dataclass(kw_only=True)
class _Script:
    """What depends on several flags of a command line; `batch` is one host's, of one of `parts`."""

    model: str | None = None
    batch: int | None = None
    parts: int | None = None
    scales_rate: bool = False
    averages: bool = False
    whole_batch: int | None = None
    rate: float | None = None


def translate(arguments: Sequence[str], *, count_hosts: Callable[[], int] = lambda: 1) -> Translated:
    """Returns a `train` command line of today; hosts share the scripts' batch, which is one host's.

    They are counted only where that matters. Raises RecipeError for a number of the scripts' that is none, a flag whose
    value is missing, and one that says what is learnt and has no equal here.
    """
    translated = Translated()
    given: dict[str, None] = {}
    script = _Script()
    words = [*arguments]
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            translated.arguments.append(word)
            continue
        flag, has_value, value = word[2:].partition("=")
        name = flag.replace("-", "_")
        if name in _REFUSED:
            raise RecipeError({name: english(_REFUSED[name])})
        if (read := _READ_FLAGS.get(name)) is not None:
            read(script, value if has_value else _take_value(name, words))
        elif name == "scale_lr":
            script.scales_rate = True
        elif name == "use_ema":
            script.averages = True
        elif name == "validation_prompts":
            prompts = [value] if has_value else []
            while words and not words[0].startswith("--"):
                prompts.append(words.pop(0))
            translated.arguments += [f"--sample={prompt}" for prompt in prompts]
        elif name in _WITHOUT_EFFECT:
            follows, reason = _WITHOUT_EFFECT[name]
            translated.notes.append(f"--{name} has no effect: {reason}")
            if follows and not has_value and words and not words[0].startswith("--"):
                words.pop(0)
        else:
            own = _RENAMED.get(name, name)
            given[own] = None
            if own in ("learning_rate", "global_batch_size"):
                found = _read_number(value if has_value else words[0] if words else "")
                if own == "learning_rate":
                    script.rate = found
                else:
                    script.whole_batch = None if found is None else int(found)
            if own == "mixed_precision":
                value = _translate_precision(value if has_value else _take_value(name, words), translated)
                has_value = "="
            translated.arguments.append(f"--{own.replace('_', '-')}{has_value}{value}")
    _finish(translated, script, given, count_hosts)
    return translated


def _take_value(name: str, words: list[str]) -> str:
    """Takes the next word as a flag's value; raises RecipeError where the line ends, or another flag follows."""
    if not words or words[0].startswith("--"):
        raise RecipeError({name: english("needs a value after it")})
    return words.pop(0)


def _finish(translated: Translated, script: _Script, given: dict[str, None], count_hosts: Callable[[], int]) -> None:
    """Adds what follows from several flags, and where the scripts' defaults are not ours."""
    hosts = 1
    if script.model is not None or script.batch is not None or script.scales_rate:
        hosts = count_hosts()
    is_script = script.model is not None
    parts = script.parts or 1
    if script.batch is None and is_script and "global_batch_size" not in given:
        script.batch = _BATCH
    if script.batch is not None and "global_batch_size" not in given:
        whole = script.batch * parts * hosts
        translated.arguments += ["--global-batch-size", str(whole)]
        factors = " x ".join(str(one) for one in (script.batch, *([parts] if parts > 1 else []), hosts))
        translated.notes.append(f"--train_batch_size is one host's, and one part's: a step learns {factors} = {whole}")
    if script.parts is not None:
        translated.arguments += ["--accumulate", str(parts)]
    if script.averages and "ema" not in given:
        translated.arguments += ["--ema", _DECAY]
        translated.notes.append(f"--use_ema is --ema {_DECAY} here")
    if script.scales_rate and (script.rate is not None or "learning_rate" not in given):  # else it is told as wrong
        whole = script.whole_batch or (script.batch or 1) * parts * hosts
        rate = (script.rate or _RATE) * whole
        translated.arguments += ["--learning-rate", f"{rate:g}"]  # the last one counts
        translated.notes.append(f"--scale_lr: the learning rate is {rate:g}, multiplied by what a step learns")
    if script.model is None:
        return
    translated.arguments.insert(0, script.model)
    if not given.keys() & {"lora", "full"}:
        is_lora = "rank" in given
        translated.arguments.append("--lora" if is_lora else "--full")
        if not is_lora:
            translated.notes.append("all weights learn; --lora or --rank makes a LoRA, as the LoRA scripts do")
    for name, default in _DEFAULTS.items():
        if name not in given:
            translated.arguments += [f"--{name.replace('_', '-')}", default]
    translated.notes.append("weights are kept in fp32, whatever is computed in: bf16 alone would hardly learn")


def _read_model(script: _Script, value: str) -> None:
    script.model = value


def _read_batch(script: _Script, value: str) -> None:
    script.batch = _read_count("train_batch_size", value)


def _read_parts(script: _Script, value: str) -> None:
    script.parts = _read_count("gradient_accumulation_steps", value)


_READ_FLAGS: dict[str, Callable[[_Script, str], None]] = {
    "pretrained_model_name_or_path": _read_model,
    "train_batch_size": _read_batch,
    "gradient_accumulation_steps": _read_parts,
}


FLAGS = (*_READ_FLAGS, *_RENAMED, *_REFUSED, *_WITHOUT_EFFECT, "scale_lr", "use_ema", "validation_prompts")


def _read_count(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise RecipeError({name: english(f"{value!r} is not a whole number above 0")})
    return int(value)


def _read_number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None  # the settings say what is wrong with it


def _translate_precision(value: str, translated: Translated) -> str:
    own = _PRECISIONS.get(value, value)
    if own != value:
        translated.notes.append(f"--mixed_precision={value} is {own} here, which has the range of fp32")
    return own
