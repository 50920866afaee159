"""`bench` and its subcommands: each measured side is a runner, which process.py starts in a process of its own."""
