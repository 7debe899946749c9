"""What kind of file is this? Told from its first bytes, never from its name: names and content types are often wrong."""

from __future__ import annotations

from typing import Final

_MAGIC: Final = (
    (0, b"fLaC", "flac"),
    (0, b"OggS", "ogg"),
    (0, b"ID3", "mp3"),
    (0, b"caff", "caf"),
    (0, b".snd", "au"),
    (0, b"riff\x2e\x91\xcf\x11", "w64"),
    (0, b"\x1a\x45\xdf\xa3", "webm"),  # EBML: Matroska and WebM
    (4, b"ftyp", "mp4"),
    (4, b"moov", "mp4"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf"),
    (0, b"#!AMR", "amr"),
    (0, b"\x00\x00\x01\xba", "mpeg"),  # an MPEG program stream
)

ALIASES: Final = {
    "m4a": "mp4",
    "mov": "mp4",
    "m4b": "mp4",
    "mkv": "webm",
    "mka": "webm",
    "mpga": "mp3",
    "mpeg": "mp3",
    "oga": "ogg",
    "opus": "ogg",
    "wave": "wav",
    "aif": "aiff",
    "adts": "aac",
    "pcm": "pcm16",
}
"""Other names of the same containers, as files and clients spell them."""


def chained(data: bytes | memoryview) -> bool:
    """Whether an Ogg file is several in a row (RFC 3533, section 4): a page that begins a stream stands behind one that
    does not."""
    at, begun = 0, False
    while data[at : at + 4] == b"OggS" and len(data) >= at + 27:
        first = bool(data[at + 5] & 2)
        if first and begun:
            return True
        begun = begun or not first
        lacing = data[at + 27 : at + 27 + data[at + 26]]
        at += 27 + len(lacing) + sum(lacing)
    return False


def sniff(data: bytes | memoryview) -> str:
    """The container's name ("wav", "flac", "ogg", "mp3", "mp4", "webm", "aac", ...), or "" when it is not known."""
    head = bytes(data[:64])
    if head[:4] in (b"RIFF", b"RF64", b"RIFX") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    for offset, magic, name in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return name
    # MPEG audio: eleven set bits, then version and layer. Layer bits 00 with a 12-bit sync are ADTS.
    if len(head) >= 4 and head[0] == 0xFF:
        if head[1] & 0xF6 == 0xF0:
            return "aac"
        layer, bitrate, rate = (head[1] >> 1) & 3, head[2] >> 4, (head[2] >> 2) & 3
        if head[1] & 0xE0 == 0xE0 and (head[1] >> 3) & 3 != 1 and layer and bitrate not in (0, 15) and rate != 3:
            return "mp3"
    return ""
