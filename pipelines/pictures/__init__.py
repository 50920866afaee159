"""Pictures that people bring: read, and fitted to the size that is made."""
