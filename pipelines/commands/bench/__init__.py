"""`bench` and its kin: each measured side runs in a process of its own (the runners), asked through process.py."""
