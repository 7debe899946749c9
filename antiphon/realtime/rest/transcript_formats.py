"""A transcript in the shapes that clients ask for: json, text, verbose_json, srt, vtt."""

from __future__ import annotations

from typing import Any

from antiphon.pipelines.outputs import Segment, TranscriptResult
from antiphon.realtime.languages import name_of

FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
Json = dict[str, Any]


def usage(result: TranscriptResult) -> Json:
    return {"type": "duration", "seconds": round(result.duration, 3)}


def as_json(result: TranscriptResult) -> Json:
    return {"text": result.text.strip(), "usage": usage(result)}


def as_verbose(result: TranscriptResult, task: str, *, segments: bool, words: bool) -> Json:
    told: Json = {
        "task": task,
        "language": name_of(result.language),
        "duration": round(result.duration, 3),
        "text": result.text.strip(),
        "usage": usage(result),
    }
    if words:
        told["words"] = [{"word": w.word.strip(), "start": round(w.start, 3), "end": round(w.end, 3)} for w in result.words]
    if segments:
        told["segments"] = [_segment(n, segment) for n, segment in enumerate(result.segments)]
    return told


def _segment(n: int, segment: Segment) -> Json:
    return {
        "id": n,
        "seek": segment.seek,
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }


def as_srt(result: TranscriptResult) -> str:
    """SubRip: cues counted from 1, a comma before the milliseconds."""
    return "".join(
        f"{n}\n{_clock(s.start, ',')} --> {_clock(s.end, ',')}\n{_line(s.text)}\n\n" for n, s in enumerate(_cues(result), 1)
    )


def as_vtt(result: TranscriptResult) -> str:
    """WebVTT: the signature, then cues with a full stop before the milliseconds."""
    cues = (f"{_clock(s.start, '.')} --> {_clock(s.end, '.')}\n{_line(s.text)}\n\n" for s in _cues(result))
    return "WEBVTT\n\n" + "".join(cues)


def _cues(result: TranscriptResult) -> list[Segment]:
    return [segment for segment in result.segments if segment.text.strip()]


def _line(text: str) -> str:
    """An arrow inside a cue would end it; a blank line too."""
    return "\n".join(line for line in text.strip().replace("-->", "→").splitlines() if line.strip())


def _clock(seconds: float, mark: str) -> str:
    ms = max(0, round(seconds * 1000))
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"
