"""Captions do not lie, and held-out prompts say everything."""

import numpy as np

from pipelines.demos.postcards import (
    COLOURS,
    NOUNS,
    SUBJECTS,
    describe,
    draw_scene,
    held_out_prompts,
    is_held_out,
    vocabulary_text,
)


def test_held_out_prompts_are_fixed_and_mix_none_one_and_two_subjects() -> None:
    prompts = held_out_prompts(200)
    assert prompts == held_out_prompts(200)
    assert all(is_held_out(scene) for _, scene in prompts)
    assert np.bincount([len(scene.subjects) for _, scene in prompts]).tolist() == [30, 140, 30]


def test_a_held_out_prompt_names_each_subject_with_its_colour_left_one_first() -> None:
    for prompt, scene in held_out_prompts(200):
        caption = prompt.lower()
        places = []
        for subject in scene.subjects:
            found = [caption.find(f"{subject.colour} {noun}") for noun in NOUNS[subject.kind]]
            assert max(found) >= 0, prompt
            places.append(max(found))
        assert places == sorted(places), prompt


def test_a_caption_never_names_a_colour_or_subject_the_scene_lacks() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3000):
        scene = draw_scene(rng)
        caption = describe(scene, rng).lower()
        lacking = set(COLOURS) - {subject.colour for subject in scene.subjects}
        assert not lacking & set(caption.replace(",", " ").replace(".", " ").split()), caption
        for kind in set(SUBJECTS) - {subject.kind for subject in scene.subjects}:
            assert f" {kind}" not in f" {caption}", caption


def test_captions_are_sometimes_bare_and_sometimes_a_full_sentence() -> None:
    captions = {caption.lower().rstrip(".") for caption in vocabulary_text(np.random.default_rng(0), 6000)}
    assert {"a lighthouse", "night", "the ocean"} <= captions
    assert any("sunset over the ocean" in caption for caption in captions)
    assert any(" on the left and " in caption for caption in captions)
