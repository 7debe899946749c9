"""One contract over every relay, and what shared memory adds to it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from antiphon.pipelines.errors import WireError
from antiphon.pipelines.relay.ref import Ref, Relay
from antiphon.pipelines.relay.relays import ByReference, Inline, Shared
from antiphon.pipelines.relay.segments import CLASSES, Attached, Pool
from antiphon.pipelines.run_folder import RunFolder

MIB = 1 << 20


@pytest.fixture
def folder() -> Iterator[Path]:
    run = RunFolder()
    yield run.path
    run.close()


@pytest.fixture(params=["reference", "inline", "shared"])
def relay(request: pytest.FixtureRequest, folder: Path) -> Relay:
    if request.param == "shared":
        return Shared(Pool(folder, "writer"), "reader", Attached(folder))
    return ByReference() if request.param == "reference" else Inline()


def through(relay: Relay, value: Any) -> Any:
    return relay.get(relay.put(value))


@pytest.mark.parametrize("size", [0, 1, 4095, 128 * 1024, 128 * 1024 + 1, MIB, 10 * MIB + 3, 64 * MIB])
def test_any_size_arrives_whole(relay: Relay, size: int) -> None:
    value = np.frombuffer(random.Random(size).randbytes(min(size, 65536)) * (size // 65536 + 1), np.uint8)[:size]
    got = through(relay, value)
    assert got.dtype == value.dtype and got.shape == value.shape
    assert np.array_equal(got, value)


DTYPES = ["<f4", "<f8", "<f2", "<i2", "<i8", "|u1", "|b1", "<c8", ">f4", "<M8[ms]", "<U3", "|S5"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_and_shape_are_kept(relay: Relay, dtype: str) -> None:
    raw = np.frombuffer(bytes(range(48)) * 20, np.uint8)
    whole = (raw[:960] % 2 == 0) if dtype == "|b1" else raw.view("|u1")
    value = np.zeros((2, 3, 4), dtype) if dtype in ("<U3", "|S5", "<M8[ms]") else whole[:24].astype(dtype).reshape(2, 3, 4)
    for form in (value, value[:, ::2], np.asfortranarray(value), value[..., None], value[0:0], value[0, 0, 0:1].reshape(())):
        got = through(relay, form)
        assert (got.dtype, got.shape) == (form.dtype, form.shape)
        assert np.array_equal(got, form)


def test_byte_strings_stay_byte_strings(relay: Relay) -> None:
    for value in (b"", b"\0x", os.urandom(200_000)):
        got = through(relay, value)
        assert type(got) is bytes and got == value


@pytest.mark.parametrize("value", [np.array([object()]), np.zeros(2, [("a", "f4")]), "text", 3, None, [1]])
def test_what_cannot_travel_is_refused_by_its_type(relay: Relay, value: Any) -> None:
    with pytest.raises(WireError):
        relay.put(value)


def test_order_does_not_matter_and_each_ref_is_its_own(relay: Relay) -> None:
    refs = [relay.put(np.full(40_000, n, np.int32)) for n in range(12)]
    for n in random.Random(3).sample(range(12), 12):
        assert int(relay.get(refs[n])[-1]) == n


def test_a_ref_is_got_once(relay: Relay) -> None:
    ref = relay.put(np.ones(200_000, np.uint8))
    first = relay.get(ref)
    del first
    if ref.kind == "inline":
        return  # it holds its own bytes: there is no place to give back
    with pytest.raises(WireError, match="late"):
        relay.get(ref)


def test_late_data_is_given_back_unread(relay: Relay) -> None:
    ref = relay.put(np.ones(200_000, np.uint8))
    relay.release(ref)
    relay.release(ref)
    if ref.kind != "inline":
        with pytest.raises(WireError, match="late"):
            relay.get(ref)


def test_what_is_got_is_the_readers_own(folder: Path) -> None:
    relay = Shared(Pool(folder, "writer"), "reader", Attached(folder))
    value = np.ones(200_000, np.uint8)
    got = through(relay, value)
    got[:] = 7
    assert int(value[0]) == 1
    view = got[100:]
    del got
    other = through(relay, np.zeros(200_000, np.uint8))
    assert int(view[0]) == 7, "a view keeps its slot"
    assert int(other[0]) == 0


def test_ten_thousand_transfers_do_not_grow(folder: Path) -> None:
    pool = Pool(folder, "writer")
    relay = Shared(pool, "reader", Attached(folder))
    value = np.arange(10_000, dtype=np.float32)
    through(relay, value)
    files, fds, mapped = sorted(os.listdir(folder)), len(os.listdir("/proc/self/fd")), pool.bytes
    for n in range(10_000):
        value[0] = n
        assert through(relay, value)[0] == n
    assert sorted(os.listdir(folder)) == files
    assert len(os.listdir("/proc/self/fd")) == fds
    assert pool.bytes == mapped and pool.in_use == 0 and pool.overflows == 0


def test_slots_that_a_reader_keeps_are_lent_again_only_after_its_death(folder: Path) -> None:
    slots = CLASSES[0][1]
    pool = Pool(folder, "writer", limit_bytes=4096 + CLASSES[0][0] * slots)
    dead, alive = Shared(pool, "dead", Attached(folder)), Shared(pool, "alive", Attached(folder))
    value = np.ones(100_000, np.uint8)
    held = [dead.put(value) for _ in range(slots - 1)]
    kept = alive.put(value)
    assert {r.kind for r in held} == {"shared"} and pool.in_use == slots
    assert alive.put(value).kind == "inline", "no slot is free: nobody waits"
    pool.reclaim("dead")
    assert pool.in_use == 1
    assert dead.put(value).kind == "inline" and pool.in_use == 1, "who has not heard of the death lends it nothing for ever"
    assert alive.put(value * 2).kind == "shared"
    assert int(alive.get(kept)[0]) == 1


def test_no_room_for_shared_memory_is_no_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    relay = Shared(Pool(folder, "writer"), "reader", Attached(folder))
    value = np.arange(100_000)
    ref = relay.put(value)
    assert ref.kind == "inline" and np.array_equal(relay.get(ref), value)
    assert not [name for name in os.listdir(folder) if name.endswith(".seg")]


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", ".hidden.seg", "other-0.seg", "lock", "a/b.seg", ""])
def test_a_ref_names_a_segment_of_the_run_folder_or_nothing(folder: Path, name: str) -> None:
    relay = Shared(Pool(folder, "writer"), "reader", Attached(folder))
    with pytest.raises(WireError):
        relay.get(Ref("shared", "|u1", (1,), 1, (name, 0, 1)))


def test_a_ref_reads_nothing_beyond_its_slot(folder: Path) -> None:
    relay = Shared(Pool(folder, "writer"), "reader", Attached(folder))
    ref = relay.put(np.ones(100, np.uint8))
    for wrong in (
        Ref("shared", "|u1", (1 << 30,), 1 << 30, ref.key),
        Ref("shared", "|u1", (100,), 100, (ref.key[0], 99, ref.key[2])),
        Ref("shared", "|u1", (100,), 100, (ref.key[0], ref.key[1], ref.key[2] + 1)),
        Ref("reference", "|u1", (100,), 100, ref.key),
    ):
        with pytest.raises(WireError):
            relay.get(wrong)
    with pytest.raises(WireError):
        relay.get(Ref("shared", "<f8", (100,), 100, ref.key))  # 100 bytes are no 100 doubles; the slot went with it


def test_a_segment_outlives_its_owner_for_who_still_looks(folder: Path) -> None:
    attached = Attached(folder)
    relay = Shared(Pool(folder, "writer"), "reader", attached)
    got = through(relay, np.full(100_000, 5, np.uint8))
    attached.forget("writer")
    for file in folder.glob("writer-*"):
        file.unlink()
    assert int(got.sum()) == 500_000


def test_tensors_keep_their_own_dtypes(relay: Relay) -> None:
    torch = pytest.importorskip("torch")
    for value in (
        torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
        torch.ones(0, 5),
        torch.tensor(3.5),
        torch.ones(4, 4).T[1:],
    ):
        got = through(relay, value)
        assert got.dtype == value.dtype and got.shape == value.shape and torch.equal(got, value)
