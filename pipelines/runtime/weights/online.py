"""Whether the hub answers at all, asked once and briefly.

huggingface_hub itself asks six times with growing pauses before it gives up, 23 s in all, and has no setting for that.
Needs neither jax nor torch: the page's server asks too.
"""

import contextlib
import threading

TIMEOUT_S = 3.0
NOBODY = (502, 503, 504)  # what a proxy on the way says in place of a hub that it does not reach


def is_hub_reachable(endpoint: str | None = None, *, timeout_s: float = TIMEOUT_S) -> bool:
    """False when nobody answers at the endpoint in time, or HF_HUB_OFFLINE says not to ask; a refusal is an answer."""
    # Here, not above: the page's server sets how the library behaves before anybody imports it (app.py).
    import httpx2
    from huggingface_hub import constants, get_session, is_offline_mode

    if is_offline_mode():
        return False
    url = endpoint or constants.ENDPOINT
    answers: list[int] = []

    def ask() -> None:
        with contextlib.suppress(httpx2.HTTPError):
            answers.append(get_session().head(url, timeout=timeout_s).status_code)

    # In a thread: the time a name takes to be looked up has no limit of its own.
    thread = threading.Thread(target=ask, name="hub", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return any(status not in NOBODY for status in answers)
