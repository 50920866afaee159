"""A `python` whose processes have imported PyTorch and diffusers: most of what a command does before it begins.

`find_forked_python()` takes the place of `sys.executable` before `-m MODULE` and `-c CODE`, in tests and in what
product code starts, and for the test processes themselves. It is a script that asks a server, one for all of them, to
fork; the fork has the script's arguments, environment, folder and open streams, and neither JAX nor anything of Lumesh.
The script waits for it, hands signals on and ends as it did; a fork whose script is gone is killed. A cluster's
processes are no forks.
What the interpreter or the environment do to the imports of PyTorch is only seen by `sys.executable`.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tests.allocator import LOADS_IT
from tests.places import ROOT

# What they read while they are imported; a fork must not be told otherwise. TORCHINDUCTOR_CACHE_DIR is set by PyTorch.
READ_BY_IMPORTS = (
    *("DIFFUSERS_", "HF_HOME", "HF_HUB_OFFLINE", "HF_ENDPOINT", "OMP_"),
    *("TORCH_", "TORCHDYNAMO_", "TRANSFORMERS_"),
)
MODULES = (
    "diffusers.pipelines.flux2.pipeline_flux2_klein",
    "diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl",
    "diffusers.pipelines.wan.pipeline_wan",
    "diffusers.schedulers.scheduling_ddpm",
    "diffusers.schedulers.scheduling_unipc_multistep",
    "diffusers.training_utils",
    "imageio_ffmpeg",
    "pydantic.main",
    "transformers.models.clip.modeling_clip",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.umt5.modeling_umt5",
)
OWN_INTERPRETER = ("ray.", "studio.cluster")  # modules that start others, which look at who started them
SHARED = "TESTS_FORKED_PYTHON"  # names the script of the server that somebody else has started
STREAMS = (0, 1, 2)
UNBUFFERED = "-u"  # as pytest-xdist starts its processes, which write to the streams by themselves
LENGTH = 8  # of a request, in bytes before it

_given = dict(os.environ)  # of the server, before it imports anything

SCRIPT = """#!{python} -IS
import json, os, signal, socket, sys

if sys.argv[1] == "-m" and sys.argv[2].startswith({own}):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = {{"words": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
text = json.dumps(request).encode()
socket.send_fds(server, [len(text).to_bytes({length}, "little")], [0, 1, 2])
server.sendall(text)
answers = server.makefile("r")
pid = int(answers.readline())
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = int(answers.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if code != -signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@functools.cache
def find_forked_python() -> str:
    """Returns the path of the script, and starts its server if nobody has."""
    if SHARED in os.environ:
        return os.environ[SHARED]
    folder = Path(tempfile.mkdtemp(prefix="lumesh-forks-"))
    address, script = folder / "server", folder / "python"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(address))
    listening.listen(64)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forked_python", str(listening.fileno())],
        cwd=ROOT,
        env=os.environ | LOADS_IT,
        stdin=subprocess.PIPE,  # its end tells the server that the tests are over
        pass_fds=[listening.fileno()],
    )
    listening.close()
    atexit.register(_end, server, folder)
    script.write_text(
        SCRIPT.format(python=sys.executable, own=OWN_INTERPRETER, address=str(address), length=LENGTH), "utf-8"
    )
    script.chmod(0o700)
    return str(script)


def share_forked_python() -> str:
    """Starts the server for this process and all that it starts. It imports nothing before it is asked for a fork."""
    os.environ[SHARED] = find_forked_python()
    return os.environ[SHARED]


def _end(server: subprocess.Popen[bytes], folder: Path) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a fork is to run, and where."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    streams: list[int] = field(default_factory=list[int])

    def run(self) -> None:
        """Makes this process what `python WORDS` would be."""
        os.setsid()
        os.chdir(self.folder)
        for stream, given in zip(STREAMS, self.streams, strict=True):
            os.dup2(given, stream)
            os.close(given)
        _check_environment(self.environment)
        imported = {name: value for name, value in os.environ.items() if name not in _given}
        os.environ.clear()
        os.environ.update(imported | self.environment)
        words = self.words[1:] if self.words[0] == UNBUFFERED else self.words
        kind, what, *arguments = words
        paths = self.environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:1] = [self.folder if kind == "-m" else "", *filter(None, paths)]
        if kind == "-m":
            sys.argv = [what, *arguments]
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            assert kind == "-c", f"{sys.executable} {kind} has no forked process"
            sys.argv = ["-c", *arguments]
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), vars(main))


def _check_environment(environment: dict[str, str]) -> None:
    """Refuses what comes too late."""
    for name, value in environment.items():
        if name.startswith(READ_BY_IMPORTS) and value != _given.get(name):
            sys.exit(f"{name} is read by imports that a forked process has behind it: start sys.executable")


def serve(listening: socket.socket) -> Request:
    """Forks for every script that asks, until the tests are over. Returns in the forks alone, with what is to run."""
    forks: dict[int, Any] = {}  # the connection and the process of each, by the number of either
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    _leave({pid for _, pid, _ in forks.values()})
                elif key.fileobj is listening:
                    connection, _ = listening.accept()
                    with contextlib.suppress(OSError, ValueError):  # its script is gone already
                        if (request := _fork(connection, selector, forks)) is not None:
                            return request
                else:
                    _look_after(key.fd, selector, forks)


def _fork(connection: socket.socket, selector: selectors.BaseSelector, forks: dict[int, Any]) -> Request | None:
    request = _receive(connection)
    if not (pid := os.fork()):
        selector.close()
        return request
    for stream in request.streams:
        os.close(stream)
    connection.sendall(b"%d\n" % pid)
    ended = os.pidfd_open(pid)
    for number in (connection.fileno(), ended):
        forks[number] = (connection, pid, ended)
        selector.register(number, selectors.EVENT_READ)
    return None


def _receive(connection: socket.socket) -> Request:
    head, streams, _, _ = socket.recv_fds(connection, LENGTH, len(STREAMS))
    missing, parts = int.from_bytes(head, "little"), []
    while missing and (part := connection.recv(missing)):
        parts.append(part)
        missing -= len(part)
    return Request(**json.loads(b"".join(parts)), streams=list(streams))


def _look_after(number: int, selector: selectors.BaseSelector, forks: dict[int, Any]) -> None:
    """Kills a fork whose script is gone; tells the script of one that ended how it did."""
    if number not in forks:
        return  # both at once
    connection, pid, ended = forks[number]
    if number != ended:
        _kill(pid)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    for one in (connection.fileno(), ended):
        selector.unregister(one)
        del forks[one]
    connection.close()
    os.close(ended)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it has no group of its own yet
        os.kill(pid, signal.SIGKILL)


def _leave(pids: set[int]) -> NoReturn:
    for pid in pids:
        _kill(pid)
    os._exit(0)


def wait_for_first(listening: socket.socket) -> None:
    """Returns when the first script asks; ends the server if the tests are over before."""
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        if any(key.fileobj is sys.stdin for key, _ in selector.select()):
            _leave(set())


def import_all() -> None:
    """Imports what the models' programs are made of, but nothing that imports JAX."""
    for name in MODULES:
        importlib.import_module(name)
    assert "jax" not in sys.modules, "forks would find JAX imported"


if __name__ == "__main__":
    listening = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wait_for_first(listening)
    import_all()
    gc.freeze()  # pages of memory that no collection touches stay shared with the forks
    request = serve(listening)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    listening.close()
    request.run()
