"""A hub of our own: the answers of the real API, given by a small HTTP server on this machine."""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPO = "someone/some-sdxl"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

FILES = {
    "model_index.json": b'{"_class_name": "StableDiffusionXLPipeline"}',
    "README.md": b"# words",
    "unet/config.json": b"{}",
    "unet/diffusion_pytorch_model.fp16.safetensors": bytes(range(256)) * (25 * 2**20 // 256),
    "unet/diffusion_pytorch_model.safetensors": b"twice as large",
    "unet/diffusion_pytorch_model.bin": b"a pickle",
    "tokenizer/vocab.json": b'{"a": 0}',
    "tokenizer/merges.txt": b"#version: 0.2",
    "vae_1_0/config.json": b"{}",
}
WEIGHTS = "unet/diffusion_pytorch_model.fp16.safetensors"

GATED = (403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to this model is restricted."})


@dataclass(kw_only=True)
class Hub:
    """What the stub serves, how it misbehaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=lambda: FILES)
    url: str = ""
    refusal: tuple[int, dict[str, str]] | None = None
    breaks_after: int | None = None  # bytes of the weights after which the connection breaks, each time
    breaks_left: int = 0
    stalls_after: int | None = None  # bytes of the weights after which nothing comes until `goes_on`
    goes_on: threading.Event = field(default_factory=threading.Event)
    knows_ranges: bool = True
    names_sha256: bool = False  # as the real hub does for large files
    spoils: bool = False  # the weights' bytes on the way
    licence: str = ""  # that the card names
    accepted: str | None = None  # the token of who accepted the licence; the repository is gated
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, Range

    def fetched(self) -> set[str]:
        prefix = f"/{REPO}/resolve/{COMMIT}/"
        return {
            path.removeprefix(prefix) for method, path, _ in self.asked if method == "GET" and path.startswith(prefix)
        }

    def ranges(self) -> list[str | None]:
        return [wanted for method, path, wanted in self.asked if method == "GET" and path.endswith(WEIGHTS)]


def _make_handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """The three routes snapshot_download asks for: the revision, its tree, and the files."""

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def log_message(self, format: str, *_arguments: Any) -> None:
            """Keeps the test run quiet."""

        def _answer(self) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append((self.command, path, self.headers.get("Range")))
            is_about = path == f"/api/models/{REPO}" or "/revision/" in path or "/tree/" in path
            if hub.refusal is not None:
                status, headers = hub.refusal
                self._send(status, b'{"error": "refused"}', headers)
            elif path == f"/api/models/{REPO}":
                self._send(
                    200, json.dumps({"id": REPO, "sha": COMMIT, "gated": "auto" if hub.accepted else False}).encode()
                )
            elif hub.accepted and not is_about and self.headers.get("Authorization") != f"Bearer {hub.accepted}":
                self._send(GATED[0], b"{}", GATED[1])
            elif path == f"/api/models/{REPO}/auth-check":
                self._send(200, b"{}")
            elif path.startswith(f"/api/models/{REPO}/revision/") and path.endswith((COMMIT, "/main")):
                said = {"id": REPO, "sha": COMMIT, "siblings": [{"rfilename": name} for name in hub.files]}
                card = {"cardData": {"license": hub.licence}} if hub.licence else {}
                self._send(200, json.dumps(said | card).encode())
            elif path.startswith(f"/api/models/{REPO}/tree/{COMMIT}"):
                self._send(200, json.dumps(_list_tree(hub)).encode())
            elif path.startswith(f"/{REPO}/resolve/{COMMIT}/"):
                self._send_file(path.removeprefix(f"/{REPO}/resolve/{COMMIT}/"))
            elif path.startswith(f"/api/models/{REPO}/"):
                self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            else:
                # the real hub answers 401 for what does not exist, so that private names do not leak
                self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})

        def _send_file(self, name: str) -> None:
            if name not in hub.files:
                self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
                return
            content = hub.files[name]
            etag = hashlib.sha256(content).hexdigest() if hub.names_sha256 else _digest(content)
            headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            start = 0
            if wanted := hub.knows_ranges and self.headers.get("Range"):
                start = int(wanted.removeprefix("bytes=").partition("-")[0])
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            part = content[start:]
            if hub.spoils and name == WEIGHTS:
                part = part[:-1] + b"x"
            must_break = name == WEIGHTS and self.command == "GET" and hub.breaks_left > 0
            if must_break:
                hub.breaks_left -= 1
            self._send(206 if wanted else 200, part, headers, sent=hub.breaks_after if must_break else None)

        def _send(
            self, status: int, content: bytes, headers: dict[str, str] | None = None, *, sent: int | None = None
        ) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                if hub.stalls_after is not None and len(content) > hub.stalls_after:
                    self.wfile.write(content[: hub.stalls_after])
                    hub.goes_on.wait(30)
                    content = content[hub.stalls_after :]
                with contextlib.suppress(ConnectionError):  # whoever asked was killed
                    self.wfile.write(content if sent is None else content[:sent])
            self.close_connection = sent is not None

    return Handler


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def _list_tree(hub: Hub) -> list[dict[str, Any]]:
    return [
        {"type": "file", "path": path, "size": len(content), "oid": _digest(content)}
        for path, content in hub.files.items()
    ]


@contextlib.contextmanager
def run_hub(files: dict[str, bytes] = FILES) -> Iterator[Hub]:
    """Serves the files as the repository REPO at COMMIT."""
    hub = Hub(files=files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.goes_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


def make_environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that asks this hub, with an empty cache."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))} | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }
