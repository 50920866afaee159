"""Kinds of files that people bring and that are not read here, by their first bytes, so that a refusal names them."""

import re

_HEIC = rb"....ftyp(?:....){0,12}?(?:heic|heix|heim|heis|hevc|hevx|mif1|msf1)"
KINDS = (
    (re.compile(rb"\xff\x0a|\0\0\0\x0cJXL "), "JPEG XL"),
    (re.compile(_HEIC, re.DOTALL), "HEIC"),
    (re.compile(rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51"), "JPEG 2000"),
    (re.compile(rb"\x1a\x45\xdf\xa3"), "WebM or Matroska"),
    (re.compile(rb"8BPS"), "Photoshop"),
    (re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,500}?-->\s*)?<svg", re.DOTALL), "SVG"),
)
BEGIN_BYTES = 1024  # of a file that are enough to know its kind


def name_kind(begin: bytes) -> str:
    """Returns the kind of a file that begins so; "" for one that is not in the list."""
    begin = begin[:BEGIN_BYTES]
    if re.search(rb"avi[fs]", begin[8:64]):  # AVIF names HEIC's brands beside its own
        return ""
    return next((kind for pattern, kind in KINDS if pattern.match(begin)), "")
