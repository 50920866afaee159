"""`train`: fine-tunes a model of the catalogue, a LoRA or all weights, on pictures and videos of one's own.

Options are the fields of `TrainingSettings`, and those of diffusers' script for TPU, whose command lines run unchanged
(old_training_flags.py).
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from pipelines.catalog import Catalog, Model
from pipelines.commands import options
from pipelines.errors import ModelError, RecipeError
from pipelines.messages import english
from pipelines.training.settings import TrainingSettings, read_settings

_ARGUMENTS = {"model"}
_FLAGS = {"validate_with": "--validate", "output": "--output"}


def _list_options() -> Iterator[inspect.Parameter]:
    """Yields a parameter for each field of the settings, with None for what is not given."""
    for name, field in TrainingSettings.model_fields.items():
        if name in _ARGUMENTS:
            continue
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotate(name, field))


def _annotate(name: str, field: FieldInfo) -> Any:
    flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
    default = field.get_default()
    shown = False if default in (None, (), False) else str(default)
    described = field.description
    if field.annotation == tuple[str, ...]:
        return Annotated[list[str] | None, typer.Option(flag, help=described, show_default=False)]
    kind: Any = field.annotation if _takes_none(field) else field.annotation | None  # pyright: ignore[reportOptionalOperand]
    return Annotated[kind, typer.Option(flag, help=described, show_default=shown)]


def _takes_none(field: FieldInfo) -> bool:
    return field.default is None


def train(
    model: str | None,
    *,
    config: Path | None,
    check: bool,
    name: str | None,
    allow_cpu: bool,
    as_json: bool,
    data_dir: Path,
    **given: Any,
) -> None:
    """Trains a LoRA or all weights of a model; the same command goes on where an earlier run stopped.

    Example: python -m pipelines train sdxl-base --data ./corgi --lora --trigger "sks corgi"
    """
    place = options.DataDirectory(data_dir=data_dir)
    settings = read_settings({"model": model, **given}, config)
    catalog = place.catalog
    found = find_model(catalog, settings.model)
    from pipelines import registry

    registry.start_jax(place.cache_dir, allow_cpu=allow_cpu)
    from pipelines.commands.training_terminal import TrainingTerminal
    from pipelines.training.checks import check_training
    from pipelines.training.loop import Stop, stopping_on_signals
    from pipelines.training.run import Place
    from pipelines.training.run import train as run

    checked = check_training(settings, found, registry.find_learner(found), name=name)
    output = settings.output or data_dir / "training" / checked.name
    terminal = TrainingTerminal(checked, is_json=as_json)
    terminal.tell_plan()
    if check:
        return
    options.make_folder("output", output)
    stop = Stop()
    work = Place(output=output, cache=data_dir / "cache" / "training", cache_dir=place.cache_dir, allow_cpu=allow_cpu)
    with stopping_on_signals(stop), terminal:
        result = run(settings, checked, work, stop=stop, on_event=terminal.hear, on_progress=terminal.on_progress)
    files = result.files
    if files and settings.output is None:
        files = tuple(install(file, data_dir, checked.name) for file in files)
    terminal.tell_result(result, files, stop)


def find_model(catalog: Catalog, text: str) -> Model:
    """Returns the model of an id or hub repository; raises RecipeError for one that is not known."""
    try:
        return catalog.get(text)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error


def install(result: Path, data_dir: Path, name: str) -> Path:
    """Puts a result where the studio lists it: a LoRA into loras/, a model's folder into models/."""
    import shutil

    if result.is_file():
        target = data_dir / "loras" / result.name
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".part")
        shutil.copyfile(result, partial)
        partial.replace(target)
        return target
    target = data_dir / "models" / name
    if target.exists():
        raise RecipeError({"name": english(f"{target} is there already; choose another --name")})
    shutil.copytree(result, target, ignore=shutil.ignore_patterns("state*", "samples", "*.jsonl", "settings.json"))
    return target


def build_command() -> Any:
    """Returns `train` with an option for each field of the settings, as typer reads functions."""
    fixed = {
        "model": Annotated[str | None, typer.Argument(help="A model of the catalogue; `models` lists them.")],
        "config": Annotated[Path | None, typer.Option(help="A .toml file of settings; options count before it.")],
        "check": Annotated[bool, typer.Option("--check", help="Read and count everything, and train nothing.")],
        "name": Annotated[str | None, typer.Option(help="Of the result.", show_default="the data's folder")],
        "allow_cpu": options.AllowCpu,
        "as_json": options.AsJson,
        "data_dir": options.DataDir,
    }
    defaults = {"check": False, "allow_cpu": False, "as_json": False, "data_dir": options.DATA_DIR}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
        for name, kind in fixed.items()
    ]
    parameters += _list_options()

    def command(**given: Any) -> None:
        train(given.pop("model"), **given)

    command.__doc__ = train.__doc__
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
