"""Arrays are kept by what they were made of, whole or not at all."""

import logging
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pipelines.training.data.cache import Cache, Recent, make_key
from pipelines.training.data.cuts import Bucket, cover

ARRAYS = {
    "mean": np.arange(24, dtype=ml_dtypes.bfloat16).reshape(2, 3, 4),
    "tokens": np.arange(5),
    "mask": np.array([True, False]),
    "scale": np.float32(0.5),
    "none": np.zeros((0, 3), np.float16),
}


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    cache, key = Cache(tmp_path), make_key("a", 1)
    assert cache.get(key) is None and not cache.has(key)
    cache.put(key, ARRAYS)
    found = Cache(tmp_path).get(key)
    assert found is not None and cache.has(key) and found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert np.array_equal(found[name], array)


def test_a_view_that_is_not_contiguous_is_kept_right(tmp_path: Path) -> None:
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    Cache(tmp_path).put("ab" * 32, {"x": turned})
    assert np.array_equal(Cache(tmp_path).get("ab" * 32)["x"], turned)


def test_whatever_differs_makes_another_key() -> None:
    cut = cover(60, 20, Bucket(16, 16))
    parts = [
        ("latents", "sha", cut, False, "vae 1", 1),
        ("latents", "other", cut, False, "vae 1", 1),
        ("latents", "sha", cut.move(3, content="sha"), False, "vae 1", 1),
        ("latents", "sha", cover(60, 20, Bucket(32, 32)), False, "vae 1", 1),
        ("latents", "sha", cut, True, "vae 1", 1),
        ("latents", "sha", cut, False, "vae 2", 1),
        ("latents", "sha", cut, False, "vae 1", 2),
        ("text", "a cat"),
        ("text", "a cat."),
        ("text", "a", " cat"),
    ]
    assert len({make_key(*one) for one in parts}) == len(parts)
    assert make_key(*parts[0]) == make_key(*parts[0][:2], cover(60, 20, Bucket(16, 16)), *parts[0][3:])


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "other"])
def test_a_damaged_entry_counts_as_missing_is_told_and_made_again(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache, key = Cache(tmp_path), make_key(harm)
    cache.put(key, ARRAYS)
    (file,) = tmp_path.rglob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes({"cut": content[:-7], "flip": content, "empty": b"", "other": b"{}" * 40}[harm])
    with caplog.at_level(logging.WARNING):
        assert cache.get(key) is None
    assert file.name in caplog.text
    cache.put(key, ARRAYS)
    assert cache.get(key) is not None


def test_what_was_used_longest_ago_is_removed_first(tmp_path: Path) -> None:
    cache, keys = Cache(tmp_path), [make_key(at) for at in range(5)]
    for key in keys:
        cache.put(key, {"x": np.zeros(1000)})
    for at, file in enumerate(cache._find(key) for key in keys):
        os.utime(file, (at + 1, at + 1))
    cache.get(keys[0])
    size = cache.count_bytes() // 5
    assert cache.remove_unused(3 * size) == 2
    assert [cache.has(key) for key in keys] == [True, False, False, True, True]
    assert cache.remove_unused(3 * size) == 0 and Cache(tmp_path / "none").remove_unused(0) == 0


def test_many_entries_are_listed_quickly(tmp_path: Path) -> None:
    """Some hundred here, so that nothing depends on each entry being opened."""
    cache = Cache(tmp_path)
    for at in range(300):
        file = cache._find(make_key(at))
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"12345")
    assert cache.count_bytes() == 1500
    assert cache.remove_unused(1000) == 100


def test_entries_in_memory_are_those_used_last() -> None:
    entry = {"x": np.zeros(25, np.float32)}
    recent = Recent(most_bytes=250)
    for key in ("a", "b"):
        recent.put(key, entry)
    assert recent.get("a") is entry
    recent.put("c", entry)
    assert [recent.get(key) is entry for key in ("a", "b", "c")] == [True, False, True]
    recent.put("large", {"x": np.zeros(1000)})
    assert recent.get("large") is not None and recent.get("a") is None
    recent.put("d", entry)
    assert recent.get("d") is entry and recent.get("large") is None
    everything = Recent()
    for number in range(100):
        everything.put(str(number), entry)
    assert all(everything.get(str(number)) is entry for number in range(100))
