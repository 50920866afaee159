"""What every request passes: security headers, CSRF, who asks, size limits, host names."""
