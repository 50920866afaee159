"""A text encoder elsewhere: both kinds of server, and every way in which one may fail, told in words."""

import io
import threading
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.numpy import save

from pipelines.errors import Cancelled, RemoteEncoderError
from pipelines.families.remote_encoder import TRIES, RemoteEncoder
from pipelines.recipes.recipe import Recipe

PUBLIC = "https://encoder.example/predict"
OURS = "http://127.0.0.1:8888"
SHAPES = {"prompt_embeds": (1, 4, 6)}
EMBEDDING = np.arange(24, dtype=np.float32).reshape(1, 4, 6)
RECIPE = Recipe(model="flux2-dev", prompt="a red boat", negative_prompt="")


def save_torch(value: Any) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


class Server:
    """Answers in turn; the last answer stays. An exception is raised instead of answering."""

    def __init__(self, answers: Sequence[httpx.Response | Exception]) -> None:
        self.requests: list[httpx.Request] = []
        self.waits: list[float] = []
        self._answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, url: str = OURS, *, shapes: Any = None, token: str | None = None) -> Any:
        encoder = RemoteEncoder(
            url,
            token=token,
            transport=httpx.MockTransport(self),
            wait=self.waits.append,
        )
        return encoder.encode(RECIPE, shapes=shapes or SHAPES)


def answer_ours(**tensors: np.ndarray) -> httpx.Response:
    return httpx.Response(200, content=save(tensors or {"prompt_embeds": EMBEDDING}))


def test_our_server_is_asked_for_the_model_and_answers_with_safetensors() -> None:
    server = Server([answer_ours()])
    np.testing.assert_array_equal(server.ask(token="secret")["prompt_embeds"], EMBEDDING)
    (request,) = server.requests
    assert request.url == f"{OURS}/encode"
    assert request.headers["authorization"] == "Bearer secret"
    assert b'"flux2-dev"' in request.read()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_public_encoder_answers_with_a_saved_tensor(dtype: torch.dtype) -> None:
    server = Server([httpx.Response(200, content=save_torch(torch.from_numpy(EMBEDDING).to(dtype)))])
    np.testing.assert_array_equal(server.ask(PUBLIC)["prompt_embeds"], EMBEDDING)
    (request,) = server.requests
    assert (request.url, request.read()) == (PUBLIC, b'{"prompt":"a red boat"}')


def test_a_public_encoder_is_asked_once_for_each_half_of_a_guidance_pair() -> None:
    server = Server([httpx.Response(200, content=save_torch(torch.from_numpy(EMBEDDING)))])
    server.ask(PUBLIC, shapes=SHAPES | {"negative_prompt_embeds": (1, 4, 6)})
    assert [request.read() for request in server.requests] == [b'{"prompt":"a red boat"}', b'{"prompt":""}']


class Malicious:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return pytest.fail, ("code from the answer was run",)


@pytest.mark.parametrize("content", [save_torch(Malicious()), save_torch([1, 2]), b"", b"PK\x03\x04torn", b"<html>"])
def test_an_answer_that_is_no_tensor_is_never_run(content: bytes) -> None:
    with pytest.raises(RemoteEncoderError, match="no tensor file"):
        Server([httpx.Response(200, content=content)]).ask(PUBLIC)


@pytest.mark.parametrize("content", [b"", b"{}", save({"prompt_embeds": EMBEDDING})[:-4]])
def test_a_damaged_answer_of_ours_is_refused(content: bytes) -> None:
    with pytest.raises(RemoteEncoderError, match="no tensor file"):
        Server([httpx.Response(200, content=content)]).ask()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"other": EMBEDDING}, "sent no prompt_embeds"),
        ({"prompt_embeds": EMBEDDING[:, :2]}, r"shape \(1, 2, 6\); \(1, 4, 6\) is needed.*same model"),
        ({"prompt_embeds": EMBEDDING * np.nan}, "not finite"),
    ],
)
def test_embeddings_that_do_not_fit_are_refused(tensors: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(RemoteEncoderError, match=message):
        Server([answer_ours(**tensors)]).ask()


@pytest.mark.parametrize(
    "trouble", [httpx.Response(503), httpx.Response(502), httpx.ConnectError("refused"), httpx.ReadTimeout("slow")]
)
def test_a_busy_server_is_asked_again(trouble: Any) -> None:
    server = Server([trouble, trouble, answer_ours()])
    assert server.ask()["prompt_embeds"].shape == (1, 4, 6)
    assert server.waits == [1.0, 2.0]


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (httpx.Response(503, json={"detail": "loading"}), r"answered 503: loading\. It is busy"),
        (httpx.ReadTimeout("slow"), "did not answer in time.*server runs"),
        (httpx.ConnectError("refused"), "cannot be reached: refused"),
    ],
)
def test_after_some_tries_it_says_what_is_wrong(trouble: Any, message: str) -> None:
    server = Server([trouble])
    with pytest.raises(RemoteEncoderError, match=message):
        server.ask()
    assert len(server.requests) == TRIES


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.Response(401, json={"detail": "no token"}), r"401: no token\. It wants a token: set LUMESH_TEXT"),
        (httpx.Response(403), "403. The token may not"),
        (httpx.Response(404, text="<html>not here</html>"), "answered 404. Check the address"),
        (httpx.Response(307, headers={"location": "http://elsewhere"}), "answered 307"),
        (httpx.Response(500, text="out of memory"), "answered 500: out of memory"),
    ],
)
def test_a_refusal_is_told_at_once(answer: httpx.Response, message: str) -> None:
    server = Server([answer])
    with pytest.raises(RemoteEncoderError, match=message):
        server.ask()
    assert len(server.requests) == 1


def test_who_waits_may_give_up_while_the_server_hangs_and_nothing_is_asked_again() -> None:
    is_over = threading.Event()
    asked: list[httpx.Request] = []
    threads: list[threading.Thread] = []

    def hang(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        threads.append(threading.current_thread())
        is_over.wait()
        raise httpx.ReadTimeout("slow")

    waited: list[bool] = []

    def give_up_the_second_time() -> None:
        waited.append(not is_over.is_set())
        if len(waited) > 1:
            raise Cancelled

    encoder = RemoteEncoder(OURS, transport=httpx.MockTransport(hang), wait=lambda _seconds: None)
    with pytest.raises(Cancelled):
        encoder.encode(RECIPE, shapes=SHAPES, on_wait=give_up_the_second_time)
    assert waited == [True, True]
    is_over.set()
    threads[0].join()
    assert len(asked) == 1


@pytest.mark.parametrize("url", ["", "localhost:8888", "file:///etc/passwd", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(RemoteEncoderError, match="is not an address"):
        RemoteEncoder(url)
