"""Payloads come out as they went in: every Struct of the pipelines, containers, arrays; nothing else travels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.pipelines import outputs, requests
from antiphon.pipelines.errors import WireError
from antiphon.pipelines.local import prepared
from antiphon.pipelines.qwen3_omni import payloads
from antiphon.pipelines.relay.payload import BYTEARRAY, FROZENSET, SET, SHARED_MIN, TUPLE, Packer, Registry, Unpacker
from antiphon.pipelines.relay.relays import Shared
from antiphon.pipelines.relay.segments import Attached, Pool
from antiphon.pipelines.run_folder import RunFolder


class Way:
    """A packer and an unpacker over one run folder."""

    def __init__(self) -> None:
        self.folder = RunFolder()
        self.pool = Pool(self.folder.path, "writer")
        registry, attached = Registry(["tests"]), Attached(self.folder.path)
        shared = Shared(self.pool, "reader", attached)
        self.packer = Packer(registry, shared.put)
        self.decoder = msgspec.msgpack.Decoder(ext_hook=Unpacker(registry, attached).hook)

    def __call__(self, value: Any, mode: Any = None) -> Any:
        return self.decoder.decode(msgspec.msgpack.encode(self.packer.pack(value, mode)))


@pytest.fixture(scope="module")
def way() -> Iterator[Way]:
    found = Way()
    yield found
    found.folder.close()


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(a, b))
    if isinstance(a, msgspec.Struct):
        return all(same(getattr(a, f), getattr(b, f)) for f in a.__struct_fields__)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


BODY = requests.GenerateRequest(
    id="r",
    task="chat",
    terminals=("text", "audio"),
    messages=(
        requests.Message("user", (requests.AudioPart(b"\1\2" * 50_000, "f32_16k"), requests.TextPart("hé"))),
        requests.Message("user", (requests.ImagePart(b"x"), requests.VideoPart(url="u"))),
        requests.Message("assistant", calls=(requests.ToolCall("c", "n", "{}"),)),
    ),
    tools=(requests.Tool("n", "d", {"type": "object", "properties": {"a": {"type": "string"}}}),),
    sampling=requests.Sampling(max_tokens=3, stop=("a",)),
    stage_params={"thinker": {"a": [1, 2.5, None, True]}},
)
MEL = np.random.default_rng(0).random((128, 300), np.float32)
CASES: dict[str, Any] = {
    "text": outputs.TextDelta("né", 2),
    "call": outputs.CallDelta(0, "c", "n", "{"),
    "text result": outputs.TextResult("length", outputs.Usage(1, 2, 3)),
    "audio": outputs.AudioDelta(np.arange(100, dtype=np.float32), (outputs.Mark(3, 4),), False),
    "long audio": outputs.AudioDelta(np.arange(100_000, dtype=np.float32)),
    "audio result": outputs.AudioResult(7),
    "transcript": outputs.TranscriptResult(
        "t", "en", 1.5, (outputs.Segment(0.0, 1.0, "t", (1, 2)),), (outputs.Word("t", 0.0, 1.0),)
    ),
    "request": BODY,
    "prepared": prepared.Prepared(BODY, (prepared.Clip("k", np.ones(16_000, np.float32)),)),
    "transcripts": prepared.Transcripts((outputs.TranscriptResult("a"),)),
    "omni prepared": payloads.Prepared(np.arange(9), (payloads.Speech(MEL, 300, "k"), payloads.Speech(None, 3, "l"))),
    "omni projection": (payloads.Speech(MEL, 300, "k"),),
    "omni pictures": ((payloads.Patches((1, 2, 3), "k", MEL),), ()),
    "omni seen": payloads.Seen(((MEL, MEL),), ()),
    "omni input": payloads.ThinkerInput(
        np.arange(3), np.arange(3), np.zeros((3, 3), np.float32), 0.0, audio=MEL, deepstack=(MEL,)
    ),
    "omni said": payloads.Said(4, payloads.Prompt(np.arange(3), media=MEL)),
    "omni frame": payloads.Frame((1, 2, 3), -1),
    "scalars": [np.float32(1.5), np.int64(-3), np.bool_(True)],
    "containers": {"a": (1, [2.5, (None,)], {3: b"x"}), "b": {1, 2}, "c": frozenset("ab"), "d": bytearray(b"x")},
    "numbers": [0, -1, 2**63, -(2**63), 2**64 - 1, 1e300, float("inf")],
}


@pytest.mark.parametrize("mode", [None, "inline", "shared"])
@pytest.mark.parametrize("case", CASES)
def test_it_comes_out_as_it_went_in(way: Way, case: str, mode: str | None) -> None:
    assert same(way(CASES[case], mode), CASES[case])


def test_large_pieces_leave_the_message_and_small_ones_do_not(way: Way) -> None:
    large, small = np.zeros(SHARED_MIN, np.uint8), np.zeros(SHARED_MIN - 1, np.uint8)
    sizes = {
        (n, mode): len(msgspec.msgpack.encode(way.packer.pack(value, mode)))
        for n, value in (("large", large), ("small", small))
        for mode in (None, "inline", "shared")
    }
    assert sizes["large", None] < 200 < sizes["small", None]
    assert sizes["large", "inline"] > SHARED_MIN
    assert sizes["small", "shared"] < 200
    way.pool.reclaim("reader")


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(plain)
def test_plain_values_keep_their_types(value: Any) -> None:
    assert same(UNSHARED(value), value)


class Unshared:
    """Everything inline."""

    def __init__(self) -> None:
        registry = Registry()
        self.packer = Packer(registry, None)
        hook = Unpacker(registry, Attached(RunFolder.__module__)).hook  # type: ignore[arg-type]
        self.decoder = msgspec.msgpack.Decoder(ext_hook=hook)

    def __call__(self, value: Any) -> Any:
        return self.decoder.decode(msgspec.msgpack.encode(self.packer.pack(value)))


UNSHARED = Unshared()


@dataclasses.dataclass
class Plain:
    x: int = 1


class Loose(msgspec.Struct):
    thing: Any


def _local() -> Any:
    class Inner(msgspec.Struct):
        x: int = 1

    return Inner()


@pytest.mark.parametrize(
    "value",
    [object(), Plain(), lambda: 1, 2**70, 1j, {object(): 1}, Loose(object()), _local(), range(3), ValueError("x"), type],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_travel_is_refused_without_its_content(way: Way, value: Any) -> None:
    with pytest.raises(WireError):
        way(value)


def test_a_class_of_another_package_is_never_looked_up() -> None:
    registry = Registry()
    for name in (
        b"os:system",
        b"tests.processes.test_payload:Loose",
        b"antiphon.pipelines.outputs:np",
        b"antiphon.nothing:X",
        b"",
        b":",
    ):
        with pytest.raises(WireError):
            registry.find(name)


@pytest.mark.parametrize("code", [*range(-3, -1), *range(12)])
def test_rubbish_in_a_payload_is_refused(way: Way, code: int) -> None:
    for data in (b"", b"\xff", b"\x03abc", b"\x91\x01", b"\x97" + b"\x01" * 7):
        try:
            way.decoder.decode(msgspec.msgpack.encode(msgspec.msgpack.Ext(code, data)))
        except (WireError, msgspec.DecodeError):
            continue
        assert code in (TUPLE, SET, FROZENSET, BYTEARRAY), "only containers and byte arrays can be made of that"
