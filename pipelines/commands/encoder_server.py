"""`encoder-server`: one model's text encoder over HTTP, for machines that only denoise."""

from typing import Annotated

import typer

from pipelines.commands import asked, options
from pipelines.commands.progress import TerminalProgress
from pipelines.errors import RecipeError
from pipelines.messages import english


def serve(
    *,
    model: options.ModelId,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8888,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="LUMESH_TEXT_ENCODER_TOKEN",
            help="Clients must send it as their bearer token. Set it by its variable: others on the machine see flags.",
        ),
    ] = None,
    mesh: options.MeshText = None,
    weights: options.Weights = None,
    verify_weights: options.VerifyWeights = False,
    keep_layouts: options.KeepLayouts = False,
    kernels: options.Kernels = None,  # noqa: ARG001 - its callback has chosen
    allow_cpu: options.AllowCpu = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Serves a model's text encoder to `generate --text_encoder_url`.

    Example: LUMESH_TEXT_ENCODER_TOKEN=secret python -m pipelines encoder-server --model flux2-dev --host 0.0.0.0
    """
    import uvicorn

    from pipelines import registry
    from pipelines.commands.encoder_app import build_app

    place = options.DataDirectory(data_dir=data_dir)
    served = asked.choose_weights(place.catalog.get(model), weights)
    if host not in ("127.0.0.1", "::1", "localhost") and not token:
        raise RecipeError(
            {"token": english(f"--host {host} lets other machines in; set LUMESH_TEXT_ENCODER_TOKEN too")}
        )
    with TerminalProgress(is_silent=False) as on_progress:
        family = registry.load(
            served,
            mesh=mesh,
            cache_dir=place.cache_dir,
            on_progress=on_progress,
            stages=("encode",),
            verify_weights=verify_weights,
            keep_layouts=keep_layouts,
            allow_cpu=allow_cpu,
        )
        family.warm(served.default_shape, batch_size=1, uses_cfg=True, on_progress=on_progress)
    typer.echo(f"The text encoder of {model} listens on http://{host}:{port}", err=True)
    uvicorn.run(build_app(family, place.catalog, token=token), host=host, port=port, log_level="warning")
