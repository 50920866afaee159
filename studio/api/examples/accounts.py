"""Example requests for accounts: one's own password and tokens, and users."""

from studio.api.examples.example import Example, get, post

EXAMPLES = (
    get("/api/v1/account", "Read your account"),
    Example(
        method="PUT",
        path="/api/v1/account/password",
        url="/api/v1/account/password",
        summary="Change your password",
        body={"current": "lovelace-1815", "password": "analytical-engine"},
    ),
    post("/api/v1/account/tokens", "Make a token", body={"name": "notebook", "current": "analytical-engine"}),
    Example(
        method="DELETE",
        path="/api/v1/account/tokens/{token_id}",
        url="/api/v1/account/tokens/5f0c7a1be2d94c10",
        summary="Revoke a token",
    ),
    get("/api/v1/users", "List the users"),
    post("/api/v1/users", "Add a user", body={"name": "bob", "password": "kitchen-table-47", "is_admin": False}),
    Example(
        method="PUT",
        path="/api/v1/users/{name}/password",
        url="/api/v1/users/bob/password",
        summary="Give a user a new password",
        body={"password": "window-seat-21"},
    ),
    Example(method="DELETE", path="/api/v1/users/{name}", url="/api/v1/users/bob", summary="Remove a user"),
)
