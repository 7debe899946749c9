"""Keys, ephemeral keys, origins, admission and rates."""

from __future__ import annotations

import copy
import logging
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.realtime.auth import ANONYMOUS, Keys, Origins, presented
from antiphon.realtime.errors import TooMany, Unauthorized
from antiphon.realtime.limits import Admission, Limits, TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("headers", "subprotocols", "key"),
    [
        ({"authorization": "Bearer k1"}, [], "k1"),
        ({"authorization": "bearer  k1 "}, [], "k1"),
        ({"api-key": "k2"}, [], "k2"),
        ({}, ["realtime", "openai-insecure-api-key.k3", "openai-beta.realtime-v1"], "k3"),
        ({"authorization": "Basic abc"}, [], None),
        ({"authorization": "Bearer "}, ["realtime"], None),
        ({}, [], None),
    ],
)
def test_where_a_key_is_presented(headers: dict[str, str], subprotocols: list[str], key: str | None) -> None:
    assert presented(headers, subprotocols) == key


def test_without_keys_everyone_is_anonymous() -> None:
    keys = Keys(clock=Clock())
    assert keys.caller(None) == keys.caller("dummy") == keys.caller("ek_dummy", realtime=True) == ANONYMOUS


def test_with_keys_only_they_open() -> None:
    keys = Keys(["right", "other"], clock=Clock())
    assert keys.caller("right").id == keys.caller("right").id != keys.caller("other").id
    for wrong in (None, "", "wrong", "righ", "right ", "ek_nothing"):
        with pytest.raises(Unauthorized) as caught:
            keys.caller(wrong, realtime=True)
        assert caught.value.code == "invalid_api_key" and caught.value.status == 401


def test_a_key_is_in_no_text(caplog: pytest.LogCaptureFixture) -> None:
    keys = Keys(["very-secret-key"], clock=Clock())
    caller = keys.caller("very-secret-key")
    minted = keys.mint(caller, None, 600)
    logging.getLogger("antiphon").warning("%r %r", caller, keys.__dict__)
    for secret in ("very-secret-key", minted.value):
        assert secret not in repr(caller) and secret not in caplog.text and secret not in repr(vars(keys))


def test_an_ephemeral_key_opens_realtime_until_it_expires_and_nothing_else() -> None:
    clock = Clock()
    keys = Keys(["right"], clock=clock)
    minted = keys.mint(keys.caller("right"), {"type": "realtime", "instructions": "x"}, 60)
    assert minted.value.startswith("ek_") and minted.expires_at == 1_060
    for _ in range(2):  # it may be used several times
        caller = keys.caller(minted.value, realtime=True)
        assert caller.id == keys.caller("right").id
        assert caller.session == {"type": "realtime", "instructions": "x"}
    with pytest.raises(Unauthorized):
        keys.caller(minted.value)  # not on REST
    clock.now = 1_060.5
    with pytest.raises(Unauthorized, match="expired"):
        keys.caller(minted.value, realtime=True)


def test_an_expired_key_is_refused_also_where_no_keys_are_configured() -> None:
    clock = Clock()
    keys = Keys(clock=clock)
    minted = keys.mint(ANONYMOUS, None, 10)
    clock.now += 11
    with pytest.raises(Unauthorized):
        keys.caller(minted.value, realtime=True)


def test_origins() -> None:
    assert Origins().allows("https://any.example")
    some = Origins(["https://app.example/"])
    assert some.allows("https://APP.example") and some.allows(None)
    assert not some.allows("https://evil.example") and not some.allows("null")


def test_a_session_past_the_limit_is_refused_and_its_place_comes_back() -> None:
    admission = Admission(Limits(sessions=3, sessions_per_key=2), Clock())
    with ExitStack() as stack:
        stack.enter_context(admission.session("a"))
        stack.enter_context(admission.session("a"))
        with pytest.raises(TooMany) as caught:
            stack.enter_context(admission.session("a"))
        assert caught.value.code == "session_limit_exceeded"
        stack.enter_context(admission.session("b"))
        with pytest.raises(TooMany) as caught:
            stack.enter_context(admission.session("c"))
        assert caught.value.code == "server_busy"
    assert admission.open == 0
    with pytest.raises(ZeroDivisionError), admission.session("a"):
        raise ZeroDivisionError
    assert admission.open == 0


def test_a_closing_server_admits_nobody() -> None:
    admission = Admission(Limits(sessions=None), Clock())
    admission.closing = True
    with pytest.raises(TooMany, match="shutting down"), admission.session("a"):
        pass


def test_responses_a_minute_are_counted_per_key() -> None:
    clock = Clock()
    admission = Admission(Limits(responses_per_minute=2), clock)
    admission.response("a")
    admission.response("a")
    with pytest.raises(TooMany) as caught:
        admission.response("a")
    assert caught.value.code == "rate_limit_exceeded" and caught.value.retry_after_s == pytest.approx(30.0)
    admission.response("b")
    clock.now += 30.0
    admission.response("a")


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 3)), max_size=50))
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(takes: list[tuple[float, float]]) -> None:
    rate, burst = 2.0, 4.0
    bucket, now, given_away = TokenBucket(rate, burst, 0.0), 0.0, 0.0
    for wait, amount in takes:
        now += wait
        refused = bucket.take(now, amount)
        if not refused:
            given_away += amount
        elif amount <= burst:
            assert copy.copy(bucket).level(now + refused) >= amount - 1e-9
    assert given_away <= burst + rate * now + 1e-6
