"""Files of the web over http and https: the start of one, and the whole, so that a broken download goes on.

Only public addresses are asked unless private ones are allowed; each redirect is checked like the first address. A
token goes to the host that it is for, in a header, and is never part of an address that is told or logged.
Not here: what a file is (single_files.py), repositories of the hub (runtime/weights/hub_single.py).
"""

import contextlib
import hashlib
import logging
import re
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from email.message import Message as EmailMessage
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urljoin, urlsplit, urlunsplit

import httpcore

from pipelines.errors import ModelError
from pipelines.messages import Message, say, tell
from pipelines.web.public_addresses import NotPublicError, choose_address, find_url_problem

TIMEOUT_S = 30.0
MAX_REDIRECTS = 5
MAX_TRIES = 5  # in a row, each of which brings less than PIECE_BYTES
PIECE_BYTES = 2**20
PAUSE_S = 0.2  # doubled after each try
KEPT_FREE_BYTES = 2_000_000_000  # of the disk that is downloaded to
ORPHANED_S = 30 * 24 * 3600.0  # parts that nobody went on with for so long are deleted
SUFFIX = ".download"
_REDIRECTS = (301, 302, 303, 307, 308)
_TRANSIENT = (408, 429, 500, 502, 503, 504)
_SECRETS = ("token", "api_key", "apikey", "key", "password", "signature")
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")

OnBytes = Callable[[int, int], None]
"""Is called with the bytes that have arrived and all of them, and may raise to stop."""

log = logging.getLogger(__name__)


class _TransientError(Exception):
    """What went wrong may go right at the next try; the text is for people."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A file's first bytes, its size in bytes, what its server calls it, and which version of it (an ETag, or a date).

    `version` is "" where the server names none: a download of such a file cannot go on.
    """

    content: bytes
    size: int
    name: str
    version: str


def hide_secrets(url: str) -> str:
    """Returns an address without what may be a password in its query, to be told and kept."""
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name.lower() not in _SECRETS]
    return urlunsplit(parts._replace(query=urlencode(kept), fragment=""))


@dataclass(frozen=True, kw_only=True)
class Web:
    """How the web is asked: whether private addresses may be reached, and the tokens by host (`civitai.com`)."""

    allows_private: bool = False
    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def read_start(self, url: str, count: int) -> Start:
        """Returns a file's first `count` bytes, by a range where its server knows them.

        Raises ModelError for an address that is not reached or is none of a file.
        """
        try:
            with self._open(url, {"Range": f"bytes=0-{count - 1}"}) as (found, response):
                headers = _read_headers(response)
                self._refuse(url, response, headers)
                size = _find_size(response, headers)
                if size is None:
                    raise ModelError(
                        say("{url} does not say how large the file is.", url=hide_secrets(url)),
                        advice=say("Download it with a browser, and add the file."),
                    )
                content = b""
                for piece in response.iter_stream():
                    content += piece
                    if len(content) >= count:
                        break
        except _TransientError as error:
            raise _tell(url, tell(error)) from error
        version = headers.get("etag", "") or headers.get("last-modified", "")
        version = "" if version.startswith("W/") else version
        return Start(content=content[:count], size=size, name=_find_name(found, headers), version=version)

    def download(self, url: str, start: Start, folder: Path, *, on_bytes: OnBytes) -> Path:
        """Returns the whole file, under a name of its own in `folder`; what had arrived before is not asked for again.

        Raises ModelError where the disk has no room, before anything is written, and where the download fails; what
        has arrived then stays.
        """
        folder.mkdir(parents=True, exist_ok=True)
        _forget_orphans(folder)
        part = folder / f".{_name_version(url, start)}{SUFFIX}"
        have = part.stat().st_size if part.exists() else 0
        if have > start.size or not start.version:
            part.unlink(missing_ok=True)
            have = 0
        check_room(folder, start.size - have)
        tries = 0
        while have < start.size:
            try:
                self._receive(url, start, part, on_bytes)
                problem = None
            except _TransientError as error:
                problem = error
            came = part.stat().st_size if part.exists() else 0
            tries = 0 if came - have >= PIECE_BYTES else tries + 1
            have = came
            if have < start.size and tries >= MAX_TRIES:
                raise _tell(url, tell(problem) if problem else say("the connection ended")) from problem
            if have < start.size:
                log.info("%s: it goes on from byte %d", hide_secrets(url), have)
                time.sleep(PAUSE_S * 2**tries)
        on_bytes(start.size, start.size)
        return part

    def _receive(self, url: str, start: Start, part: Path, on_bytes: OnBytes) -> None:
        """Appends what comes over one connection."""
        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-", "If-Range": start.version} if have else {}
        with self._open(url, headers) as (_found, response):
            told = _read_headers(response)
            self._refuse(url, response, told)
            size = _find_size(response, told)
            if size != start.size:
                part.unlink(missing_ok=True)
                raise ModelError(
                    say("{url} is another file than a moment ago.", url=hide_secrets(url)),
                    advice=say("Start the download again."),
                )
            goes_on = response.status == 206 and told.get("content-range", "").startswith(f"bytes {have}-")
            done = have if goes_on else 0
            with part.open("ab" if goes_on else "wb") as stream:
                for piece in response.iter_stream():
                    stream.write(piece[: start.size - done])
                    done += len(piece)
                    on_bytes(min(done, start.size), start.size)
                    if done >= start.size:
                        return

    @contextlib.contextmanager
    def _open(self, url: str, headers: Mapping[str, str]) -> Generator[tuple[str, httpcore.Response]]:
        """Asks for a file, following redirects; gives where it was found, and the answer."""
        asked = url
        pool = httpcore.ConnectionPool(
            ssl_context=ssl.create_default_context(), network_backend=_Checked(allows_private=self.allows_private)
        )
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_S)
        try:
            with pool:
                for _ in range(MAX_REDIRECTS):
                    if problem := find_url_problem(asked, allows_private=self.allows_private):
                        raise _tell(url, say("its address {problem}", problem=problem))
                    sent = {"Accept-Encoding": "identity", "User-Agent": "lumesh", **headers, **self._sign(asked)}
                    with pool.stream(
                        "GET", asked, headers=[*sent.items()], extensions={"timeout": timeouts}
                    ) as response:
                        location = _read_headers(response).get("location", "")
                        if response.status not in _REDIRECTS or not location:
                            yield asked, response
                            return
                    further = urljoin(asked, location)
                    if urlsplit(asked).scheme == "https" and urlsplit(further).scheme != "https":
                        raise _tell(url, say("it leads from https to http"))
                    asked = further
        except NotPublicError as error:
            raise _tell(url, tell(error)) from error
        except (socket.gaierror, UnicodeError) as error:  # UnicodeError: the name is not valid in DNS
            raise _tell(url, say("its name is not known")) from error
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise _TransientError(say("it cannot be reached: {error}", error=str(error)[:200])) from error
        raise _tell(url, say("it is redirected too often"))

    def _sign(self, url: str) -> dict[str, str]:
        host = (urlsplit(url).hostname or "").lower()
        token = next((one for name, one in self.tokens.items() if host == name or host.endswith(f".{name}")), "")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _refuse(self, url: str, response: httpcore.Response, headers: Mapping[str, str]) -> None:
        """Raises for an answer that is no file."""
        status = response.status
        if status in _TRANSIENT:
            raise _TransientError(say("it answered {status}", status=status))
        if status in (401, 403):
            advice = say("Log in there with a browser and download it, or set the site's token (CIVITAI_TOKEN).")
            raise ModelError(say("{url} wants a login: it answered {status}.", url=hide_secrets(url), status=status),
                             advice=advice)  # fmt: skip
        if status not in (200, 206):
            raise _tell(url, say("it answered {status}", status=status))
        if headers.get("content-type", "").startswith("text/html"):
            raise ModelError(
                say("{url} is a web page, not a file.", url=hide_secrets(url)),
                advice=say("Copy the address of its download button; a page that asks for a login needs a token."),
            )


