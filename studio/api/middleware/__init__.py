"""ASGI middleware that every request passes: security headers, CSRF protection, login, size limits, host names."""
