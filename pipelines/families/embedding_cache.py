"""An LRU cache of prompt embeddings: a sweep over seeds encodes its prompt once."""

from collections import OrderedDict
from collections.abc import Callable, Hashable

import numpy as np

from pipelines.stages import Embeddings

MAX_BYTES = 2**28  # eight prompts of FLUX.2 dev (31 MB each in fp32), hundreds of SDXL


class EmbeddingCache:
    """The LRU cache of one loaded model; its keys are only prompts and LoRAs, as the model is fixed."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, Embeddings] = OrderedDict()

    def get(self, key: Hashable, encode: Callable[[], Embeddings]) -> Embeddings:
        """Returns the embeddings stored under `key`, computing and storing them with `encode` if they are missing."""
        if key not in self._kept:
            self._kept[key] = encode()
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and sum(map(_count_bytes, self._kept.values())) > self._max_bytes:
            self._kept.popitem(last=False)
        return self._kept[key]

    def clear(self) -> None:
        self._kept.clear()


def _count_bytes(embeddings: Embeddings) -> int:
    return sum(np.asarray(value).nbytes for value in embeddings.values())
