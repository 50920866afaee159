"""A UNet's sharding: images and the guidance pair on `dp`, rows of the image on `sp`, weights replicated.

Splitting rows is far faster than tensor parallelism for this convolutional model (8 does not divide the 10 and 20
heads of SDXL, and GEGLU is fused); `tp` is for machines where the weights alone do not fit on one chip. Text encoders
and VAE are small and replicated.
"""

from jax.sharding import PartitionSpec as P

# torch layout: linear (out, in), convolution (out, in, height, width)
UNET_RULES = (
    (r"\.(to_q|to_k|to_v)\.weight$", P("tp", None)),
    (r"\.to_out\.0\.weight$", P(None, "tp")),
    (r"\.ff\.net\.0\.proj\.weight$", P("tp", None)),
    (r"\.ff\.net\.0\.proj\.bias$", P("tp")),
    (r"\.ff\.net\.2\.weight$", P(None, "tp")),
    (r"", P()),
)
REPLICATED = ((r"", P()),)
