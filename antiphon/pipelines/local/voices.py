"""What the CPU voice can be asked for; asked for anything else, it says so by name."""

from __future__ import annotations

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.requests import Voice

VOICES = ("heart",)
"""The first is "default"."""
LANGUAGES = ("en",)
SLOWEST, FASTEST = 0.25, 4.0


def can_speak(language: str) -> bool:
    """Can the voice speak this language (a tag such as "en" or "en-US")? "" means the voice's own."""
    return not language or language.replace("_", "-").split("-")[0].lower() in LANGUAGES


def check_voice(voice: Voice) -> None:
    """Raises Refused, naming what cannot be had, for an unknown voice, a language or a speed that it cannot speak."""
    if voice.name not in ("default", *VOICES):
        raise Refused(f"there is no voice {voice.name!r}; there are: {', '.join(VOICES)}", param="voice")
    if not can_speak(voice.language):
        raise Refused(
            f"the voice {VOICES[0]!r} cannot speak {voice.language!r}; it speaks: {', '.join(LANGUAGES)}",
            code="unsupported_language",
            param="language",
        )
    if not SLOWEST <= voice.speed <= FASTEST:
        raise Refused(f"speed must lie between {SLOWEST} and {FASTEST:g}, not {voice.speed}", param="speed")
