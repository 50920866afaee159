"""The line of waiting jobs: which is next and why, which join a batch, and when each one's turn comes."""
