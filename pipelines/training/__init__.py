"""Fine-tuning on the same mesh and bridge as inference: settings, checks, data, engine and results of one training."""
