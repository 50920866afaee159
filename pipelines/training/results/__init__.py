"""Results of a training: states to go on from, samples and reports under way, and the file of what was learnt."""
