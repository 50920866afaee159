"""`make-demo`: trains a demo model from nothing."""

from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands import options
from pipelines.errors import RecipeError
from pipelines.messages import english

TRAINABLE = ("demo-sdxl", "demo-flux2", "demo-wan")


def make_demo(
    model: Annotated[str, typer.Argument(help=f"One of: {', '.join(TRAINABLE)}.")],
    *,
    output: Annotated[
        Path | None, typer.Option(help="Where the diffusers folder goes.", show_default="model/ in the training folder")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Checkpoints and data.", show_default="training/MODEL in the data directory")
    ] = None,
    mesh: options.MeshText = None,
    max_minutes: Annotated[
        float | None, typer.Option(min=0.1, help="Stop after this long; run again to go on.")
    ] = None,
    allow_cpu: options.AllowCpu = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Trains a demo model; goes on where an earlier run stopped, even after kill -9.

    Example: python -m pipelines make-demo demo-sdxl
    """
    if model not in TRAINABLE:
        raise RecipeError({"model": english(f"{model} is no demo model; allowed: {', '.join(TRAINABLE)}")})
    from pipelines import registry

    registry.start_jax(options.DataDirectory(data_dir=data_dir).cache_dir, allow_cpu=allow_cpu)
    import jax

    from pipelines.demos.demo_flux2.run import train_demo_flux2
    from pipelines.demos.demo_sdxl.run import train_demo_sdxl
    from pipelines.demos.demo_wan.run import train_demo_wan
    from pipelines.demos.learning import Unfinished
    from pipelines.runtime.devices.mesh import build_mesh
    from pipelines.training.engine.loop import Stop, stopping_on_signals

    folder = folder or data_dir / "training" / model
    output = output or folder / "model"
    train = dict(zip(TRAINABLE, (train_demo_sdxl, train_demo_flux2, train_demo_wan), strict=True))[model]
    stop = Stop()
    stop.limit(None if max_minutes is None else 60 * max_minutes)
    try:
        with stopping_on_signals(stop):
            train(mesh=build_mesh(mesh or f"dp={jax.device_count()}"), folder=folder, output=output, stop=stop)
    except Unfinished:
        typer.echo(f"Stopped ({stop.reason}) and saved; run the same command again to go on.", err=True)
        raise typer.Exit(0) from None
    typer.echo(output)
