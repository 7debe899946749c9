"""A headless Chromium as a caller, with a recording for a microphone; what it plays is measured, not believed."""

from __future__ import annotations

import base64
import io
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

MICROPHONE_RATE = 48_000
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--autoplay-policy=user-gesture-required",
]
LISTEN = """
// Every sound that reaches a loudspeaker, by its level each 10 ms: the page's AudioContext and its <audio> elements alike.
(() => {
  const heard = (window.heard = []);
  const probe = (context, node) => {
    const analyser = context.createAnalyser();
    analyser.fftSize = 512;
    node.connect(analyser);
    const samples = new Float32Array(512);
    setInterval(() => {
      analyser.getFloatTimeDomainData(samples);
      heard.push([performance.now(), Math.sqrt(samples.reduce((sum, x) => sum + x * x, 0) / 512)]);
    }, 10);
  };
  const connect = AudioNode.prototype.connect;
  AudioNode.prototype.connect = function (target, ...rest) {
    if (target instanceof AudioDestinationNode) probe(this.context, this);
    return connect.call(this, target, ...rest);
  };
  const source = Object.getOwnPropertyDescriptor(HTMLMediaElement.prototype, "srcObject");
  Object.defineProperty(HTMLMediaElement.prototype, "srcObject", {
    ...source,
    set(stream) {
      source.set.call(this, stream);
      if (stream) {
        const context = new AudioContext();
        probe(context, context.createMediaStreamSource(stream));
      }
    },
  });
})();
"""
SAY = """
// The microphone is the recording that Chromium was given, and whatever the test says beside it.
(() => {
  const open = navigator.mediaDevices?.getUserMedia.bind(navigator.mediaDevices);
  if (!open) return;
  let context, out;
  navigator.mediaDevices.getUserMedia = async (constraints) => {
    const recorded = await open(constraints);
    context = new AudioContext();
    out = context.createMediaStreamDestination();
    context.createMediaStreamSource(recorded).connect(out);
    return out.stream;
  };
  window.say = async (base64) => {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const node = new AudioBufferSourceNode(context, { buffer: await context.decodeAudioData(bytes.buffer) });
    node.connect(out);
    node.start();
    return performance.now();
  };
})();
"""


def chromium() -> str | None:
    """The browser's path, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def microphone(folder: Path, parts: list[tuple[float, NDArray[np.float32]]], total_s: float) -> Path:
    """A 48 kHz WAV with each recording (48 kHz float32) at its second."""
    track = np.zeros(int(total_s * MICROPHONE_RATE), np.float32)
    for at, samples in parts:
        start = int(at * MICROPHONE_RATE)
        track[start : start + len(samples)] += samples[: len(track) - start]
    target = folder / "microphone.wav"
    soundfile.write(target, track, MICROPHONE_RATE, subtype="PCM_16")
    return target


async def say(opened: Any, samples: NDArray[np.float32]) -> float:
    """Speak into the page's microphone, 48 kHz float32; the page's clock (ms) when it begins."""
    file = io.BytesIO()
    soundfile.write(file, samples, MICROPHONE_RATE, format="WAV", subtype="PCM_16")
    began: float = await opened.evaluate("data => window.say(data)", base64.b64encode(file.getvalue()).decode())
    return began


@asynccontextmanager
async def page(
    recording: Path | None = None, *, allow: bool = True, flags: Sequence[str] = (), script: str = "", **context_options: Any
) -> AsyncIterator[Any]:
    """A fresh page in a fresh browser; errors in it are collected in ``page.problems``, requests in ``page.asked``.

    ``allow``: the microphone is allowed without asking.    ``script``: run in the page before its own.
    """
    chosen = [*FLAGS, *flags, *(["--use-fake-ui-for-media-stream"] if allow else [])]
    with tempfile.TemporaryDirectory() as folder:
        quiet = recording or microphone(Path(folder), [], 1.0)  # without a file the fake device beeps
        chosen.append(f"--use-file-for-fake-audio-capture={quiet}%noloop")
        async with browser(chosen) as running:
            context = await running.new_context(**context_options)
            try:
                yield await _page(context, LISTEN + SAY + script)
            finally:
                await context.close()


@asynccontextmanager
async def browser(flags: list[str]) -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=chromium(), headless=True, args=flags)
        try:
            yield running
        finally:
            await running.close()


async def _page(context: Any, script: str) -> Any:
    opened = await context.new_page()
    opened.problems, opened.asked = [], []
    opened.on("pageerror", lambda error: opened.problems.append(str(error)))
    opened.on("console", lambda message: message.type == "error" and opened.problems.append(message.text))
    opened.on("request", lambda request: opened.asked.append(request.url))
    await opened.add_init_script(script)
    return opened


def loud_spans(heard: list[tuple[float, float]], level: float = 0.01, gap_ms: float = 300) -> Iterator[tuple[float, float]]:
    """(from, to) in milliseconds of everything louder than ``level``; pauses shorter than ``gap_ms`` are bridged."""
    began = last = None
    for at, rms in heard:
        if rms < level:
            continue
        if began is None or last is None:
            began = at
        elif at - last > gap_ms:
            yield began, last
            began = at
        last = at
    if began is not None and last is not None:
        yield began, last
