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

DATA_URI = "data:"
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
    takes = info.inputs.get("chat") or ("text",)
    if _NEEDS[kind] not in takes:
        raise NotServed(
            f"The running pipeline '{info.name}' takes no {_NEEDS[kind]} in chat; it takes {', '.join(takes)}.",
            param=f"{path}.type",
        )
    if kind == "input_audio":
        return _audio(given.get("input_audio"), f"{path}.input_audio", path)
    if kind == "video_url":
        url = _url(given.get("video_url"), f"{path}.video_url")
        if not url.startswith(DATA_URI):
            return VideoPart(url=url, name=path)
        data = _bytes(url, f"{path}.video_url.url")
        return VideoPart(data=data, key=content_key(data), name=path)
    return _image(given.get("image_url"), f"{path}.image_url", path)


def top_level(info: PipelineInfo, kind: str, given: str, path: str) -> Part:
    """An item of a request's own ``images``, ``audios`` or ``videos``: a data URI, bare base64, or (no audio) an address."""
    if kind == "input_audio":
        return part(info, {"type": kind, "input_audio": {"data": given}}, path)
    url = given if given.startswith((DATA_URI, "https://", "http://")) else f"{DATA_URI};base64,{given}"
    return part(info, {"type": kind, kind: url}, path)


def content_key(data: bytes) -> str:
    """What the graph's media caches are keyed by: the content, before it is decoded."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _audio(given: Any, path: str, name: str) -> AudioPart:
    if given is None:
        raise missing(path)
    if not isinstance(given, dict):
        raise invalid(path, "expected an object with 'data' and 'format'", "invalid_type")
    data = _bytes(_string(given, "data", path), f"{path}.data")
    if not data:
        raise invalid(f"{path}.data", "the audio is empty")
    hint = given.get("format", "")
    if not isinstance(hint, str):
        raise invalid(f"{path}.format", "expected a string", "invalid_type")
    return AudioPart(data=data, format=hint.lower(), key=content_key(data), name=name)


def _image(given: Any, path: str, name: str) -> ImagePart:
    detail = given.get("detail") if isinstance(given, dict) else None
    url, wanted = _url(given, path), detail if isinstance(detail, str) else "auto"
    if not url.startswith(DATA_URI):
        return ImagePart(url=url, detail=wanted, name=name)
    data = _bytes(url, f"{path}.url")
    return ImagePart(data=data, detail=wanted, key=content_key(data), name=name)


def _url(given: Any, path: str) -> str:
    """A data URI or an http(s) address, as a string or as ``{url}``. The pipeline fetches addresses, under its own policy."""
    url = given if isinstance(given, str) else _string(given, "url", path) if isinstance(given, dict) else None
    if url is None:
        raise missing(f"{path}.url")
    if not url.startswith((DATA_URI, "https://", "http://")):
        raise invalid(f"{path}.url", "expected a data URI, or an http(s) address")
    return url


def _bytes(text: str, path: str) -> bytes:
    """Base64, bare or in a data URI."""
    if text.startswith(DATA_URI):
        head, comma, text = text.partition(",")
        if not comma or not head.endswith(";base64"):
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
