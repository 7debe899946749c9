"""Media files are written by libsndfile and FFmpeg here, and by hand where they are meant to be wrong."""

import io
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.codecs import containers, media
from antiphon.codecs.encode import wav_header
from antiphon.codecs.errors import (
    CodecError,
    MediaError,
    MissingExtra,
    NoSound,
    NotAudio,
    TooLarge,
    TooLong,
    UnsupportedRate,
)
from tests.codecs.signals import F32, frequency, rms_db, sine, steady

soundfile = pytest.importorskip("soundfile")
SPEECH = Path(os.environ.get("ANTIPHON_SHARED", "../shared")) / "audio"


def by_sndfile(x: F32, rate: int, format: str, subtype: str | None = None) -> bytes:
    out = io.BytesIO()
    channels = 1 if x.ndim == 1 else x.shape[1]
    with soundfile.SoundFile(out, "w", rate, channels, subtype, format=format) as file:
        for start in range(0, len(x), 65536):  # its Vorbis encoder puts a whole block on the stack
            file.write(x[start : start + 65536])
    return out.getvalue()


def by_ffmpeg(x: F32, rate: int, container: str, codec: str) -> bytes:
    av: Any = pytest.importorskip("av")
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(x[None, :], format="fltp", layout="mono")
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            file.mux(packet)
    return out.getvalue()


FILES = {
    "wav": lambda x: by_sndfile(x, 24000, "WAV"),
    "wav float": lambda x: by_sndfile(x, 24000, "WAV", "FLOAT"),
    "wav mu-law": lambda x: by_sndfile(x, 24000, "WAV", "ULAW"),
    "wav 24 bit": lambda x: by_sndfile(x, 24000, "WAV", "PCM_24"),
    "flac": lambda x: by_sndfile(x, 24000, "FLAC"),
    "ogg vorbis": lambda x: by_sndfile(x, 24000, "OGG", "VORBIS"),
    "ogg opus": lambda x: by_sndfile(x, 24000, "OGG", "OPUS"),
    "mp3": lambda x: by_sndfile(x, 24000, "MP3"),
    "aiff": lambda x: by_sndfile(x, 24000, "AIFF"),
    "m4a": lambda x: by_ffmpeg(x, 24000, "ipod", "aac"),
    "mp4": lambda x: by_ffmpeg(x, 24000, "mp4", "aac"),
    "webm": lambda x: by_ffmpeg(x, 24000, "webm", "libopus"),
    "aac": lambda x: by_ffmpeg(x, 24000, "adts", "aac"),
    "avi": lambda x: by_ffmpeg(x, 24000, "avi", "aac"),
    "mpeg": lambda x: by_ffmpeg(x, 24000, "mpeg", "mp2"),
    "mp3 by lame": lambda x: by_ffmpeg(x, 24000, "mp3", "libmp3lame"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_is_heard_as_it_was(name: str) -> None:
    x = sine(24000, 2.0)
    y = media.decode(FILES[name](x), 16000)
    assert y.dtype == np.float32
    assert y.ndim == 1
    assert -0.001 <= len(y) / 16000 - 2 <= 0.12
    middle = steady(y, 16000, 150)
    assert abs(rms_db(middle) - rms_db(x)) < 0.6
    assert abs(frequency(middle, 16000) - 1000) < 1


@pytest.mark.parametrize("name", ["ogg vorbis", "ogg opus"])
def test_a_chained_ogg_is_read_to_its_last_link(name: str) -> None:
    """Files in a row are a file (RFC 3533, section 4): two seconds of a tone, two of silence, and two of the tone again."""
    tone, silence = FILES[name](sine(24000, 2.0)), FILES[name](np.zeros(48000, np.float32))
    assert containers.chained(tone + silence) and not containers.chained(tone) and not containers.chained(tone[:-100])
    y = media.decode(tone + silence + tone, 16000)
    assert abs(len(y) / 16000 - 6) < 0.1
    loud = [rms_db(y[start : start + 16000]) for start in (8_000, 40_000, 72_000)]
    assert abs(loud[0] - rms_db(sine(16000, 1.0))) < 0.6 and abs(loud[2] - loud[0]) < 0.1 and loud[1] < -60


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100, 48000, 96000, 384000])
def test_every_rate_is_converted(rate: int) -> None:
    y = media.decode(by_sndfile(sine(rate, 1.0), rate, "WAV"), 16000)
    assert abs(len(y) - 16000) <= 1
    assert abs(rms_db(steady(y, 16000)) - rms_db(sine(16000, 1.0))) < 0.1
    assert abs(frequency(steady(y, 16000), 16000) - 1000) < 1


