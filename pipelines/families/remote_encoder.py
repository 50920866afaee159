"""Gets embeddings from a text encoder on another machine, so that this one need not hold it.

Two kinds of server are supported. Ours (`python -m pipelines encoder-server`) has an address without a path and answers
with safetensors. The public FLUX.2 encoders have an address with a path (.../predict), take one prompt per request and
answer with a tensor in torch.save's format, which is unpickled without running any code. In both cases embeddings of
the wrong shape or with non-finite values are refused.
"""

import contextlib
import io
import json
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from pipelines.errors import RemoteEncoderError
from pipelines.messages import say
from pipelines.recipes.recipe import Recipe
from pipelines.stages import Embeddings

ENCODE_PATH = "/encode"
TIMEOUT = httpx.Timeout(120.0, connect=10.0)  # seconds; a 24B encoder takes half a minute on a CPU
TRIES = 3
POLL_S = 0.25  # between checks whether a waiting job was cancelled
BUSY = (429, 502, 503, 504)
MAX_ANSWER_BYTES = 2**28  # dev's embeddings are 31 MB in fp32


class RemoteEncoder:
    """A server at `url`; raises RemoteEncoderError if that is not an address."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        transport: httpx.BaseTransport | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RemoteEncoderError(
                say("{url} is not an address.", url=repr(url)), advice=say("Write it as http://host:port.")
            )
        self._is_ours = parts.path in ("", "/", ENCODE_PATH)
        self._url = url.rstrip("/") + ENCODE_PATH if parts.path in ("", "/") else url
        self._wait = wait
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._transport = transport

    def encode(
        self,
        recipe: Recipe,
        *,
        shapes: Mapping[str, tuple[int, ...]],
        on_wait: Callable[[], None] = lambda: None,
    ) -> Embeddings:
        """Returns the embeddings named in `shapes`, which are the family's `embedding_shapes`.

        `on_wait` is called while waiting, and may raise to give up; the request then ends by itself. Raises
        RemoteEncoderError if the server refuses, cannot be reached, or sends anything else.
        """
        texts = {"prompt_embeds": recipe.prompt, "negative_prompt_embeds": recipe.negative_prompt or ""}
        if self._is_ours:
            question = {"model": recipe.model, "prompt": recipe.prompt, "negative_prompt": recipe.negative_prompt}
            found = self._read_tensors(self._ask(question, on_wait))
        else:
            unknown = shapes.keys() - texts.keys()
            if unknown:
                raise RemoteEncoderError(
                    say(
                        "{url} cannot make {names} for {model}.",
                        url=self._url,
                        names=", ".join(sorted(unknown)),
                        model=recipe.model,
                    )
                )
            found = {name: self._read_torch(self._ask({"prompt": texts[name]}, on_wait)) for name in shapes}
        return {name: self._check(name, found, wanted) for name, wanted in shapes.items()}

    def _ask(self, question: Mapping[str, Any], on_wait: Callable[[], None]) -> bytes:
        """Returns the answer's content; the request runs in a thread of its own, which cannot be interrupted."""
        answer: Future[bytes] = Future()
        is_given_up = threading.Event()

        def run() -> None:
            try:
                answer.set_result(self._try(question, is_given_up))
            except Exception as error:  # noqa: BLE001 - raised again where it is waited for
                answer.set_exception(error)

        threading.Thread(target=run, name="remote encoder", daemon=True).start()
        try:
            while not wait_for([answer], POLL_S).done:
                on_wait()
        except BaseException:
            is_given_up.set()
            raise
        return answer.result()

    def _try(self, question: Mapping[str, Any], is_given_up: threading.Event) -> bytes:
        for attempt in range(TRIES):
            if attempt:
                self._wait(2.0 ** (attempt - 1))
            try:
                with self._connect() as client, client.stream("POST", self._url, json=question) as answer:
                    if answer.status_code in BUSY and attempt < TRIES - 1 and not is_given_up.is_set():
                        continue
                    return self._read(answer)
            except httpx.TimeoutException as error:
                problem, cause = say("did not answer in time"), error
            except httpx.TransportError as error:
                problem, cause = say("cannot be reached: {error}", error=error), error
            if attempt == TRIES - 1 or is_given_up.is_set():
                raise RemoteEncoderError(
                    say("{url} {problem}.", url=self._url, problem=problem),
                    advice=say("Check that the server runs and that its address and port are right."),
                ) from cause
        raise AssertionError("the last try returns or raises")

    def _connect(self) -> httpx.Client:
        return httpx.Client(timeout=TIMEOUT, headers=self._headers, transport=self._transport)

    def _read(self, answer: httpx.Response) -> bytes:
        content = bytearray()
        for chunk in answer.iter_bytes():
            content += chunk
            if len(content) > MAX_ANSWER_BYTES:
                raise RemoteEncoderError(
                    say("{url} answers with more than {size} MiB.", url=self._url, size=MAX_ANSWER_BYTES // 2**20)
                )
        if answer.is_success:
            return bytes(content)
        advice = {
            401: say("It wants a token: set LUMESH_TEXT_ENCODER_TOKEN to the server's, then start again."),
            403: say("The token may not use this encoder: check LUMESH_TEXT_ENCODER_TOKEN."),
            404: say("Check the address: ours ends with the port, a public one with /predict."),
            503: say("It is busy or still loading its model: try again in a minute."),
        }
        said = _find_detail(bytes(content))
        raise RemoteEncoderError(
            say("{url} answered {status}: {reason}.", url=self._url, status=answer.status_code, reason=said)
            if said
            else say("{url} answered {status}.", url=self._url, status=answer.status_code),
            advice=advice.get(answer.status_code, say("Look at the server's log.")),
        )

    def _read_tensors(self, content: bytes) -> dict[str, np.ndarray]:
        try:
            return load(content)
        except (SafetensorError, KeyError) as error:
            raise self._strange_answer(error) from error

    def _read_torch(self, content: bytes) -> np.ndarray:
        import torch

        try:
            tensor = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
            return tensor.float().numpy()
        except (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, ValueError) as error:
            raise self._strange_answer(error) from error

    def _strange_answer(self, error: Exception) -> RemoteEncoderError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return RemoteEncoderError(
            say("{url} answered with something that is no tensor file: {reason}.", url=self._url, reason=reason),
            advice=say("Ours is an address without a path; one with a path must answer like FLUX.2's public encoder."),
        )

    def _check(self, name: str, found: Mapping[str, np.ndarray], wanted: tuple[int, ...]) -> np.ndarray:
        if name not in found:
            raise RemoteEncoderError(
                say("{url} sent no {name}.", url=self._url, name=name),
                advice=say("Check that it serves the same model."),
            )
        value = found[name]
        if value.shape != wanted:
            raise RemoteEncoderError(
                say(
                    "{url} sent {name} of shape {found}; {wanted} is needed.",
                    url=self._url,
                    name=name,
                    found=value.shape,
                    wanted=wanted,
                ),
                advice=say("Check that it serves the same model."),
            )
        if not np.isfinite(value.astype(np.float32)).all():
            raise RemoteEncoderError(
                say("{url} sent {name} with values that are not finite.", url=self._url, name=name)
            )
        return value


def _find_detail(content: bytes) -> str:
    """Returns the server's explanation on one line, or nothing if the answer is a web page."""
    text = content[:500].decode("utf-8", "replace")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(content)["detail"])
    return "" if text.lstrip().startswith("<") else " ".join(text.split())[:200]
