"""A media file's bytes -> float32 mono at the wanted rate, within a budget.

The file is decoded block by block and counted as it goes: a file that claims or holds more than the limit costs no more
than the limit. Two readers stand behind one shape: libsndfile (wav, flac, ogg, mp3, aiff, au, caf, w64), and PyAV for
the rest (mp4/m4a, webm, aac) and for what libsndfile cannot read. FFmpeg is always told the container by name: left to
guess, it also opens playlists, which name other files.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs import containers, mov
from antiphon.codecs.errors import CodecError, MissingExtra, NoSound, NotAudio, TooLarge, TooLong
from antiphon.codecs.pcm import from_s16
from antiphon.codecs.resample import check_rate

MAX_SECONDS: Final = 1800.0
MAX_BYTES: Final = 25 * 1024 * 1024
RAW_PCM_RATE: Final = 24_000
"""The rate of headerless ``pcm16``: s16le mono."""

_MAX_CHANNELS: Final = 64
_BLOCK_S: Final = 5
_UNSIZED: Final = 2**62  # libsndfile's count where a stream has none; its reader fails at the end of such a file
_LOUDEST: Final = 32768.0  # full scale is 1; some write floats at the scale of 16 bits
_DAMAGED: Final = "the audio file cannot be decoded: it is damaged or not what its header says"
_SNDFILE: Final = frozenset({"wav", "flac", "ogg", "mp3", "aiff", "au", "caf", "w64"})
_FFMPEG_NAMES: Final = {
    "mp4": "mov",
    "webm": "matroska",
    **{name: name for name in (*_SNDFILE, "aac", "asf", "amr", "avi", "mpeg")},
}


def decode(
    data: bytes, rate: int, *, format: str = "", max_seconds: float = MAX_SECONDS, max_bytes: int = MAX_BYTES
) -> NDArray[np.float32]:
    """The whole file's sound as float32 [n], mono (mean of the channels), at ``rate`` Hz.

    ``format`` is a hint ("wav", "m4a", ...), used when the first bytes say nothing; ``pcm16`` is raw 24 kHz s16le. A file
    that breaks off in the middle gives what it holds. Raises ``NotAudio``, ``NoSound``, ``TooLarge``, ``TooLong``,
    ``UnsupportedRate``, ``MissingExtra``.
    """
    check_rate(rate)
    if len(data) > max_bytes:
        raise TooLarge(f"the audio file has {len(data)} bytes; the limit is {max_bytes}")
    if not data:
        raise NotAudio("the audio file is empty")
    hint = format.strip().lower().lstrip(".")
    kind = containers.sniff(data) or containers.ALIASES.get(hint, hint)
    budget = _Budget(max_seconds)
    if kind == "pcm16":
        return _collect([(RAW_PCM_RATE, from_s16(data[: len(data) & ~1]))], rate, budget)
    # libsndfile reads a chained Ogg, as recorders and radios make it, only as far as its first link.
    if kind in _SNDFILE and not (kind == "ogg" and _has_av() and containers.chained(data)):
        try:
            return _collect(_sndfile_blocks(data, budget), rate, budget)
        except (NotAudio, NoSound):  # FFmpeg reads what libsndfile does not: a cut Ogg page, an unsized FLAC
            if not _has_av():
                raise
    if kind not in _FFMPEG_NAMES:
        known = ", ".join(sorted(_FFMPEG_NAMES))
        raise NotAudio(f"the file is no audio container known here ({known})")
    return _collect(_av_blocks(data, kind), rate, budget)


class _Budget:
    """Counts seconds as they are decoded."""

    def __init__(self, max_seconds: float) -> None:
        self.max_seconds = max_seconds

    def check(self, seconds: float) -> None:
        if seconds > self.max_seconds:
            raise TooLong(f"the audio is longer than the limit of {self.max_seconds:g} seconds")


def _collect(blocks: Iterable[tuple[int, NDArray[np.float32]]], rate: int, budget: _Budget) -> NDArray[np.float32]:
    """Resample mono blocks of one stream as they come, within the budget."""
    import soxr

    stream: Any = None
    source_rate, read, made = 0, 0, []
    for source_rate, block in blocks:
        check_rate(source_rate)
        read += len(block)
        budget.check(read / source_rate)
        bound(block)
        if source_rate == rate:
            made.append(block)
            continue
        if stream is None:
            stream = soxr.ResampleStream(source_rate, rate, 1, dtype="float32", quality="HQ")
        made.append(stream.resample_chunk(block))
    if not read:
        raise NoSound("the audio file holds no sound: 0 samples")
    if stream is not None:
        made.append(stream.resample_chunk(np.zeros(0, dtype=np.float32), last=True))
    return np.concatenate(made)


def bound(samples: NDArray[np.float32]) -> None:
    """Make every sample a number whose square is one too, in place: a float file may hold anything, and what cannot be computed
    with makes a model's numbers none, those of its other listeners as well."""
    np.nan_to_num(samples, copy=False, nan=0.0, posinf=1.0, neginf=-1.0)
    np.clip(samples, -_LOUDEST, _LOUDEST, out=samples)


