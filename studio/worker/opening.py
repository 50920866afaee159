"""Opens the devices of a worker's process, or none with --fake, and puts a worker together at a desk."""

import functools
import threading
from dataclasses import dataclass

from pipelines.families import fake
from pipelines.generate import generate_together
from pipelines.mesh_text import asks_for_many
from pipelines.messages import say
from pipelines.models.catalog import Model
from pipelines.runtime.weights.hub_pins import use_pins_file
from pipelines.runtime.weights.hub_token import use_token_file
from pipelines.stages import Family, OnProgress
from studio.access.hooks import load_hook
from studio.jobs.job import Card
from studio.models import read_catalog
from studio.services import first_model
from studio.settings import Settings
from studio.worker import gauges
from studio.worker.bench import Generate, Trace
from studio.worker.desk import Desk
from studio.worker.gauges import MeasureDevices
from studio.worker.learning import Learn, learn_with_jax, pretend_to_learn
from studio.worker.loop import Worker
from studio.worker.resident import Finder, Loader, Resident


def make_worker(
    settings: Settings,
    desk: Desk,
    opened: "Devices",
    *,
    is_prepared: bool,
    ending: threading.Event,
    trouble: Card | None = None,
) -> Worker:
    """Returns a worker on opened devices, whose gauges are told to the desk from now on."""
    catalog = read_catalog(settings)
    resident = Resident(opened.load, find=opened.find)
    threading.Thread(target=gauges.watch, args=(desk, resident, opened.measure), name="gauges", daemon=True).start()
    return Worker(
        settings=settings,
        desk=desk,
        catalog=catalog,
        read_catalog=functools.partial(read_catalog, settings),
        resident=resident,
        default_model=first_model.choose(settings, catalog, opened.measure(), chips=opened.chips),
        is_prepared=is_prepared,
        trace=_choose_trace(settings),
        ending=ending,
        trouble=trouble,
        generate=opened.generate,
        image_hook=load_hook(settings.access.image_hook),
        learn=opened.learn,
    )


def _choose_trace(settings: Settings) -> Trace | None:
    """Returns what writes the trace for `--profile`; None without it and for the fake family, which has no programs."""
    if settings.profile is None or settings.fake:
        return None
    from pipelines.runtime.programs.profiling import trace_to  # it imports jax

    return functools.partial(trace_to, settings.profile)


@dataclass(frozen=True, kw_only=True)
class Devices:
    """The devices: a one-line description for people, the number of chips, and what can be done with them.

    `generate` runs recipes on them, and `learn` trains. `damaged` counts entries of the compilation cache that were
    deleted when it was opened.
    """

    title: str
    chips: int
    load: Loader
    find: Finder
    measure: MeasureDevices
    generate: Generate = generate_together
    learn: Learn = pretend_to_learn
    damaged: int = 0


def open_devices(settings: Settings) -> Devices:
    use_token_file(settings.hub_token_file)
    use_pins_file(settings.hub_pins_file)
    if settings.fake:
        at_once = fake.AT_ONCE if asks_for_many(settings.mesh) else 1

        def load_fake(model: Model, on_progress: OnProgress) -> Family:
            return fake.load(model, outputs_at_once=min(at_once, model.max_batch_size), on_progress=on_progress)

        return Devices(
            title=say("No device: --fake draws the pictures"),
            chips=1,
            load=load_fake,
            find=lambda _model, _on_progress: None,
            measure=lambda: [gauges.FAKE_DEVICE],
        )

    from pipelines import registry  # here, not above: its families import jax, which takes seconds and the devices
    from pipelines.families.remote_encoder import RemoteEncoder

    def load(model: Model, on_progress: OnProgress) -> Family:
        url = settings.find_text_encoder(model)
        return registry.load(
            model,
            mesh=settings.mesh,
            cache_dir=settings.cache_dir,
            on_progress=on_progress,
            remote_encoder=RemoteEncoder(url, token=settings.text_encoder_token) if url else None,
            packs=settings.pack_paths,
            verify_weights=settings.verify_weights,
            keep_layouts=settings.keep_layouts,
        )

    def find(model: Model, on_progress: OnProgress) -> object:
        has_remote_encoder = settings.find_text_encoder(model) is not None
        return registry.find(model, on_progress=on_progress, has_remote_encoder=has_remote_encoder)

    damaged = registry.start_jax(settings.cache_dir, allow_cpu=settings.allow_cpu)
    return Devices(
        title=registry.describe_devices(),
        chips=registry.count_chips(),
        load=load,
        find=find,
        measure=registry.measure_devices,
        learn=learn_with_jax(settings),
        damaged=damaged,
    )