def test_a_rate_of_one_hertz_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedRate, match="1 Hz"):
        media.decode(wav_header(1, 4000) + bytes(4000), 16000)


def test_channels_are_mixed_by_their_mean() -> None:
    x = sine(16000, 0.5)
    y = media.decode(by_sndfile(np.stack([x, np.zeros_like(x)], axis=1), 16000, "WAV", "FLOAT"), 16000)
    assert np.allclose(y, x / 2, atol=1e-6)


def test_the_name_is_never_believed_against_the_bytes() -> None:
    data = by_sndfile(sine(16000, 0.5), 16000, "FLAC")
    assert len(media.decode(data, 16000, format="mp3")) == 8000


def test_raw_pcm16_is_24_khz_and_an_odd_byte_is_let_go() -> None:
    data = (np.arange(24000) % 100).astype("<i2").tobytes() + b"\x01"
    for name in ("pcm16", "pcm"):
        assert len(media.decode(data, 24000, format=name)) == 24000


@pytest.mark.parametrize(
    "data",
    [b"not audio at all, but long enough to look at", bytes(1000), b"%PDF-1.7 ...", b"#EXTM3U\nfile:///etc/passwd\n", b"x"],
)
@pytest.mark.parametrize("format", ["", "wav", "mp3", "m4a", "webm", "banana"])
def test_what_is_not_audio_is_told_so(data: bytes, format: str) -> None:
    with pytest.raises(NotAudio):
        media.decode(data, 16000, format=format)


def test_an_empty_file_and_one_without_samples_are_named() -> None:
    with pytest.raises(NotAudio, match="empty"):
        media.decode(b"", 16000)
    for name in ("WAV", "AIFF"):
        with pytest.raises(NoSound, match="0 samples"):
            media.decode(by_sndfile(np.zeros(0, dtype=np.float32), 16000, name), 16000)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_gives_what_it_holds_or_a_named_error(name: str) -> None:
    data = FILES[name](sine(24000, 2.0))
    for part in (0.9, 0.5, 0.1, 0.01):
        try:
            y = media.decode(data[: int(len(data) * part)], 16000)
        except MediaError:
            # An mp4's index stands at its end; an Ogg page of up to a second is whole or nothing.
            assert part < 0.5 or name in ("m4a", "mp4", "ogg vorbis", "ogg opus")
        else:
            assert 0 < len(y) / 16000 < 2.1
            if len(y) > 16000:
                assert abs(frequency(steady(y, 16000, 150), 16000) - 1000) < 2


def test_a_wav_streamed_without_sizes_is_read() -> None:
    body = (sine(16000, 1.0) * 32767).astype("<i2").tobytes()
    assert len(media.decode(wav_header(16000) + body, 16000)) == 16000


