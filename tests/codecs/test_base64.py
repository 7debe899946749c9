import base64 as stdlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.codecs import base64
from antiphon.codecs.errors import BadBase64


@given(st.binary(max_size=200), st.booleans(), st.booleans(), st.integers(1, 76))
def test_what_clients_send_is_understood(data: bytes, url_safe: bool, padded: bool, wrap: int) -> None:
    text = (stdlib.urlsafe_b64encode if url_safe else stdlib.b64encode)(data).decode()
    text = text if padded else text.rstrip("=")
    text = "\r\n ".join(text[i : i + wrap] for i in range(0, len(text), wrap))
    assert base64.decode(text) == data


@pytest.mark.parametrize(
    "text", ["!!!!", "AAAA*", "A", "AAAAA", "AA=A", "AA====", "A===", "=AAA", "AAA==", "ÄÄÄÄ", "AA\x00A", "===="]
)
def test_rubbish_is_refused(text: str) -> None:
    with pytest.raises(BadBase64):
        base64.decode(text)


@pytest.mark.parametrize("thing", [None, 3, b"AAAA", ["AAAA"], {"a": 1}])
def test_what_is_not_a_string_is_refused(thing: object) -> None:
    with pytest.raises(BadBase64, match="must be a string"):
        base64.decode(thing)  # type: ignore[arg-type]


def test_empty_is_empty() -> None:
    assert base64.decode("") == b""
    assert base64.decode(base64.encode(b"\xff\xfe")) == b"\xff\xfe"
