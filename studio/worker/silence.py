"""How long a worker has been silent, by a clock that neither jumps nor runs while nobody does.

A heartbeat is noticed because the stored value changed, whatever time it says: a clock that was set forward or back
between the two processes, or while they ran, neither kills a worker nor hides one that hangs. Only time in which the
listener itself ran counts, so a machine that was suspended, or both processes stopped together, starts where it was.
"""

LONGEST_GAP_S = 1.0  # a listener that polls ten times a second and misses more was stopped itself


class Silence:
    """The silence of one worker."""

    def __init__(self) -> None:
        self._beat: float | None = None
        self._listened_s: float | None = None
        self._silent_s = 0.0

    def listen(self, beat: float | None, now_s: float) -> float:
        """Takes the stored heartbeat (None: unreadable) at `now_s` of a monotonic clock; returns the silent seconds."""
        if self._listened_s is None or (beat is not None and beat != self._beat):
            self._silent_s = 0.0
        else:
            self._silent_s += min(now_s - self._listened_s, LONGEST_GAP_S)
        self._beat = self._beat if beat is None else beat
        self._listened_s = now_s
        return self._silent_s
