"""What is said of the pictures that a command starts from, before a large model is loaded."""

from pathlib import Path

from pipelines.messages import Message, english, say
from pipelines.models.catalog import Model
from pipelines.pictures.fitting import TOLD_SHARE, Fit, choose_nearest, find_outside
from pipelines.pictures.reading import read_file
from pipelines.pictures.references import choose_references
from pipelines.recipes.recipe import Recipe


def check_pictures(recipe: Recipe, model: Model) -> list[Message]:
    """Reads the recipe's pictures before a large model is loaded; returns what is changed and cut off, in sentences.

    Raises RecipeError for a file that is no picture.
    """
    notes: list[Message] = []
    read = [(Path(image).name, read_file(Path(image))) for image in recipe.images]
    references = choose_references(model, [picture.image.size for _, picture in read])
    shape = references.size if references else recipe.parsed_shape
    for name, picture in read:
        notes += [say("{name}: {note}", name=name, note=note) for note in picture.notes]
        size = picture.image.size
        outside = find_outside(size, shape)
        if outside < TOLD_SHARE:
            continue
        if recipe.fit is Fit.PAD:
            notes.append(english(f"{name}: black bars fill {outside:.0%} of {shape}."))
        elif recipe.fit is Fit.STRETCH:
            notes.append(english(f"{name}: the picture is stretched to the proportions of {shape}."))
        else:
            notes.append(
                english(f"{name}: {outside:.0%} of the picture lies outside {shape}; --fit pad or stretch keeps it.")
            )
            nearest = choose_nearest(model.shapes, size, like=shape)
            if find_outside(size, nearest) < outside and not references:
                notes.append(english(f"{name}: --shape {nearest} cuts off {find_outside(size, nearest):.0%}."))
    return notes
