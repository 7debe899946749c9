"""What a file's header claims is counted before FFmpeg makes memory of it: files of some kilobytes took gigabytes."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from antiphon.codecs import media, mov
from antiphon.codecs.errors import NotAudio

av = pytest.importorskip("av", reason="PyAV is not installed")


def sound(codec: str, seconds: int = 2, options: dict[str, str] | None = None) -> bytes:
    held = io.BytesIO()
    with av.open(held, "w", format="mov", options=options or {}) as out:
        stream = out.add_stream(codec, rate=48_000)
        stream.layout = "mono"
        kind = stream.format.name
        for at in range(seconds):
            samples = np.zeros((1, 48_000), np.int16 if kind == "s16" else np.float32)
            frame = av.AudioFrame.from_ndarray(samples, format=kind, layout="mono")
            frame.sample_rate, frame.pts = 48_000, at * 48_000
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return held.getvalue()


def patched(data: bytes, name: bytes, at: int, *values: int) -> bytes:
    """``data`` with 32-bit numbers from ``at`` bytes behind the box's name."""
    begin = data.index(name) + at
    return data[:begin] + struct.pack(f">{len(values)}I", *values) + data[begin + 4 * len(values) :]


def demuxed(data: bytes) -> int:
    with av.open(io.BytesIO(data), format="mov") as container:
        return sum(1 for packet in container.demux(container.streams.audio[0]) if packet.size)


@pytest.mark.parametrize("codec", ["aac", "pcm_s16le"])
def test_an_honest_file_s_entries(codec: str) -> None:
    """Uncoded sound claims every sample of it, and is taken in pieces."""
    data = sound(codec)
    assert demuxed(data) <= mov.index_entries(data) <= 2 * 48_000
    assert len(media.decode(data, 16_000)) == pytest.approx(32_000, abs=2_000)


def test_a_long_recording_without_coding_is_none_too_large() -> None:
    data = sound("pcm_s16le", 60)
    assert mov.index_entries(data) < mov.MOST_ENTRIES < 60 * 48_000
    assert len(media.decode(data, 16_000)) == 60 * 16_000


AAC, PCM = sound("aac"), sound("pcm_s16le", 60)
FRAGMENTS = sound("aac", options={"movflags": "frag_keyframe+empty_moov"})
MANY = 30_000_000
BOMBS = {
    "samples of one size": patched(AAC, b"stsz", 8, 4, MANY),
    "uncoded, in chunks without measure": patched(PCM, b"stsc", 16, 2**31),
    "uncoded, but as if it were coded": patched(patched(PCM, b"stts", 16, 2), b"stsz", 12, MANY),
    "a fragment": patched(FRAGMENTS, b"trun", 4, 1, MANY),
    "shown again and again": patched(AAC, b"elst", 8, MANY),
    "a compressed header": AAC.replace(b"udta", b"cmov"),
    "sizes that make no sense": struct.pack(">I4s", 3, b"junk") + patched(AAC, b"stsz", 8, 4, MANY),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_claims_too_much_is_not_opened(name: str) -> None:
    assert mov.index_entries(BOMBS[name]) > mov.MOST_ENTRIES
    if name != "sizes that make no sense":
        with pytest.raises(NotAudio, match="samples in its header; the limit is 2000000"):
            media.decode(BOMBS[name], 16_000)


def test_samples_that_look_like_tables_are_no_tables() -> None:
    data = AAC.replace(b"mdat", b"mdat" + b"stsz" + b"\xff" * 16 + b"cmov", 1)
    box = data.index(b"mdat") - 4
    data = patched(data, b"mdat", -4, struct.unpack_from(">I", AAC, box)[0] + 24)
    assert mov.index_entries(data) == mov.index_entries(AAC)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\x08ftyp", b"trakstsz", b"\0\0\0\1ftyp" + bytes(8), b"RIFF"])
def test_what_is_no_such_file_claims_nothing(data: bytes) -> None:
    assert mov.index_entries(data) == 0
