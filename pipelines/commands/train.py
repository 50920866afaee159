"""`train`: fine-tunes a model of the catalogue, a LoRA or all weights, on pictures and videos of one's own.

Options are the fields of `TrainingSettings`, and those of diffusers' script for TPU, whose command lines run unchanged
(old_training_flags.py).
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic.fields import FieldInfo

from pipelines.commands import options
from pipelines.errors import ModelError, RecipeError
from pipelines.messages import english
from pipelines.models.catalog import Catalog, Model, open_model
from pipelines.models.model_manager import is_repository, open_repository
from pipelines.models.moved import find_repository
from pipelines.models.own_models import make_id
from pipelines.runtime.devices import hosts, pods
from pipelines.training.configs import find_known_configs
from pipelines.training.first_lora import take_rank
from pipelines.training.results.installing import check_targets, install
from pipelines.training.settings import FLAGS, TrainingSettings, read_name, read_settings

if TYPE_CHECKING:
    from pipelines.commands.training_estimate import TrainingEstimate
    from pipelines.training.checks import Checked

DEMO_RATE = 2e-3
"""The demo models are some hundred times smaller than the others, and learn at a rate some twenty times as high."""
_ARGUMENTS = {"model"}


def _list_options() -> Iterator[inspect.Parameter]:
    """Yields a parameter for each field of the settings, with None for what is not given."""
    for name, field in TrainingSettings.model_fields.items():
        if name in _ARGUMENTS:
            continue
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotate(name, field))


def _annotate(name: str, field: FieldInfo) -> Any:
    variable = {"profile": "PROFILE_DIR"}.get(name)
    flag = f"--{FLAGS.get(name, name).replace('_', '-')}"
    default = field.get_default()
    shown = False if default in (None, (), False) else str(default)
    described = field.description
    if field.annotation in (bool, bool | None):
        flag = f"{flag}/--no-{flag[2:]}"
    if field.annotation == tuple[str, ...]:
        return Annotated[list[str] | None, typer.Option(flag, help=described, show_default=False)]
    own: Any = field.annotation
    kind: Any = own if _takes_none(field) else own | None
    return Annotated[kind, typer.Option(flag, help=described, show_default=shown, envvar=variable)]


def _takes_none(field: FieldInfo) -> bool:
    return field.default is None


def train(
    model: str | None,
    *,
    config: Path | None,
    check: bool,
    name: str | None,
    kernels: str | None,  # noqa: ARG001 - its callback has chosen
    allow_cpu: bool,
    as_json: bool,
    data_dir: Path,
    coordinator: str | None,
    processes: int | None,
    process: int | None,
    pack: list[Path] | None,
    **given: Any,
) -> None:
    """Trains a LoRA or all weights of a model; the same command goes on where an earlier run stopped.

    Example: python -m pipelines train sdxl-base --data ./corgi --lora --trigger "sks corgi"
    """
    place = options.DataDirectory(data_dir=data_dir)
    settings = read_settings({"model": model, **given}, config)
    name = name if name is not None else read_name(config)
    found = find_model(place.catalog, settings.model, revision=settings.revision)
    if found.repo and found not in place.catalog.models and settings.revision is not None:
        settings = settings.model_copy(update={"revision": found.revision})  # the commit whose configs were looked at
    address = pods.find_address(coordinator, processes, process)
    settings = take_rank(choose_rate(settings, found, is_told=address is None or address.process == 0), found)
    if not found.learns_from:  # else only what it starts from is of that revision, not what makes the samples
        found = found.choose_start(revision=settings.revision, variant=settings.variant)
    output: list[Path] = []
    heard: list[int] = []
    joined = hosts.together(
        address,
        on_loss=lambda: tell_how_to_go_on(output, heard),
        on_end=print_error if as_json else lambda _line: None,
    )
    with joined, hosts.ending_on_sigterm():
        _train(
            settings, found, place, name=name, packs=place.list_packs(pack), check=check, allow_cpu=allow_cpu,
            as_json=as_json, tell=output.append, tell_state=heard.append,
        )  # fmt: skip


def choose_rate(settings: TrainingSettings, model: Model, *, is_told: bool = True) -> TrainingSettings:
    """Returns the settings with a small model's learning rate where none is asked, which the first host tells."""
    is_free = settings.optimizer == "prodigy"  # it finds its rate by itself, of which 0.002 would be a 500th
    if not model.is_demo or not settings.lora or settings.learning_rate is not None or is_free:
        return settings
    if is_told:
        typer.echo(f"lumesh: {model.id} is small and learns at {DEMO_RATE}; --learning_rate changes that", err=True)
    return settings.model_copy(update={"learning_rate": DEMO_RATE})