def test_too_many_bytes_are_refused_before_a_look() -> None:
    with pytest.raises(TooLarge, match="limit is 10"):
        media.decode(bytes(11), 16000, max_bytes=10)


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "WAV", "MP3"])
def test_two_hours_are_refused_and_not_decoded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, rate = (7200, 8000) if kind in ("FLAC", "WAV") else (300, 8000)
    limit = 60.0
    data = by_sndfile(np.zeros(seconds * rate, dtype=np.float32), rate, kind, "PCM_U8" if kind == "WAV" else None)
    decoded = 0
    real = media._mono

    def counting(frames: F32) -> F32:
        nonlocal decoded
        decoded += len(frames)
        return real(frames)

    monkeypatch.setattr(media, "_mono", counting)
    with pytest.raises(TooLong, match="limit of 60 seconds"):
        media.decode(data, 16000, max_seconds=limit, max_bytes=2**30)
    assert decoded <= (limit + 6) * rate


def test_a_long_file_by_ffmpeg_is_refused_and_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = by_ffmpeg(np.zeros(8000 * 120, dtype=np.float32), 8000, "webm", "libopus")
    with pytest.raises(TooLong):
        media.decode(data, 16000, max_seconds=10)


def test_a_header_that_lies_does_not_cost_what_it_claims() -> None:
    lying = wav_header(16000, 16000 * 2 * 7200) + bytes(3200)
    assert len(media.decode(lying, 16000, max_seconds=60)) == 1600
    many = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36, b"WAVE", b"fmt ", 16, 1, 1000, 8000, 16000000, 2000, 16, b"data", 4000
    )
    with pytest.raises(NotAudio):
        media.decode(many + bytes(4000), 16000)


def test_samples_that_are_no_numbers_become_silence() -> None:
    x = sine(16000, 0.2)
    x[10:20] = np.nan
    assert np.isfinite(media.decode(by_sndfile(x, 16000, "WAV", "FLOAT"), 16000)).all()


def test_without_pyav_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = FILES["webm"](sine(24000, 0.2))
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtra, match=r"antiphon\[local\]"):
        media.decode(data, 16000)
    assert len(media.decode(by_sndfile(sine(16000, 0.5), 16000, "FLAC"), 16000)) == 8000


def test_a_coding_that_nobody_knows_is_said() -> None:
    data = FILES["mp4"](sine(24000, 0.3)).replace(b"mp4a", b"zzzz").replace(b"esds", b"zzzz")
    with pytest.raises(NotAudio, match="coding that is not known"):
        media.decode(data, 16000)


@given(st.binary(max_size=300), st.sampled_from(["wav", "flac", "ogg", "mp3", "mp4", "webm", "aac", "avi"]))
@settings(max_examples=150, deadline=None)
def test_rubbish_behind_a_good_start_never_escapes_the_tree(tail: bytes, kind: str) -> None:
    starts = {
        "wav": wav_header(16000, 100),
        "flac": b"fLaC\x00\x00\x00\x22",
        "ogg": b"OggS\x00\x02",
        "mp3": b"\xff\xfb\x90\x00",
        "mp4": b"\x00\x00\x00\x18ftypM4A ",
        "webm": b"\x1a\x45\xdf\xa3",
        "aac": b"\xff\xf1\x50\x80",
        "avi": b"RIFF\x00\x01\x00\x00AVI LIST",
    }
    try:
        media.decode(starts[kind] + tail, 16000)
    except CodecError:
        pass


def test_containers_are_told_from_their_first_bytes() -> None:
    x = sine(24000, 0.3)
    kinds = {name: containers.sniff(make(x)) for name, make in FILES.items()}
    expected = {name: name.split()[0] for name in FILES} | {"m4a": "mp4"}
    assert kinds == expected
    assert containers.sniff(b"") == containers.sniff(b"\xff\xff\xff\xff") == ""


@pytest.mark.skipif(not SPEECH.is_dir(), reason="recorded speech is not at hand")
def test_recordings_are_read_whole() -> None:
    assert abs(len(media.decode((SPEECH / "jfk.flac").read_bytes(), 16000)) / 16000 - 11.0) < 0.01
    assert abs(len(media.decode((SPEECH / "dog-or-cat.mp3").read_bytes(), 16000)) / 16000 - 1.6) < 0.2
