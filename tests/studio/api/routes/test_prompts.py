"""What a model reads of a prompt, over REST: while it is written, and with the job that it became."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient
from safetensors.numpy import save_file

from studio.jobs.job import Job
from studio.settings import Settings
from studio.worker.loop import Worker

URL = "/api/v1/prompts/read"
LONG = "A red sailboat, " + "very detailed, " * 100 + "a lighthouse at night"


def save_lora(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"unet.down_blocks.0.attn.lora_{side}.weight": np.zeros((1, 1), np.float32) for side in "AB"}
    save_file(tensors, folder / f"{name}.safetensors")


def test_a_prompt_is_counted_and_what_is_cut_is_named(client: TestClient) -> None:
    short = client.post(URL, json={"model": "demo-sdxl", "prompt": "A (red:1.3) boat"}).json()
    assert 0 < short["prompt"]["count"] <= short["prompt"]["room"]
    assert (short["prompt"]["unread"], short["notes"]) == ("", [])
    long = client.post(URL, json={"model": "demo-sdxl", "prompt": LONG, "negative_prompt": "fog"}).json()
    assert long["prompt"]["count"] > long["prompt"]["limit"]
    assert long["prompt"]["unread"].endswith("a lighthouse at night")
    assert "Not read: " in long["notes"][0]
    assert long["negative_prompt"]["unread"] == ""


def test_of_choices_the_longest_is_counted(client: TestClient) -> None:
    question = {"model": "demo-sdxl", "prompt": "A {red|blue and green and white} boat"}
    whole = client.post(URL, json=question).json()["prompt"]["count"]
    one = client.post(URL, json={**question, "has_choices": True}).json()["prompt"]["count"]
    longest = client.post(URL, json={"model": "demo-sdxl", "prompt": "A blue and green and white boat"}).json()
    assert one == longest["prompt"]["count"] < whole
    assert client.post(URL, json={"prompt": "A {red", "has_choices": True}).status_code == 200


def test_what_is_wrong_is_told(client: TestClient) -> None:
    assert client.post(URL, json={"model": "gone", "prompt": "x"}).json()["error"]["fields"].keys() == {"model"}
    assert client.post(URL, json={"prompt": "x" * 32_001}).status_code == 422


def test_a_job_says_what_is_not_followed(client: TestClient) -> None:
    made = client.post("/api/v1/jobs", json={"model": "demo-wan", "prompt": f"(boat:1.3) {LONG}"}).json()
    notes = client.get(f"/api/v1/jobs/{made['id']}").json()["notes"]
    assert any("Not read: " in note for note in notes)
    assert any("does not weigh words" in note for note in notes)
    edited = client.patch(f"/api/v1/jobs/{made['id']}", json={"prompt": "a boat"}).json()
    assert edited["notes"] == []
    edited = client.patch(f"/api/v1/jobs/{made['id']}", json={"guidance_scale": 1, "negative_prompt": "rain"}).json()
    assert edited["notes"] == ["A guidance_scale of 1 turns guidance off: the negative prompt has no effect."]


def test_a_job_names_the_words_that_its_model_never_learnt(client: TestClient) -> None:
    made = client.post("/api/v1/jobs", json={"model": "demo-sdxl", "prompt": "A cat on a red sailboat"}).json()
    notes = client.get(f"/api/v1/jobs/{made['id']}").json()["notes"]
    assert [note.partition(". ")[0] for note in notes] == ['Postcards (demo, SDXL layout) knows no "cat"']


def test_a_tag_in_the_prompt_applies_its_lora(client: TestClient, settings: Settings) -> None:
    save_lora(settings.loras_dir, "ink")
    body = {"model": "demo-sdxl", "prompt": "a boat <lora:ink:0.8> <lora:gone:1>"}
    job = client.get(f"/api/v1/jobs/{client.post('/api/v1/jobs', json=body).json()['id']}").json()
    assert (job["recipe"]["prompt"], job["recipe"]["loras"]) == ("a boat", [{"ref": "ink", "scale": 0.8}])
    assert job["notes"] == [
        "LoRA ink is applied at 0.8, as its tag in the prompt says.",
        "LoRA gone is not here: its tag is left out.",
    ]


def test_a_long_prompt_names_programs_of_its_own(client: TestClient) -> None:
    jobs = [client.post("/api/v1/jobs", json={"model": "demo-sdxl", "prompt": p}).json()["id"] for p in ("x", LONG)]
    programs = [client.get(f"/api/v1/jobs/{job}").json()["programs"] for job in jobs]
    assert programs == ["256x256", "256x256 for 4 texts"]


def test_notes_are_still_there_when_the_job_is_done(
    client: TestClient, worker: Worker, submit: Callable[..., Job]
) -> None:
    job = submit(prompt=LONG)
    worker.run_next()
    [note] = client.get(f"/api/v1/jobs/{job.id}").json()["notes"]
    assert "Not read: " in note


def test_words_that_the_model_does_not_know_are_named_with_what_it_can_draw(client: TestClient) -> None:
    found = client.post(URL, json={"model": "demo-sdxl", "prompt": "a cat on the ocean"}).json()
    examples = client.get("/api/v1/models").json()["models"][0]["examples"]
    assert found["unknown"]["words"] == ["cat"]
    assert [examples[place]["prompt"] for place in found["unknown"]["offers"]][:2] == [
        "A red sailboat on the ocean at sunset",
        "A beautiful sunset over the ocean",
    ]
    assert found["notes"] == [found["unknown"]["note"]]
    assert found["unknown"]["note_said"] == found["notes_said"][0]
    assert client.post(URL, json={"model": "demo-sdxl", "prompt": "a boat"}).json()["unknown"] is None
    made = client.post("/api/v1/jobs", json={"model": "demo-sdxl", "prompt": "a cat on the ocean"}).json()
    assert client.get(f"/api/v1/jobs/{made['id']}").json()["notes"] == found["notes"]


def test_with_a_lora_no_word_is_called_unknown(client: TestClient, settings: Settings, worker: Worker) -> None:
    """Whoever taught a model a word would be told that it does not know it."""
    save_lora(settings.loras_dir, "zorb")
    asked = {"model": "demo-sdxl", "prompt": "a zorb on the ocean"}
    assert client.post(URL, json=asked).json()["unknown"]["words"] == ["zorb"]
    for question in (asked | {"has_loras": True}, asked | {"prompt": "a zorb on the ocean <lora:zorb:1>"}):
        found = client.post(URL, json=question).json()
        assert found["unknown"] is None
        assert "knows no" not in str(found["notes"])
    made = client.post("/api/v1/jobs", json=asked | {"loras": [{"ref": "zorb"}]}).json()
    assert client.get(f"/api/v1/jobs/{made['id']}").json()["notes"] == []
    worker.run_next()
    assert client.get(f"/api/v1/jobs/{made['id']}").json()["notes"] == []


def test_an_example_comes_with_the_picture_that_its_model_made_of_it(client: TestClient) -> None:
    models = {model["id"]: model for model in client.get("/api/v1/models").json()["models"]}
    example = models["demo-wan"]["examples"][1]
    picture = client.get(example["picture_url"])
    assert picture.headers["content-type"] == "image/webp"
    assert client.get(example["picture_url"], headers={"If-None-Match": picture.headers["etag"]}).status_code == 304
    assert models["sdxl-base"]["examples"][0].keys() == {"prompt", "seed", "picture_url"}
    assert {(one["seed"], one["picture_url"]) for one in models["sdxl-base"]["examples"]} == {(None, None)}
    for place in ("sdxl-base/examples/0", "demo-sdxl/examples/99", "demo-sdxl/examples/-1", "gone/examples/0"):
        assert client.get(f"/api/v1/models/{place}/picture").status_code == 404
    assert models["demo-sdxl"]["limits"]["useful_steps"] == 40 < models["demo-sdxl"]["limits"]["steps"]
    assert models["sdxl-base"]["limits"]["useful_steps"] == models["sdxl-base"]["limits"]["steps"]
