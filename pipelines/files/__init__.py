"""What Lumesh writes: pictures with their recipes, videos, and the files between the stages of the command line."""
