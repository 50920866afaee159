"""A server of files on this machine: with and without ranges, redirects, logins and broken connections."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(kw_only=True)
class WebStub:
    """What the server has, how it misbehaves, and what it was asked: path, Range, Authorization."""

    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    redirects: dict[str, str] = field(default_factory=dict[str, str])
    names: dict[str, str] = field(default_factory=dict[str, str])
    kinds: dict[str, str] = field(default_factory=dict[str, str])
    url: str = ""
    knows_ranges: bool = True
    version: str = '"one"'
    token: str = ""  # without it nothing is given
    breaks_after: int | None = None  # bytes of an answer, once
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list[tuple[str, str | None, str | None]])
    sent: int = 0  # bytes of bodies


def _make_handler(web: WebStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # who asked has read enough
                super().handle()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            login = self.headers.get("Authorization")
            web.asked.append((self.path, self.headers.get("Range"), login))
            if path in web.redirects:
                self._send(302, b"", {"Location": web.redirects[path]})
            elif web.token and login != f"Bearer {web.token}":
                self._send(401, b"who are you?", {})
            elif path not in web.files:
                self._send(404, b"nothing", {})
            else:
                self._send_file(path)

        def log_message(self, format: str, *_arguments: Any) -> None:
            """Keeps the test run quiet."""

        def _send_file(self, path: str) -> None:
            content, headers = web.files[path], {"Content-Type": web.kinds.get(path, "application/octet-stream")}
            if path in web.names:
                headers["Content-Disposition"] = f'attachment; filename="{web.names[path]}"'
            if web.version:
                headers["ETag"] = web.version
            wanted, total = self.headers.get("Range"), len(content)
            if not (wanted and web.knows_ranges and self.headers.get("If-Range", web.version) == web.version):
                self._send(200, content, headers)
                return
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            part = content[int(first) : int(last) + 1 if last else None]
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{total}"
            self._send(206, part, headers)

        def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            breaks = web.breaks_after if web.breaks_after is not None and len(content) > web.breaks_after else None
            if breaks is not None:
                web.breaks_after = None
                self.close_connection = True
            self.wfile.write(content[:breaks])
            web.sent += len(content[:breaks])

    return Handler


@contextlib.contextmanager
def run_web(**how: Any) -> Iterator[WebStub]:
    """Serves what the stub says."""
    web = WebStub(**how)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(web))
    server.daemon_threads = True
    web.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
