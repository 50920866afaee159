"""Runs one side of `bench train` in a process of its own, which bench/process.py starts and reads."""

import time

STARTED = time.perf_counter()  # before any heavy import

import math  # noqa: E402
import resource  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from pipelines.commands.bench.checkpoint import place_in  # noqa: E402
from pipelines.commands.bench.compare_runner import read_jax_peak, read_torch_peak  # noqa: E402
from pipelines.commands.bench.process import answer  # noqa: E402
from pipelines.models.catalog import Model, read_data_dir  # noqa: E402

LUMESH, EVERY_STEP, ENCODED_BEFORE = "lumesh", "diffusers, encoding each step", "diffusers, encoded before"
FAMILIES = ("sd", "sdxl")
WARM_UP = 5
"""Steps that are not counted."""
FEWEST = WARM_UP + 5
"""Steps of a run, of which some are left to count."""
RATE = 1e-4
SNR_GAMMA = 5.0


@dataclass(kw_only=True)
class Watch:
    """Notes when each step is over, and what it lost."""

    ends: list[float] = field(default_factory=list[float])
    processor: list[float] = field(default_factory=list[float])
    losses: list[float] = field(default_factory=list[float])

    def note(self, loss: float) -> None:
        self.ends.append(time.perf_counter())
        self.processor.append(time.process_time())
        self.losses.append(loss)

    def describe(self, *, batch: int, precision: str, learnt: int, late: int = 0) -> dict[str, Any]:
        """Returns the figures. Where steps are told `late`, so many steps later, the last ones are not counted.

        They are told at once, as no step follows.
        """
        last = len(self.ends) - 1 - late
        counted = last - (WARM_UP - 1)
        step_s = (self.ends[last] - self.ends[WARM_UP - 1]) / counted
        return {
            "precision": precision,
            "first_step_s": self.ends[0] - STARTED,
            "step_s": step_s,
            "step_cpu_s": (self.processor[last] - self.processor[WARM_UP - 1]) / counted,
            "pictures_per_s": batch / step_s,
            "loss": sum(self.losses) / len(self.losses),
            "learnt": learnt,
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,  # kilobytes on Linux
        }


def run_lumesh(task: dict[str, Any]) -> dict[str, Any]:
    """Trains by the product's own `train`, whose events are timed."""
    from safetensors import safe_open

    from pipelines import registry
    from pipelines.training.checks import check_training
    from pipelines.training.engine.loop import LATE, Stop
    from pipelines.training.place import Place
    from pipelines.training.run import train
    from pipelines.training.settings import read_settings

    folder, model = Path(task["folder"]), _find_model(task)
    registry.start_jax(folder / "cache", allow_cpu=True)
    kind = {"full": True} if task["full"] else {"lora": True, "rank": task["rank"]}
    settings = read_settings(
        {"model": model.id, "data": (task["data"],), "steps": task["steps"], "global_batch_size": task["batch"],
         "learning_rate": RATE, "mixed_precision": task["mixed_precision"], "remat": task["remat"], **kind}
    )  # fmt: skip
    watch, too_large = Watch(), list[dict[str, Any]]()

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "step":
            watch.note(math.nan if event["loss"] is None else event["loss"])
        if event["event"] == "too_large":
            too_large.append(event)

    result = train(
        settings,
        check_training(settings, model, registry.find_learner(model), name="bench"),
        Place(output=folder / "output", cache=folder / "rows", cache_dir=folder / "cache", allow_cpu=True),
        stop=Stop(),
        on_event=hear,
        on_progress=lambda _progress: None,
    )
    (file,) = result.files
    learnt = 0
    for weights in [file] if file.is_file() else sorted((file / "unet").glob("*.safetensors")):
        with safe_open(weights, "np") as tensors:
            sizes = (tensors.get_slice(name).get_shape() for name in tensors.keys())  # noqa: SIM118 - no dict
            learnt += sum(math.prod(size) for size in sizes)
    precision = task["mixed_precision"] or "fp32, products rounded to bf16"
    figures = watch.describe(batch=task["batch"], precision=precision, learnt=learnt, late=LATE)
    return figures | {"too_large": too_large} | read_jax_peak()


def run_diffusers(task: dict[str, Any]) -> dict[str, Any]:
    """Trains by PyTorch, diffusers, peft and accelerate with the same loss, optimizer and layers as ours."""
    import torch
    from accelerate import Accelerator
    from diffusers import DDPMScheduler
    from diffusers.optimization import get_scheduler
    from diffusers.training_utils import cast_training_params, compute_snr
    from peft import LoraConfig
    from torch.nn import functional

    torch.manual_seed(0)
    accelerator = Accelerator(mixed_precision=task["mixed_precision"] or "no")
    side = _Pipeline(_find_model(task), accelerator.device)
    unet = side.unet
    if task["full"]:
        unet.requires_grad_(requires_grad=True)
    else:
        layers = [name for name, layer in unet.named_modules() if isinstance(layer, torch.nn.Linear)]
        if task["mixed_precision"] == "bf16":  # as its scripts for LoRAs do
            side.halve()
        unet.add_adapter(LoraConfig(r=task["rank"], lora_alpha=task["rank"], target_modules=layers))
        cast_training_params(unet, torch.float32)
    learning = [one for one in unet.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=RATE, weight_decay=1e-2)
    scheduler: Any = DDPMScheduler.from_config(side.pipeline.scheduler.config)
    rates = get_scheduler("cosine", optimizer, num_warmup_steps=0, num_training_steps=task["steps"])
    loader = torch.utils.data.DataLoader(
        side.read_examples(Path(task["data"])), batch_size=task["batch"], shuffle=True, drop_last=True
    )
    unet, optimizer, loader, rates = accelerator.prepare(unet, optimizer, loader, rates)
    encode = side.encode if task["side"] == EVERY_STEP else side.remember()
    watch = Watch()
    for batch in _repeat(loader, task["steps"]):
        latents, conditions = encode(batch)
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (len(latents),), device=latents.device)
        (prediction,) = unet(scheduler.add_noise(latents, noise, timesteps), timesteps, **conditions, return_dict=False)
        is_v = scheduler.config.prediction_type == "v_prediction"
        target = scheduler.get_velocity(latents, noise, timesteps) if is_v else noise
        snr = compute_snr(scheduler, timesteps)
        weights = snr.clamp(max=SNR_GAMMA) / (snr + 1 if is_v else snr)
        errors = functional.mse_loss(prediction.float(), target.float(), reduction="none")
        loss = (errors.mean(dim=(1, 2, 3)) * weights).mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(learning, 1.0)
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
        watch.note(loss.item())
    learnt = sum(one.numel() for one in learning)
    figures = watch.describe(batch=task["batch"], precision=task["mixed_precision"] or "fp32", learnt=learnt)
    return figures | read_torch_peak()


class _Pipeline:
    """A model's pipeline as PyTorch has it, and how its pictures and captions are encoded; nothing of it learns."""

    def __init__(self, model: Model, device: Any) -> None:
        import torch
        from diffusers import DiffusionPipeline

        pipeline: Any = DiffusionPipeline.from_pretrained(str(model.path or model.repo), dtype=torch.float32)
        self.pipeline: Any = pipeline.to(device)
        self.unet: Any = self.pipeline.unet
        for module in self.pipeline.components.values():
            if hasattr(module, "requires_grad_"):
                module.requires_grad_(requires_grad=False)

    def halve(self) -> None:
        """Turns all but the autoencoder to bf16."""
        import torch

        for name, module in self.pipeline.components.items():
            if isinstance(module, torch.nn.Module) and name != "vae":
                module.to(torch.bfloat16)

    def read_examples(self, folder: Path) -> Any:
        """Returns a list, a data set to torch: pixels in [-1, 1], captions, and numbers to know them by."""
        import numpy as np
        import torch
        from PIL import Image

        examples = []
        for number, file in enumerate(sorted(folder.glob("*.png"))):
            pixels = torch.from_numpy(np.array(Image.open(file), np.float32) / 127.5 - 1).permute(2, 0, 1)
            examples.append({"pixels": pixels, "caption": file.with_suffix(".txt").read_text("utf-8"), "index": number})
        return examples

    def encode(self, batch: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Returns latents, and the UNet's conditions, of a batch."""
        import torch

        with torch.no_grad():
            pixels = batch["pixels"]
            latents = self.pipeline.vae.encode(pixels).latent_dist.sample() * self.pipeline.vae.config.scaling_factor
            embeds, _, *more = self.pipeline.encode_prompt(
                batch["caption"], device=latents.device, num_images_per_prompt=1, do_classifier_free_guidance=False
            )
        conditions: dict[str, Any] = {"encoder_hidden_states": embeds}
        if more:  # SDXL's
            size = [pixels.shape[2], pixels.shape[3]]
            time_ids = torch.tensor([[*size, 0, 0, *size]] * len(latents), dtype=embeds.dtype, device=latents.device)
            conditions["added_cond_kwargs"] = {"text_embeds": more[0], "time_ids": time_ids}
        return latents, conditions

    def remember(self) -> Callable[[dict[str, Any]], tuple[Any, dict[str, Any]]]:
        """Returns an `encode` that keeps what it made of each picture."""
        import torch
        from torch.utils._pytree import tree_map

        kept: dict[int, Any] = {}

        def encode(batch: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            rows = []
            for at, index in enumerate(batch["index"].tolist()):
                if index not in kept:
                    one = {"pixels": batch["pixels"][at : at + 1], "caption": batch["caption"][at : at + 1]}
                    kept[index] = self.encode(one)
                rows.append(kept[index])
            return tree_map(lambda *parts: torch.cat(parts), *rows)

        return encode


def _repeat(loader: Any, count: int) -> Iterator[Any]:
    """Yields `count` batches, going through the data as often as that takes."""
    while True:
        for batch in loader:
            if not count:
                return
            count -= 1
            yield batch


def _find_model(task: dict[str, Any]) -> Model:
    model = read_data_dir(Path(task["models_dir"]).parent).get(task["model"])
    return place_in(model, task["path"]) if task.get("path") else model


RUN = {LUMESH: run_lumesh, EVERY_STEP: run_diffusers, ENCODED_BEFORE: run_diffusers}

if __name__ == "__main__":
    answer(lambda task: RUN[task["side"]](task))
