"""Parts of a training that are done stay done: each is a file of parameters, and later runs make only the rest."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from pipelines.files.whole import put_whole


def finish(file: Path, make: Callable[[], Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Returns the parameters in `file`, first making and saving them if it is not there."""
    if not file.exists():
        values = {name: np.asarray(value) for name, value in make().items()}
        put_whole(file, lambda part: save_file(values, part))
    return load_file(file)
