"""What jobs cost: seconds from history, chip seconds, and money."""
