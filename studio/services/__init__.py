"""What the app process does in the background, beside the routes."""
