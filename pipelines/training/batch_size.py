"""How many pictures a step has, where nothing is asked: importable without jax, for whoever tells times before.

Not here: in how many parts a step goes through them (packing.py).
"""

from pipelines.training.settings import TrainingSettings

BATCH_SIZE = 8
"""Pictures a step where nothing is asked, rounded up so that every device has as many."""


def choose_batch(settings: TrainingSettings, pictures: int, devices: int) -> int:
    """Returns the pictures a step: those asked for, or some eight of which an epoch's last step leaves few unused.

    Of 0 `pictures`, whose number is not known, the most usual.
    """
    if settings.global_batch_size is not None:
        return settings.global_batch_size
    return choose_usual_batch(pictures, unit=devices * settings.accumulate)


def choose_usual_batch(pictures: int, *, unit: int) -> int:
    """Returns the pictures a step where nothing is asked, a multiple of `unit`."""
    around = range(-(-BATCH_SIZE // 2 // unit) * unit, max(2 * BATCH_SIZE, unit) + 1, unit)
    sizes = [size for size in around if size] or [unit]
    return min(sizes, key=lambda size: (-pictures % size / max(pictures, 1), abs(size - max(BATCH_SIZE, unit))))
