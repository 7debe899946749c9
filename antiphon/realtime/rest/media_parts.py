"""Audio, images and video inside a chat message: from the client's JSON to the graph's parts. Nothing is decoded here."""

from __future__ import annotations

import hashlib
from typing import Any

from antiphon.codecs import base64
from antiphon.codecs.errors import BadBase64
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.requests import AudioPart, ImagePart, Part, TextPart, VideoPart
from antiphon.realtime.errors import NotServed
from antiphon.realtime.rest.fields import invalid, missing

ADDRESSES = ("https://", "http://")
_NEEDS = {"input_audio": "audio", "image_url": "image", "input_image": "image", "video_url": "video"}


def part(info: PipelineInfo, given: Any, path: str) -> Part:
    """One content part. Raises ``BadRequest`` by its path, ``NotServed`` for a medium that the pipeline cannot take."""
    if not isinstance(given, dict):
        raise invalid(path, "expected an object with a 'type'", "invalid_type")
    kind = given.get("type")
    if kind is None:
        raise missing(f"{path}.type")
    if kind in ("text", "input_text", "output_text", "refusal"):
        return TextPart(_string(given, "refusal" if kind == "refusal" else "text", path))
    if not isinstance(kind, str) or kind not in _NEEDS:
        raise invalid(f"{path}.type", f"{str(kind)[:64]!r} is not one of text, input_audio, image_url, video_url")
    _check_taken(info, kind, f"{path}.type")
    if kind == "input_audio":
        return _audio(given.get(kind), f"{path}.{kind}", path)
    field = "video_url" if kind == "video_url" else "image_url"
    url, where, detail = given.get(field), f"{path}.{field}", None
    if not isinstance(url, str):
        held = url if isinstance(url, dict) else {}
        url, where, detail = _string(held, "url", where), f"{where}.url", held.get("detail")
    if not _begins(url, "data:", *ADDRESSES):
        raise invalid(where, "expected a data URI, or an http(s) address")
    if kind == "video_url":
        return _video(url, where, path)
    return _image(url, where, path, detail if isinstance(detail, str) else "auto")


def top_level(info: PipelineInfo, kind: str, given: str, path: str) -> Part:
    """An item of a request's own ``images``, ``audios`` or ``videos``: a data URI, bare base64, or (no audio) an address."""
    _check_taken(info, kind, path)
    if kind == "input_audio":
        if _begins(given, *ADDRESSES):
            raise invalid(path, "expected a data URI or base64; audio is not fetched")
        return _sound(given, "", path, path)
    if "://" in given[:16] and not _begins(given, *ADDRESSES):
        raise invalid(path, "expected a data URI, base64, or an http(s) address")
    return _video(given, path, path) if kind == "video_url" else _image(given, path, path, "auto")


def content_key(data: bytes) -> str:
    """What the graph's media caches are keyed by: the content, before it is decoded."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _check_taken(info: PipelineInfo, kind: str, param: str) -> None:
    takes = info.inputs.get("chat") or ("text",)
    if _NEEDS[kind] not in takes:
        text = f"The running pipeline '{info.name}' takes no {_NEEDS[kind]} in chat; it takes {', '.join(takes)}."
        raise NotServed(text, param=param)


def _audio(given: Any, path: str, name: str) -> AudioPart:
    if given is None:
        raise missing(path)
    if not isinstance(given, dict):
        raise invalid(path, "expected an object with 'data' and 'format'", "invalid_type")
    hint = given.get("format", "")
    if not isinstance(hint, str):
        raise invalid(f"{path}.format", "expected a string", "invalid_type")
    return _sound(_string(given, "data", path), hint, f"{path}.data", name)


def _sound(text: str, hint: str, path: str, name: str) -> AudioPart:
    data = _bytes(text, path)
    if not data:
        raise invalid(path, "the audio is empty")
    return AudioPart(data=data, format=hint.lower(), key=content_key(data), name=name)


def _image(text: str, path: str, name: str, detail: str) -> ImagePart:
    """The pipeline fetches addresses, under its own policy."""
    if _begins(text, *ADDRESSES):
        return ImagePart(url=text, detail=detail, name=name)
    data = _bytes(text, path)
    return ImagePart(data=data, detail=detail, key=content_key(data), name=name)


def _video(text: str, path: str, name: str) -> VideoPart:
    if _begins(text, *ADDRESSES):
        return VideoPart(url=text, name=name)
    data = _bytes(text, path)
    return VideoPart(data=data, key=content_key(data), name=name)


def _begins(text: str, *schemes: str) -> bool:
    """Schemes are the same in any case (RFC 3986)."""
    return text[:8].lower().startswith(schemes)


def _bytes(text: str, path: str) -> bytes:
    """Base64, bare or in a data URI."""
    if _begins(text, "data:"):
        head, comma, text = text.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise invalid(path, "the data URI is not base64-encoded")
    try:
        return base64.decode(text)
    except BadBase64 as error:
        raise invalid(path, str(error), "invalid_base64") from None


def _string(given: dict[str, Any], key: str, path: str) -> str:
    value = given.get(key)
    if value is None:
        raise missing(f"{path}.{key}")
    if not isinstance(value, str):
        raise invalid(f"{path}.{key}", "expected a string", "invalid_type")
    return value