def _train(
    settings: TrainingSettings,
    model: Model,
    place: options.DataDirectory,
    *,
    name: str | None,
    packs: Sequence[Path],
    check: bool,
    allow_cpu: bool,
    as_json: bool,
    tell: Callable[[Path], None],
    tell_state: Callable[[int], None],
) -> None:
    """Trains alone, or as one of several hosts, of which the first one speaks and keeps the result.

    It may `tell` where it works before anything takes long, and then the step of each state that is saved or read.
    """
    hosts.compare({"--check": "it" if check else "not", "--name": name or "none"})  # else some wait for ever
    from pipelines import registry

    registry.start_jax(place.cache_dir, allow_cpu=allow_cpu)
    from pipelines.commands.pushing import check_push, open_hub, push
    from pipelines.commands.training_terminal import TrainingTerminal
    from pipelines.training.checks import check_training
    from pipelines.training.engine.loop import Stop, stopping_on_signals
    from pipelines.training.engine.objective import predict_as_asked
    from pipelines.training.place import Place
    from pipelines.training.results.card import write_card
    from pipelines.training.run import check_states
    from pipelines.training.run import train as run
    from pipelines.training.together import compare_hosts, find_configs_of_all

    checked = check_training(settings, model, registry.find_learner(model), name=name)
    output = settings.output or place.data_dir / "training" / checked.name
    hub = repo = None
    if settings.push_to_hub and hosts.is_leader():
        hub, repo = open_hub(settings.hub_token), settings.hub_model_id or checked.name
        settings = settings.model_copy(update={"hub_model_id": check_push(repo, hub)})  # which its card names
    if settings.full and settings.output is None and hosts.is_leader():
        check_id(place.catalog, place.data_dir / "models" / checked.name)
    if settings.output is None and hosts.is_leader():
        check_targets(list_results(settings, model, output, checked.name), output, place.data_dir, checked.name)
    tell(output)
    terminal = TrainingTerminal(checked, is_json=as_json, is_silent=not hosts.is_leader())
    if check:
        compare_hosts(settings, checked)
        start = predict_as_asked(
            checked.model.choose_start(revision=settings.revision, variant=settings.variant), settings
        )
        folder = find_configs_of_all(start)
        if folder is not None:  # else it is found when its files are here
            check_states(settings, checked, start, folder, output=output)
        terminal.tell_plan(_estimate(settings, checked, place))
        if hosts.is_leader():
            options.try_folder("output", output)
        return
    terminal.tell_plan()
    options.make_folder("output", output)
    stop = Stop()

    def hear(event: dict[str, Any]) -> None:
        if event["event"] in ("saved", "resumed"):
            tell_state(event["step"])
        terminal.hear(event)

    cache = place.data_dir / "cache" / "training"
    work = Place(
        output=output, cache=cache, cache_dir=place.cache_dir, allow_cpu=allow_cpu, packs=tuple(packs)
    )  # fmt: skip
    with stopping_on_signals(stop), terminal:
        result = run(settings, checked, work, stop=stop, on_event=hear, on_progress=terminal.on_progress)
    if not hosts.is_leader():
        return
    files = result.files
    if files and settings.output is None:
        files = tuple(install(file, output, place.data_dir, checked.name) for file in files)
    is_listed = files and settings.full and settings.output is None
    terminal.tell_result(result, files, stop, model_id=make_id(checked.name) if is_listed else "")
    if files and hub is not None and repo is not None:
        push(files, repo, write_card(settings, checked, steps=result.steps), hub)


def _estimate(settings: TrainingSettings, checked: "Checked", place: options.DataDirectory) -> "TrainingEstimate":
    import jax

    from pipelines.commands.training_estimate import estimate
    from pipelines.runtime.devices.platform import find_kind

    return estimate(settings, checked, place, kind=find_kind(), devices=jax.device_count())


def tell_how_to_go_on(output: Sequence[Path], heard: Sequence[int] = ()) -> str:
    """Returns what happens when the training in this folder, if it is known yet, is started again.

    `heard` are the steps of states that were saved or read: hosts that share no folder know of no others, nor whether
    the last of them is whole.
    """
    from pipelines.training.results.state import find_newest_of

    step = max((find_newest_of(folder) for folder in output), default=0)
    if step:
        return f"the same command goes on from step {step}."
    if not hosts.is_leader() and heard:
        return f"the same command goes on from the first host's state of step {heard[-1]}, or the one before it."
    if not hosts.is_leader():
        return "the same command goes on from the first host's last state, if it has one, or begins anew."
    return "no state was saved; the same command begins anew."