class _Checked(httpcore.NetworkBackend):
    """A network backend that resolves a name once and connects to the very address that was checked."""

    def __init__(self, *, allows_private: bool) -> None:
        self._allows_private = allows_private
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        address = choose_address(host, port, allows_private=self._allows_private)
        return self._backend.connect_tcp(
            address, port, timeout=timeout, local_address=local_address, socket_options=socket_options
        )


_MAKE_ROOM = say("Make room, or link a file that lies on a larger disk.")


def check_room(folder: Path, needed: int, *, advice: Message = _MAKE_ROOM) -> None:
    """Raises ModelError unless the disk of a folder has this many bytes, and some to spare."""
    free = shutil.disk_usage(folder).free
    if needed + KEPT_FREE_BYTES > free:
        raise ModelError(
            say(
                "It needs {needed} GB, and the disk has {free} GB.",
                needed=f"{needed / 1e9:.1f}",
                free=f"{free / 1e9:.1f}",
            ),
            advice=advice,
        )


def _tell(url: str, problem: Message) -> ModelError:
    return ModelError(
        say("{url} cannot be downloaded: {problem}.", url=hide_secrets(url), problem=problem),
        advice=say("Check the address. A download that broke off goes on where it stopped."),
    )


def _read_headers(response: httpcore.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}


def _find_size(response: httpcore.Response, headers: Mapping[str, str]) -> int | None:
    if response.status == 206:
        match = _RANGE.fullmatch(headers.get("content-range", ""))
        return int(match[2]) if match else None
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else None


def _find_name(url: str, headers: Mapping[str, str]) -> str:
    """Returns the file's name as its server has it, without folders: of its header, or of its address."""
    told = EmailMessage()
    told["Content-Disposition"] = headers.get("content-disposition", "")
    name = told.get_filename() or unquote(urlsplit(url).path)
    return PurePosixPath(name.replace("\\", "/")).name


def _name_version(url: str, start: Start) -> str:
    text = f"{hide_secrets(url)} {start.size} {start.version}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _forget_orphans(folder: Path) -> None:
    for part in folder.glob(f".*{SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > ORPHANED_S:
                part.unlink()
