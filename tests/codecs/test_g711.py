"""Oracle: FFmpeg's decoder for all 256 codes; Sun's reference (``audioop``, where Python still has it) for encoding."""

import warnings

import numpy as np
import pytest

from antiphon.codecs import g711
from tests.codecs.signals import distortion_db, frequency, rms_db, sine

LAWS = {"mulaw": (g711.ulaw_decode, g711.ulaw_encode), "alaw": (g711.alaw_decode, g711.alaw_encode)}


@pytest.mark.parametrize("law", LAWS)
def test_every_code_decodes_as_ffmpeg_decodes_it(law: str) -> None:
    av = pytest.importorskip("av")
    codec = av.CodecContext.create(f"pcm_{law}", "r")
    codec.sample_rate, codec.layout = 8000, "mono"
    codes = bytes(range(256))
    expected = np.concatenate([frame.to_ndarray().ravel() for frame in codec.decode(av.Packet(codes))])
    assert (LAWS[law][0](codes) * 32768).astype(int).tolist() == expected.astype(int).tolist()


@pytest.mark.parametrize("law", LAWS)
def test_every_sample_encodes_as_the_reference_encodes_it(law: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        audioop = pytest.importorskip("audioop")
    every = np.arange(-32768, 32768, dtype="<i2")
    reference = audioop.lin2ulaw if law == "mulaw" else audioop.lin2alaw
    assert LAWS[law][1]((every / 32768).astype(np.float32)) == reference(every.tobytes(), 2)


@pytest.mark.parametrize("law", LAWS)
def test_codes_survive_a_round_trip(law: str) -> None:
    decode, encode = LAWS[law]
    codes = bytes(code for code in range(256) if not (law == "mulaw" and code == 0x7F))  # mu-law has a second zero
    assert encode(decode(codes)) == codes


@pytest.mark.parametrize("law", LAWS)
def test_a_sine_keeps_level_and_pitch(law: str) -> None:
    decode, encode = LAWS[law]
    x = sine(8000, 1.0)
    y = decode(encode(x))
    assert len(y) == len(x)
    assert abs(rms_db(y) - rms_db(x)) < 0.5
    assert abs(frequency(y, 8000) - 1000) < 1
    assert distortion_db(y, 8000, 1000) < -33  # G.711's own quantisation noise at this level is near -38 dB


def test_out_of_range_is_clipped() -> None:
    assert g711.ulaw_encode(np.array([4.0, -4.0])) == g711.ulaw_encode(np.array([1.0, -1.0])) == b"\x80\x00"
