"""The end of a log without secrets."""

from pathlib import Path

import pytest

from studio.library import logs
from studio.library.logs import REMOVED, read_tail, remove_secrets


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("GET https://ann:pa55word@example.com/x failed", "pa55word"),
        ("clone https://hf_abcdefghijklmnop@huggingface.co/x", "hf_abcdefghijklmnop"),
        ("Authorization: Bearer abc.DEF-123_456", "abc.DEF-123_456"),
        ("'authorization': 'Basic dXNlcjpwYXNz'", "dXNlcjpwYXNz"),
        ("token is hf_AbCdEfGhIjKlMnOpQrSt.", "hf_AbCdEfGhIjKlMnOpQrSt"),
        ("GET /file?token=s3cr3t&x=1", "s3cr3t"),
        ('{"password": "open sesame", "user": "ann"}', "open sesame"),
        ("LUMESH_TEXT_ENCODER_TOKEN=abcdef", "abcdef"),
        ("X-Hub-Token: qwertyuiop", "qwertyuiop"),
        ("AWS key AKIAABCDEFGHIJKLMNOP used", "AKIAABCDEFGHIJKLMNOP"),
        ("secret whsec_c2VjcmV0c2VjcmV0", "whsec_c2VjcmV0c2VjcmV0"),
        ("jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl end", "eyJzdWIiOiIxMjM0"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nafter", "MIIE"),
        ("the value plainsecret stands alone", "plainsecret"),
    ],
)
def test_secrets_are_removed(line: str, secret: str) -> None:
    cleaned = remove_secrets(line, ["plainsecret"])
    assert secret not in cleaned
    assert REMOVED in cleaned


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-22 INFO studio.worker.loop: job d502f06287 ended after 1.20 s",
        "http://127.0.0.1:8888/encode answered 200",
        "the tokenizer takes 77 tokens at most",
        'File "/srv/lumesh/pipelines/sdxl/encode.py", line 12, in encode',
    ],
)
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert remove_secrets(line) == line


def test_the_tail_is_whole_lines_and_a_missing_file_is_empty(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "worker.log", lines=5) == []
    (tmp_path / "worker.log").write_text("".join(f"line {number}\n" for number in range(100)))
    assert read_tail(tmp_path / "worker.log", lines=2) == ["line 98", "line 99"]


def test_a_token_that_is_cut_in_half_by_the_limit_is_not_shown(tmp_path: Path) -> None:
    token = "hf_" + "a" * logs.MAX_BYTES
    (tmp_path / "worker.log").write_text(f"login {token}\nready\n")
    assert read_tail(tmp_path / "worker.log", lines=5) == ["ready"]
