"""What a client puts into its items as base64 is tried at the edge, once, so that no later stage meets rubbish."""

from __future__ import annotations

from antiphon.codecs import base64
from antiphon.codecs.errors import BadBase64
from antiphon.pipelines.info import PictureLimits
from antiphon.realtime.errors import ProtocolError
from antiphon.realtime.protocol.schema import Json, event_id_of
from antiphon.realtime.protocol.wire import audio_bytes

SAMPLE = 2
"""Bytes of the shortest sound: one sample of PCM."""


def check_media(event: Json, pictures: PictureLimits | None = None) -> None:
    """Audio and images of ``conversation.item.create`` and of ``response.create``'s input; raises ``ProtocolError``.

    An item of nothing, or with a picture whose header tells already that it cannot be read, would fail every answer from here
    on: it is refused while its client still knows what it has just sent.
    """
    event_id = event_id_of(event)
    if event["type"] == "conversation.item.create":
        _check_item(event["item"], "item", event_id, pictures)
    elif event["type"] == "response.create":
        for n, item in enumerate((event.get("response") or {}).get("input") or ()):
            _check_item(item, f"response.input[{n}]", event_id, pictures)


def _check_item(item: Json, path: str, event_id: str | None, pictures: PictureLimits | None) -> None:
    for n, part in enumerate(item.get("content") or ()):
        where = f"{path}.content[{n}]"
        if part["type"] == "input_audio" and part.get("audio") is not None:
            where = f"{where}.audio"
            empty = len(audio_bytes(part["audio"], param=where, event_id=event_id)) < SAMPLE
            why = "is empty" if empty else ""
        elif part["type"] == "input_image" and part.get("image_url") is not None:
            where = f"{where}.image_url"
            data = data_uri_bytes(part["image_url"], param=where, event_id=event_id)
            why = "is empty" if not data else pictures.refusal(data) if pictures else ""
        else:
            continue
        if why:
            raise ProtocolError(f"Invalid '{where}'. It {why}.", code="invalid_value", param=where, event_id=event_id)


def data_uri_bytes(url: str, *, param: str, event_id: str | None = None) -> bytes:
    """The bytes of a base64 data URI (RFC 2397); raises ``ProtocolError``.

    Addresses are refused: a server that fetches what a client names can be sent anywhere.
    """
    head, comma, body = url.partition(",")
    if not comma or not head.lower().startswith("data:") or not head.lower().endswith(";base64"):
        message = f"Invalid '{param}'. Expected a base64 data URI; addresses are not fetched."
        raise ProtocolError(message, code="invalid_value", param=param, event_id=event_id)
    try:
        return base64.decode(body)
    except BadBase64:
        message = f"Invalid '{param}'. The data URI is not base64."
        raise ProtocolError(message, code="invalid_value", param=param, event_id=event_id) from None
