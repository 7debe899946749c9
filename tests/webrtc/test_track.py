"""The outgoing track: every sample of the answer at 48 kHz, whatever silences lie between, and the frames' clock."""

from __future__ import annotations

import numpy as np

from antiphon.realtime.webrtc.track import SAMPLES, Track
from antiphon.session.events import Play


async def test_an_answer_after_silences_is_the_same_as_without(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """1 kHz, twice, with whole and broken frames of silence between: the same samples both times, 20 ms apart in time."""

    async def at_once(self: Track) -> None: ...

    monkeypatch.setattr(Track, "_until_due", at_once)
    heard: list[int] = []
    track = Track(lambda item, samples: heard.append(samples), lambda samples: None)
    tone = (0.5 * np.sin(2 * np.pi * 1_000 * np.arange(4_800) / 24_000)).astype(np.float32)
    frames = []
    for n in range(60):
        if n in (3, 30):
            track.speech.play(Play("resp", f"item{n}", tone, len(tone)))
        frames.append(await track.recv())
    track.stop()
    assert [frame.pts for frame in frames] == [SAMPLES * n for n in range(60)]
    sound = np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames]).astype(np.float64) / 32768
    first, second = (np.flatnonzero(np.abs(sound[at * SAMPLES : (at + 20) * SAMPLES]))[0] + at * SAMPLES for at in (0, 25))
    assert second - first == 27 * SAMPLES
    assert np.array_equal(sound[first : first + 10_000], sound[second : second + 10_000])
    body = sound[first + 500 : first + 9_000]
    spectrum = np.abs(np.fft.rfft(body * np.hanning(len(body))))
    assert abs(np.argmax(spectrum) * 48_000 / len(body) - 1_000) < 6
    assert abs(np.sqrt(np.mean(body**2)) - 0.5 / np.sqrt(2)) < 0.01
    assert heard[-1] == 4_800
    # Nothing is left ringing and nothing is lost: the tone's own length, and the filter's edges.
    assert abs(np.flatnonzero(sound)[-1] - second + 1 - 2 * 4_800) < 60
