"""`loras`: lists the files of the loras folder, the models that each fits, and why others cannot be used; adds some."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipelines.commands.options import DATA_DIR, AsJson, DataDir, DataDirectory, print_json, use_hub_files
from pipelines.commands.progress import show_download
from pipelines.loras.fit import find_misfit
from pipelines.models import model_arrivals


def add(
    place: Annotated[str, typer.Argument(help="owner/name of the hub, or the address of a file there.")],
    file: Annotated[str, typer.Argument(help="The file in that repository.")] = "",
    *,
    name: Annotated[str, typer.Option(help="What recipes call it; folder/name makes a folder. Else as the file.")] = "",
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Downloads a LoRA from the hub into the loras folder; a download that broke off goes on where it stopped."""
    use_hub_files(data_dir)
    source = model_arrivals.read_source(place, file=file, revision=revision)
    ref = show_download(
        source.told,
        lambda on_bytes: model_arrivals.bring_lora(data_dir / "loras", source, ref=name, on_bytes=on_bytes),
    )
    typer.echo(f"added {ref}")


def show_loras(
    context: typer.Context,
    *,
    model: Annotated[str | None, typer.Option(help="Say only of this model whether each file fits it.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Lists the LoRAs of the data directory."""
    if context.invoked_subcommand is not None:
        return
    catalog = DataDirectory(data_dir=data_dir).catalog
    models = catalog.models if model is None else (catalog.get(model),)
    rows: list[dict[str, Any]] = []
    for lora in catalog.list_lora_files():
        misfits = [find_misfit(lora, one) for one in models]
        fitting = [one.id for one, misfit in zip(models, misfits, strict=True) if not misfit]
        why = "" if fitting else lora.problem or (misfits[0] if model is not None else "it fits no model here")
        rows.append(
            {
                "ref": lora.ref,
                "title": lora.title,
                "kind": lora.kind,
                "family": lora.family,
                "expert": lora.expert or None,
                "models": fitting,
                "problem": why,
            }
        )
    if as_json:
        print_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("lora", "kind", "family", "expert", "fits"):
        table.add_column(column)
    for row in rows:
        fits = ", ".join(row["models"]) or f"no: {row['problem']}"
        table.add_row(row["ref"], row["kind"], row["family"], row["expert"] or "", fits)
    Console().print(table)
