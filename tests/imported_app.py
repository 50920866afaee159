"""What a fork server imports before it forks studios (studio_processes.py): all that a starting app imports."""

import gc
import os

os.environ.update(GRADIO_ANALYTICS_ENABLED="False", HF_HUB_DISABLE_TELEMETRY="1")  # as serving.py does

import app  # noqa: F401
from studio import serving  # noqa: F401
from studio.ui import page  # noqa: F401

gc.freeze()  # pages of memory that no collection touches stay shared with the studios
