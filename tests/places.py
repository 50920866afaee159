"""The repository's root, found once: a test that moves to another folder still finds it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
