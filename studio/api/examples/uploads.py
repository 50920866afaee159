"""Example requests that send files: input pictures, and files whose recipe is read."""

from studio.api.examples.example import get, post
from studio.api.examples.things import UPLOAD

ADDRESS = f"/api/v1/uploads/{UPLOAD}"

EXAMPLES = (
    post("/api/v1/uploads", "Bring a picture to start from", sends="cat.png"),
    get("/api/v1/uploads/{upload_id}", "Fetch a picture you brought", url=ADDRESS, saves="cat.png"),
    get("/api/v1/uploads/{upload_id}/thumb", "Fetch its thumbnail", url=f"{ADDRESS}/thumb", saves="thumb.webp"),
    post("/api/v1/clips", "Bring a clip to learn from", sends="zorb.mp4", is_whole=True),
    post("/api/v1/recipes/read", "Read the recipe in a file", sends="boat.png"),
)
