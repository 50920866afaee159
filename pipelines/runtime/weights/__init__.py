"""From a checkpoint's files, on disk or on the hub, to sharded arrays: LoRAs merged in, sharded copies kept."""
