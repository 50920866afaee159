"""What a training leaves: states to go on from, samples and reports under way, and the file of what was learnt."""
