"""The line of waiting jobs: who is next, why, who joins a batch, and when everybody's turn comes."""
