"""One contract over every streaming encoder. Decoders here are not ours: libsndfile, FFmpeg, the wave module."""

import io
import wave
from typing import Any

import numpy as np
import pytest

from antiphon.codecs import encode
from antiphon.codecs.errors import UnsupportedFormat
from tests.codecs.signals import F32, frequency, rms_db, sine, steady

RATE = 24_000
FORMATS = list(encode.CONTENT_TYPES)
LOSSLESS = ("pcm", "wav", "flac")
PADDING_S = {"mp3": 0.1, "aac": 0.1}  # encoder delay and whole frames, which these two streams cannot declare


def read(data: bytes, format: str) -> F32:
    """By FFmpeg, which was told the format; raw pcm by its definition."""
    if format == "pcm":
        return np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768
    av: Any = pytest.importorskip("av")
    names = {"opus": "ogg", "aac": "aac"}
    with av.open(io.BytesIO(data), format=names.get(format, format)) as container:
        mixer = av.AudioResampler(format="flt", layout="mono", rate=RATE)
        frames = [*container.decode(audio=0), None]
        pieces = [piece.to_ndarray().ravel() for frame in frames for piece in mixer.resample(frame)]
        return np.concatenate(pieces, dtype=np.float32)


def stream(x: F32, format: str, size: int) -> list[bytes]:
    if format not in ("pcm", "wav"):
        pytest.importorskip("av")
    encoder = encode.encoder(format, RATE)
    return [*(encoder.feed(x[i : i + size]) for i in range(0, len(x), size)), encoder.finish()]


@pytest.mark.parametrize("size", [240, 888, 4096])
@pytest.mark.parametrize("format", FORMATS)
def test_a_sine_is_heard_as_it_was(format: str, size: int) -> None:
    x = sine(RATE, 2.0)
    y = read(b"".join(stream(x, format, size)), format)
    assert 0 <= len(y) - len(x) <= PADDING_S.get(format, 0.001) * RATE
    middle = steady(y, RATE, 150)
    assert abs(rms_db(middle) - rms_db(x)) < 0.5
    assert abs(frequency(middle, RATE) - 1000) < 1


@pytest.mark.parametrize("format", FORMATS)
def test_bytes_leave_as_they_are_made(format: str) -> None:
    pieces = stream(sine(RATE, 2.0), format, 480)
    begun = next(i for i, piece in enumerate(pieces) if piece)
    assert begun * 20 <= (360 if format == "flac" else 120)  # ms of sound put in before the first byte
    assert len(pieces[-1]) < sum(map(len, pieces)) / 4
    silent = max(len(run) for run in "".join("x" if p else "." for p in pieces).split("x"))
    assert silent * 20 <= 200


@pytest.mark.parametrize("format", LOSSLESS)
def test_lossless_formats_lose_nothing_and_have_no_seams(format: str) -> None:
    x = sine(RATE, 1.0, hz=440)
    expected = np.clip(np.rint(x * 32768), -32768, 32767) / 32768
    for size in (37, 555, 24000):
        y = read(b"".join(stream(x, format, size)), format)
        assert np.abs(y - expected).max() <= 1 / 32768


@pytest.mark.parametrize("format", FORMATS)
def test_chunk_size_does_not_change_the_sound(format: str) -> None:
    x = sine(RATE, 1.0, hz=440)
    a, b = (read(b"".join(stream(x, format, size)), format) for size in (333, 24000))
    assert np.array_equal(a, b)


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_to_say_is_still_a_file(format: str) -> None:
    data = b"".join(stream(np.zeros(0, dtype=np.float32), format, 1))
    if format == "pcm":
        assert data == b""
    elif format == "wav":
        assert len(data) == 44
    else:
        assert rms_db(read(data, format)) < -80


@pytest.mark.parametrize("format", FORMATS)
def test_overdriven_and_broken_samples_do_not_break_a_stream(format: str) -> None:
    x = sine(RATE, 0.5, level=3.0)
    x[100:200] = np.nan
    y = read(b"".join(stream(x, format, 480)), format)
    assert np.isfinite(y).all()
    assert np.abs(y).max() <= 1.5


@pytest.mark.parametrize("format", ["mp3", "opus", "flac", "wav"])
def test_libsndfile_reads_it_too(format: str) -> None:
    soundfile = pytest.importorskip("soundfile")
    with soundfile.SoundFile(io.BytesIO(b"".join(stream(sine(RATE, 1.0), format, 480)))) as file:
        assert file.samplerate == RATE
        y = file.read(RATE * 3 // 4, dtype="float32")  # at the very end of an unsized FLAC its reader fails
    assert len(y) == RATE * 3 // 4
    assert abs(frequency(steady(y, RATE, 150), RATE) - 1000) < 1


def test_a_stream_has_one_wav_header_and_a_whole_file_has_a_true_one() -> None:
    x = sine(RATE, 0.5)
    assert b"".join(stream(x, "wav", 480)).count(b"RIFF") == 1
    with wave.open(io.BytesIO(encode.whole(x, "wav", RATE))) as file:
        assert (file.getnframes(), file.getframerate(), file.getnchannels(), file.getsampwidth()) == (12000, RATE, 1, 2)


def test_a_whole_flac_tells_its_length_and_is_read_to_its_end() -> None:
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("av")
    x = sine(RATE, 0.5)
    made = encode.whole(x, "flac", RATE)
    assert soundfile.info(io.BytesIO(made)).frames == 12_000
    y, rate = soundfile.read(io.BytesIO(made), dtype="float32")
    assert rate == RATE and np.abs(y - x).max() < 1e-4


def test_containers_are_the_promised_ones() -> None:
    x = sine(RATE, 0.5)
    starts = {"opus": b"OggS", "flac": b"fLaC", "wav": b"RIFF"}
    for format, magic in starts.items():
        assert b"".join(stream(x, format, 480)).startswith(magic)
    assert b"OpusHead" in b"".join(stream(x, "opus", 480))[:64]
    for format in ("mp3", "aac"):
        first = b"".join(stream(x, format, 480))[:2]
        assert first[0] == 0xFF
        assert first[1] & 0xE0 == 0xE0


def test_unknown_formats_and_rates_are_named() -> None:
    with pytest.raises(UnsupportedFormat, match="'ogg_vorbis'"):
        encode.encoder("ogg_vorbis", RATE)
    pytest.importorskip("av")
    with pytest.raises(UnsupportedFormat, match="44100"):
        encode.encoder("opus", 44_100)
    assert encode.encoder("pcm16", RATE).content_type == "audio/pcm"
