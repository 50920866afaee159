"""What a server needs beside the studio itself: backups, and files for systemd, nginx and Docker."""
