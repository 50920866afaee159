"""The options of `plan --train`, beside those of every plan."""

import typer

MOST_STEPS = 10_000_000

Train = typer.Option("--train", help="A training's step in place of a model's stages.")
Lora = typer.Option("--lora", help="With --train: a LoRA; the default.")
Full = typer.Option("--full", help="With --train: all weights of the denoiser.")
Batch = typer.Option(min=1, max=65_536, help="With --train: pictures a step on all chips; one a device if left out.")
Rank = typer.Option(min=1, max=1024, help="With --train: the LoRA's.", show_default="16")
Accumulate = typer.Option(
    min=1, max=1024, help="With --train: parts of a batch that are computed one by one.", show_default="1"
)
RematOption = typer.Option(
    help="With --train: auto, none, layers, narrow, attention or full: what is computed twice to save memory.",
    show_default="auto",
)
OptimizerOption = typer.Option(help="With --train: as of train.", show_default="adamw")
Ema = typer.Option(help="With --train: decay of an average of the weights, which takes memory.", show_default="none")
Preserve = typer.Option(
    help="With --train: as of train; each picture is shown twice, which takes time.", show_default="none"
)
Targets = typer.Option(
    help="With --train: regular expression of the LoRA's layers.", show_default="all linear ones"
)  # fmt: skip
Convolutions = typer.Option("--convolutions", help="With --train: the LoRA changes convolutions, too.")
ExpertOption = typer.Option(help="With --train: high, low or both, of a model with two experts.", show_default="both")
Precision = typer.Option(help="With --train: no or bf16, as of train.", show_default="bf16 on TPU")
Strict = typer.Option("--strict", help="With --train: does not try the batch in more parts where it does not fit.")
Config = typer.Option(help="With --train: a .toml file of settings, as of train; options count before it.")
Steps = typer.Option(
    min=1, max=MOST_STEPS, help="With --train: how many, for hours and dollars.", show_default="800, or 2000 with full"
)
ChipPrice = typer.Option(min=0, help="With --train: US dollars for a chip and an hour.", show_default="a list price")
Again = typer.Option("--again", help="With --train: compile, whatever is known.")