def print_error(line: str) -> None:
    """Prints the last line of `--json` where the training fails; the process may end right behind it."""
    typer.echo(json.dumps({"event": "error", "error": line}))
    sys.stdout.flush()


def find_model(catalog: Catalog, text: str, *, revision: str | None = None) -> Model:
    """Returns the model of an id or hub repository, or of a folder or single file anywhere; raises RecipeError.

    A repository that no model of the catalogue comes from is looked at on the hub, at a `revision`.
    """
    try:
        return catalog.get(text)
    except ModelError as error:
        place = _find_place(text)
        if place is None and is_repository(text):
            return _open_repository(catalog, text, revision or "main")
        if place is None:
            raise RecipeError({"model": error.whole}) from error
    try:
        return open_model(place, loras_dir=catalog.loras_dir)
    except ModelError as error:
        raise RecipeError({"model": english(f"{place}: {error.whole}")}) from error


def _open_repository(catalog: Catalog, repo: str, revision: str) -> Model:
    try:
        return open_repository(find_repository(repo), revision=revision, loras_dir=catalog.loras_dir)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error


def _find_place(text: str) -> Path | None:
    """Returns the file or folder of this name, None where there is none, or can be none."""
    try:
        place = Path(text).expanduser()
        return place if text.strip() and place.exists() else None
    except (OSError, RuntimeError):  # a name longer than any file's, and ~name of nobody here
        return None


def check_id(catalog: Catalog, target: Path) -> None:
    """Raises RecipeError where a model's folder of this name in `models/` would not be listed."""
    own = make_id(target.name)
    known = (*catalog.models, *(one.model for one in catalog.partial))
    other = next((model for model in known if model.id == own and model.path != target), None)
    if not own:
        raise RecipeError({"name": english(f"{target.name!r} has neither letters nor digits; choose another --name")})
    if other is not None:
        raise RecipeError(
            {"name": english(f"{target.name!r} would be the model {own}, and there is one; choose another --name")}
        )


def list_results(settings: TrainingSettings, model: Model, output: Path, name: str) -> list[Path]:
    """Lists what a training in the folder `output` will leave: a model's folder, or a LoRA file for each expert."""
    from pipelines import registry
    from pipelines.training.engine.denoiser import choose_denoisers

    if settings.full:
        return [output]
    folder = find_known_configs(model)
    if folder is None:  # what is here of it does not tell, and `install` looks again
        return [output / f"{name}.safetensors"]
    denoisers = registry.find_learner(model).list_denoisers(folder, {})
    return [output / f"{name}{one.ending}.safetensors" for one in choose_denoisers(denoisers, settings)]


def build_command() -> Any:
    """Returns `train` with an option for each field of the settings, as typer reads functions."""
    fixed = {
        "model": Annotated[
            str | None, typer.Argument(help="A model of the catalogue (`models` lists them), a folder or a file.")
        ],
        "config": Annotated[
            Path | None, typer.Option(help="A .toml file of settings, named as these options, which count before it.")
        ],
        "check": Annotated[
            bool, typer.Option("--check", help="Read and count everything, say what it takes, train nothing.")
        ],
        "name": Annotated[str | None, typer.Option(help="Of the result.", show_default="the data's folder")],
        "pack": options.PackPaths,
        "kernels": options.Kernels,
        "allow_cpu": options.AllowCpu,
        "as_json": Annotated[
            bool, typer.Option("--json", help="Print each event as a line of JSON, the last one also of an error.")
        ],
        "data_dir": options.DataDir,
        "coordinator": options.Coordinator,
        "processes": options.Processes,
        "process": options.Process,
    }
    defaults = {"check": False, "allow_cpu": False, "as_json": False, "data_dir": options.DATA_DIR}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
        for name, kind in fixed.items()
    ]
    parameters += _list_options()

    def command(**given: Any) -> None:
        train(given.pop("model"), **given)

    return declare(command, parameters, train.__doc__)


def declare(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter], text: str | None
) -> Callable[..., None]:
    """Gives a command the options that typer shall see, and its help text."""
    command.__doc__ = text
    command.__signature__ = inspect.Signature(parameters)  # pyrefly: ignore[missing-attribute] - inspect asks for it
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
