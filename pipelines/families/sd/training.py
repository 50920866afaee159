"""How Stable Diffusion 1 and 2 learn: their UNet is told the text and nothing else."""

from pipelines.families.unet.training import UNetLearner

LEARNER = UNetLearner()
