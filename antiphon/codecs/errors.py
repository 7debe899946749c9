"""Everything the codecs room raises.

CodecError
├── BadBase64            text that is not base64
├── UnsupportedFormat    an audio format that is not known, or not at this rate
├── UnsupportedRate      a sample rate outside what can be converted
├── MissingExtra         the format is known but its library is not installed; the text names the extra
└── MediaError           a media file that cannot be used
    ├── NotAudio         not a known container, or broken before the first sample
    ├── NoSound          a readable file without a single sample
    ├── NotPicture       no known format of pictures
    ├── TooLarge         more bytes than the limit
    └── TooLong          more seconds than the limit

Every message is fit for a client: it names what is wrong and never holds a path or the file's content.
"""

from __future__ import annotations


class CodecError(Exception):
    """Root of the room's exceptions."""


class BadBase64(CodecError, ValueError):
    """Text that is not base64, even with padding, whitespace and alphabet forgiven."""


class UnsupportedFormat(CodecError, ValueError):
    """An audio format name that is not known here."""


class UnsupportedRate(CodecError, ValueError):
    """A sample rate that cannot be converted."""


class MissingExtra(CodecError):
    """A library of an optional extra is absent."""

    def __init__(self, what: str, extra: str = "local") -> None:
        super().__init__(f"{what} needs PyAV, which is not installed: pip install 'antiphon[{extra}]'")
        self.extra = extra


class MediaError(CodecError, ValueError):
    """A media file that cannot be used."""


class NotAudio(MediaError):
    """Not a container known here, or broken before its first sample."""


class NoSound(MediaError):
    """Readable, but without a single sample."""


class NotPicture(MediaError):
    """Not a picture of a format known here."""


class TooLarge(MediaError):
    """More bytes than the limit."""


class TooLong(MediaError):
    """More seconds than the limit; nothing past the limit was decoded."""
