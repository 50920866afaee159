"""`python -m pipelines`: models, loras, generate and its stages, calibrate, plan, compile, doctor, train, bench.

Flags may be written with - or _. Wrong values end with exit code 2 and one line that says what is allowed; problems
outside the program (a gated model, a damaged file) end with exit code 1 and one line as well.
"""

if __name__ == "__main__":  # before what takes long to import
    from pipelines.runtime.devices import allocator

    allocator.load("pipelines")

import errno
import functools
import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.main import get_command

from pipelines.commands import (
    calibrate,
    check_slice,
    compile,
    compile_training,
    doctor,
    encoder_server,
    generate,
    host_flags,
    loras,
    make_demo,
    models,
    old_flags,
    old_training_flags,
    plan,
    stages,
    train,
)
from pipelines.commands.bench import compare, load, swap
from pipelines.commands.bench import training as bench_training
from pipelines.commands.problems import word_usage
from pipelines.errors import LumeshError, MeshError, RecipeError
from pipelines.runtime.devices import hosts, pods

app = typer.Typer(
    help="Pictures from prompts on a JAX mesh, without the studio.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={
        "token_normalize_func": lambda name: name.replace("_", "-"),
        "help_option_names": ["-h", "--help"],
    },
)
STOPPED = 130  # shells' code for Ctrl+C
COMPILE_TRAINING = "compile --train"  # one name for people, two commands with options of their own
own_models = typer.Typer(callback=models.show, invoke_without_command=True, rich_markup_mode=None)
own_models.command("add")(models.add)
own_models.command("remove")(models.remove)
own_models.command("info")(models.info)
own_models.command("download")(models.download)
app.add_typer(own_models, name="models")
own_loras = typer.Typer(callback=loras.show_loras, invoke_without_command=True, rich_markup_mode=None)
own_loras.command("add")(loras.add)
app.add_typer(own_loras, name="loras")
app.command("generate")(generate.make)
app.command("encode")(stages.encode)
app.command("denoise")(stages.denoise)
app.command("decode")(stages.decode)
app.command("calibrate")(calibrate.calibrate)
app.command("train")(train.build_command())
app.command("make-demo")(make_demo.make_demo)
app.command("plan")(plan.plan)
app.command("check-slice")(check_slice.check)
app.command("doctor")(doctor.examine_machine)
app.command("compile")(compile.compile_programs)
app.command(COMPILE_TRAINING, hidden=True)(compile_training.build_command())
benches = typer.Typer(callback=compare.run, invoke_without_command=True, rich_markup_mode=None)
benches.command("swap")(swap.run)
benches.command("load")(load.run)
benches.command("train")(bench_training.run)
app.add_typer(benches, name="bench")
app.command("encoder-server")(encoder_server.serve)


@functools.cache
def build_group() -> Any:
    """Builds all commands and their options, which takes as long as many a command."""
    return get_command(app)


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns the exit code; `train --json` ends with an object also where it fails."""
    given = sys.argv[1:] if arguments is None else arguments
    code, error = _run(given)
    if error is not None:
        line = " ".join(error.split())
        typer.echo(f"lumesh: {line}", err=True)
        if given[:1] == ["train"] and "--json" in given:
            train.print_error(line)
        if code != STOPPED and given[:1] and given[0] in host_flags.COMMANDS and not hosts.have_met():
            _tell_others(given[1:], line, code)
    return code


def _tell_others(arguments: list[str], line: str, code: int) -> None:
    """Tells the other hosts, which wait for this one, that it has ended before it came to them."""
    address = host_flags.find_address(arguments)
    if address is not None:
        typer.echo("lumesh: telling the other hosts", err=True)
        hosts.tell_failure(address, line, code)


def _run(arguments: list[str]) -> tuple[int, str | None]:
    """Runs one command; returns the exit code, and what to say of an error."""
    try:
        words = translate_old_flags(arguments)
        result = build_group().main(args=words, prog_name="python -m pipelines", standalone_mode=False)
    except (RecipeError, MeshError) as error:
        return 2, str(error)
    except LumeshError as error:
        return 1, str(error)
    except PermissionError as error:
        return 1, f"{error.filename} may not be written or read. Choose another folder, or change its rights."
    except OSError as error:
        if error.errno == errno.ENOSPC and not error.filename:
            return 1, "The disk is full. Make room, then run it again."
        if not error.filename:
            raise  # no file to name
        return 1, f"{error.filename} cannot be written or read: {error.strerror}. Choose another place."
    except KeyboardInterrupt:
        return STOPPED, "stopped"
    except Exception as error:
        # typer's usage errors have no public base class, but all have `format_message`.
        if not hasattr(error, "format_message"):
            raise
        return 2, word_usage(error.format_message())
    if result == STOPPED:  # typer's answer to Ctrl+C
        return STOPPED, "stopped"
    return result if isinstance(result, int) else 0, None


def translate_old_flags(words: list[str]) -> list[str]:
    """Returns the command line with the flags of older scripts replaced (old_flags.py), and says what changed."""
    if words and words[0] == "compile" and "--train" in words:
        # `--model`, as of `compile` and `plan`, names the model, which is an argument here.
        rest = (word.removeprefix("--model=") for word in words[1:] if word not in ("--train", "--model"))
        return [COMPILE_TRAINING, *rest]
    find_pod = functools.partial(pods.find_address, None, None, None)
    is_first = functools.partial(host_flags.is_first_host, words[1:], find_pod)
    if words and words[0] == "train":
        count = functools.partial(host_flags.count_hosts, words[1:], find_pod)
        return [words[0], *_tell(old_training_flags.translate(words[1:], count_hosts=count), is_first)]
    if not words or words[0] not in old_flags.COMMANDS:
        return words
    name, *arguments = words
    known = {
        flag.lstrip("-").replace("-", "_") for option in build_group().commands[name].params for flag in option.opts
    }
    return [name, *_tell(old_flags.translate(name, arguments, known=known), is_first)]


def _tell(translated: old_flags.Translated, is_first: Callable[[], bool]) -> list[str]:
    """Says what changed, on the first of several hosts, and returns the command line of today."""
    for note in translated.notes if translated.notes and is_first() else ():
        typer.echo(f"lumesh: {note}", err=True)
    return translated.arguments


if __name__ == "__main__":
    hosts.leave(main())
