"""The families of models, one folder each, and the one list of them.

A folder has two doors. `traits.py` holds the family's `TRAITS` (traits.py), which the catalogue, the page and REST read
without importing jax; `architecture.py` holds its `ARCHITECTURE` (protocol.py), which registry.py imports when a model
is loaded or planned. What families share lies beside the folders, and in `unet` what those with a UNet share. `fake`
stands in for all of them and is none.
"""

import importlib
import importlib.util
from collections.abc import Iterator

from pipelines.families.traits import Traits

FAMILIES = ("sdxl", "sd", "flux2", "z_image", "wan")  # in the order in which people see them


def can_learn(family: str) -> bool:
    """Tells whether there is code with which models of this family learn, without loading it."""
    return family in FAMILIES and importlib.util.find_spec(f"{__name__}.{family}.training") is not None


def find_traits(family: str) -> Traits:
    """Returns a family's traits, or bare defaults for an unknown family, whose models then fail to load."""
    if family not in FAMILIES:
        return Traits(title=family)
    return importlib.import_module(f"pipelines.families.{family}.traits").TRAITS


def list_traits() -> Iterator[tuple[str, Traits]]:
    """Yields every family's name and traits."""
    for family in FAMILIES:
        yield family, find_traits(family)


def name_families() -> str:
    """Returns the families' titles as one phrase for people: `SDXL, FLUX.2 or Wan`."""
    *others, last = (traits.title for _, traits in list_traits())
    return f"{', '.join(others)} or {last}"
