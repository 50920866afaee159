"""Support for hosting: backups, and files for systemd, nginx and Docker."""
