"""A prompt is read once, and the cache never holds more than it may."""

from collections.abc import Callable

import numpy as np
import pytest

from pipelines.families.embedding_cache import EmbeddingCache
from pipelines.stages import Embeddings

ENTRY_BYTES = 400


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def read(asked: list[str]) -> Callable[[EmbeddingCache, str], Embeddings]:
    def read(cache: EmbeddingCache, prompt: str) -> Embeddings:
        def encode() -> Embeddings:
            asked.append(prompt)
            return {"prompt_embeds": np.zeros(ENTRY_BYTES // 4, np.float32)}

        return cache.get(prompt, encode)

    return read


def test_a_prompt_is_read_once(read: Callable[..., Embeddings], asked: list[str]) -> None:
    cache = EmbeddingCache()
    first = read(cache, "a")
    assert read(cache, "a") is first
    assert asked == ["a"]


def test_the_one_not_used_for_longest_goes_first(read: Callable[..., Embeddings], asked: list[str]) -> None:
    cache = EmbeddingCache(max_bytes=2 * ENTRY_BYTES)
    for prompt in ("a", "b", "a", "c", "a", "b"):
        read(cache, prompt)
    assert asked == ["a", "b", "c", "b"]


def test_one_entry_is_kept_however_large(read: Callable[..., Embeddings], asked: list[str]) -> None:
    cache = EmbeddingCache(max_bytes=1)
    for prompt in ("a", "a", "b", "b"):
        read(cache, prompt)
    assert asked == ["a", "b"]
