"""The flags of diffusers' text-to-image training scripts, so that their command lines run after `train` unchanged.

What has another name here is renamed; what has no effect is said once, with the reason. A command line that names its
model as the scripts do trains all weights on one square, as they do, unless it says otherwise.
"""

from collections.abc import Sequence

from pipelines.commands.old_flags import Translated

_MODEL = "pretrained_model_name_or_path"
_RENAMED = {
    "dataset_name": "data",
    "train_data_dir": "data",
    "max_train_steps": "steps",
    "num_train_epochs": "epochs",
    "output_dir": "output",
    "gradient_accumulation_steps": "accumulate",
    "validation_prompt": "sample",
    "lora_alpha": "alpha",
    "caption": "caption",
}
_PREPARED = "pictures and captions are encoded once before training, and batches are made ahead by themselves"
_WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("dataloader_num_workers", "loader_prefetch_size", "loader_prefetch_factor", "device_prefetch_size"), _PREPARED
    ),
    "measure_start_step": "the log has every step's time",
    "profile_duration": "a profile covers whole steps; see --profile",
    "print_loss": "every step's loss is in log.jsonl and on the progress bar",
    "cache_dir": "models and rows are kept in the data directory",
    "non_ema_revision": "the weights of the revision that is used are trained",
    "gradient_checkpointing": "--remat auto decides that",
    "use_ema": "--ema names its decay",
    "enable_xformers_memory_efficient_attention": "attention runs in kernels for the device",
    "allow_tf32": "it is of NVIDIA's chips",
    "scale_lr": "give the learning rate that is meant",
    "report_to": "",
}
_TAKES_NOTHING = {
    "print_loss", "gradient_checkpointing", "use_ema", "enable_xformers_memory_efficient_attention", "allow_tf32",
    "scale_lr",
}  # fmt: skip
_DEFAULTS = {"resolution": "512", "global_batch_size": "16", "lr_scheduler": "constant", "snr_gamma": "0",
             "output": "sd-model-finetuned"}  # fmt: skip


def translate(arguments: Sequence[str], *, hosts: int = 1) -> Translated:
    """Returns a `train` command line of today; `hosts` share the scripts' batch, which is one host's."""
    translated = Translated()
    given: dict[str, None] = {}
    words = [*arguments]
    model = None
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            translated.arguments.append(word)
            continue
        flag, has_value, value = word[2:].partition("=")
        name = flag.replace("-", "_")
        if name == _MODEL:
            model = value if has_value else words.pop(0)
        elif name == "train_batch_size":
            count = int(value if has_value else words.pop(0))
            translated.arguments += ["--global-batch-size", str(count * hosts)]
            translated.notes.append(f"--train_batch_size is one host's: {count} x {hosts} = {count * hosts} in all")
            given["global_batch_size"] = None
        elif _WITHOUT_EFFECT.get(name):
            translated.notes.append(f"--{name} has no effect: {_WITHOUT_EFFECT[name]}")
            if not has_value and name not in _TAKES_NOTHING and words:
                words.pop(0)
        else:
            own = _RENAMED.get(name, name)
            given[own] = None
            translated.arguments.append(f"--{own.replace('_', '-')}{has_value}{value}")
    if model is None:
        return translated
    translated.arguments.insert(0, model)
    if not given.keys() & {"lora", "full"}:
        translated.arguments.append("--full")
    for name, default in _DEFAULTS.items():
        if name not in given:
            translated.arguments += [f"--{name.replace('_', '-')}", default]
    translated.notes.append("weights are kept in fp32, whatever is computed in: bf16 alone would hardly learn")
    return translated