def _mono(frames: NDArray[np.float32]) -> NDArray[np.float32]:
    """[n, channels] -> [n]."""
    mixed = frames[:, 0] if frames.shape[1] == 1 else frames.mean(axis=1)
    return np.ascontiguousarray(mixed, dtype=np.float32)


def _check_channels(channels: int) -> None:
    if not 1 <= channels <= _MAX_CHANNELS:
        raise NotAudio(f"a file with {channels} audio channels is not supported (at most {_MAX_CHANNELS})")


def _sndfile_blocks(data: bytes, budget: _Budget) -> Iterator[tuple[int, NDArray[np.float32]]]:
    import soundfile

    begun = False
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            check_rate(file.samplerate)
            _check_channels(file.channels)
            if file.frames >= _UNSIZED:
                raise NotAudio("the file does not tell its length")
            # The header's word is enough to refuse, not to accept: what is really there is counted as it is read.
            budget.check(min(file.frames, _most_frames(file, len(data))) / file.samplerate)
            while len(frames := file.read(file.samplerate * _BLOCK_S, dtype="float32", always_2d=True)):
                begun = True
                yield file.samplerate, _mono(frames)
    except soundfile.LibsndfileError:
        if not begun:
            raise NotAudio(_DAMAGED) from None


def _most_frames(file: Any, size: int) -> int:
    """How many frames ``size`` bytes can hold, where that follows from the format; else what the header says."""
    width = {"PCM_S8": 1, "PCM_U8": 1, "PCM_16": 2, "PCM_24": 3, "PCM_32": 4, "FLOAT": 4, "DOUBLE": 8, "ULAW": 1, "ALAW": 1}
    bytes_each = width.get(file.subtype) if file.format != "FLAC" else None
    return int(size // (bytes_each * file.channels)) if bytes_each else int(file.frames)


def _has_av() -> bool:
    try:
        import av  # noqa: F401
    except ImportError:
        return False
    return True


def _av_blocks(data: bytes, kind: str) -> Iterator[tuple[int, NDArray[np.float32]]]:
    try:
        import av
    except ImportError:
        raise MissingExtra(f"reading {kind} files") from None
    if kind == "mp4" and (entries := mov.index_entries(data)) > mov.MOST_ENTRIES:
        raise NotAudio(f"the audio file claims {entries} samples in its header; the limit is {mov.MOST_ENTRIES}")

    begun = False
    try:
        with av.open(io.BytesIO(data), format=_FFMPEG_NAMES[kind], metadata_errors="ignore") as container:
            if not container.streams.audio:
                raise NotAudio("the file has no audio stream")
            stream = container.streams.audio[0]
            if stream.codec_context is None:
                raise NotAudio("the file's sound has a coding that is not known here")
            if stream.rate:
                check_rate(stream.rate)
            mixer: Any = None
            for frame in container.decode(stream):
                check_rate(frame.sample_rate)
                if mixer is None:
                    # Planar float in, mean of the channels here: one rule of mixing for both readers.
                    mixer = av.AudioResampler(format="fltp", rate=frame.sample_rate)
                for piece in mixer.resample(frame):
                    frames = piece.to_ndarray().T
                    _check_channels(frames.shape[1])
                    begun = True
                    yield frame.sample_rate, _mono(frames)
    except CodecError:
        raise
    except (av.error.FFmpegError, ValueError):  # PyAV's own checks raise ValueError
        if not begun:
            raise NotAudio(_DAMAGED) from None
