"""Whatever the interleaving of submit, chunk, abort, failure and slow reader: the promises of DESIGN section 3 hold."""

from __future__ import annotations

import os
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from antiphon.pipelines.errors import ConfigError, Refused
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.handle import End, Handle
from antiphon.pipelines.messages import Event
from antiphon.pipelines.stage import Merge, Request
from tests.pipelines.by_hand import ByHand, stage
from tests.pipelines.dummies import Script, new_world

EXAMPLES = int(os.environ.get("ANTIPHON_EXAMPLES", "40"))
PHASES = [Phase.generate] if os.environ.get("ANTIPHON_NO_SHRINK") else list(Phase)
WINDOW_MS = 200.0
ROUTES = {
    "speech": ("segmenter",),
    "chat": ("enc_a", "enc_b", "think"),
    "audio": ("asr", "enc_a", "caption"),
    "transcription": ("asr",),
}
MAKES = {
    "speech": {"audio"},
    "chat": {"text", "audio"},
    "audio": {"text", "audio", "transcript", "caption"},
    "transcription": {"text", "audio", "transcript"},
}


def keep_parts(request: Request, parts: Merge) -> Any:
    return dict(parts)


def route(request: Request) -> tuple[str, ...]:
    return tuple(request.body.route)


def voice(lanes: int, max_open: int, credits: int) -> PipelineConfig:
    """The shapes of a local and of an omni pipeline at once: fan-in, a tap, a side branch, partial start."""

    def of(name: str, kind: str = "shot", **more: Any) -> Any:
        return stage(name, kind, lane=f"lane{sum(name.encode()) % lanes}", max_open=max_open, credits=credits, **more)

    return PipelineConfig(
        "voice",
        "pre",
        [
            of("pre", next=("asr", "enc_a", "enc_b", "think", "segmenter", "caption"), route_fn=route),
            of("asr", next=("think",), terminal="transcript"),
            of("enc_a", next=("think",)),
            of("enc_b", next=("think",), delay_s=0.2),
            of("caption", terminal="caption", side=True),
            of("think", "ar", stream_to=("decode", "segmenter"), merge_fn=keep_parts, prepares=True),
            of("decode", "xd", terminal="text"),
            of("segmenter", "xd", take=3, delay_s=0.45, stream_to=("talker",), merge_fn=keep_parts),
            of("talker", "tk", span_ms=80.0, stream_to=("code2wav",), start_on={"segmenter": 1}),
            of("code2wav", "xd", take=2, fanout=2, span_ms=80.0, terminal="audio"),
        ],
    )


STAGES = list(voice(1, 1, 4).stages)


class GraphMachine(RuleBasedStateMachine):
    @initialize(lanes=st.integers(1, 4), max_open=st.integers(1, 3), credits=st.integers(1, 4))
    def build(self, lanes: int, max_open: int, credits: int) -> None:
        self.world = new_world()
        self.credits = credits
        self.by_hand = ByHand(voice(lanes, max_open, credits), self.world)
        self.seen: dict[Handle, list[Event | End]] = {}
        self.heard: dict[Handle, float] = {}
        self.made: dict[int, tuple[float, tuple[float | None, float], bool]] = {}
        self.seats: list[Any] = []

    @rule(
        task=st.sampled_from(sorted(ROUTES)),
        wanted=st.sets(st.sampled_from(["text", "audio", "transcript", "caption"]), min_size=1),
        counts=st.dictionaries(st.sampled_from(["think", "talker"]), st.integers(0, 6)),
        fail=st.none()
        | st.tuples(
            st.sampled_from(STAGES),
            st.sampled_from(["step", "failure", "open", "feed", "poll", "close"]),
            st.integers(0, 2),
        ),
        prepare=st.integers(0, 6).map(lambda n: n == 0),
        listener=st.sampled_from(["confirmed", "early", "none"]),
        fence_s=st.sampled_from([None, 0.3]),
        conversation=st.sampled_from(["a", "b"]),
    )
    def submit(self, task, wanted, counts, fail, prepare, listener, fence_s, conversation) -> None:  # type: ignore[no-untyped-def]
        wanted = wanted & MAKES[task] or MAKES[task]
        script = Script(ROUTES[task], counts, fail, fence_s)
        request = Request(
            id=f"r{len(self.seen)}",
            terminals=() if prepare else tuple(sorted(wanted)),
            kind="prepare" if prepare else "generate",
            conversation=conversation,
            listener=listener,
            body=script,
        )
        try:
            plan = self.by_hand.config.plan(request)
            script.streams, script.results = plan.streams, plan.results
            handle = self.by_hand.coordinator.submit(request)
        except Refused:
            assert prepare and task == "speech"  # nothing of that route is ever prepared
            return
        self.seen[handle] = []

    def _pick(self, index: int) -> Handle | None:
        handles = list(self.seen)
        return handles[index % len(handles)] if handles else None

    def _read(self, handle: Handle) -> bool:
        event = handle.read()
        if event is None:
            return False
        log = self.seen[handle]
        assert not (log and isinstance(log[-1], End)), "an event after the end"
        log.append(event)
        return True

    @rule(index=st.integers(0, 30), count=st.integers(1, 4))
    def read(self, index: int, count: int) -> None:
        handle = self._pick(index)
        for _ in range(count if handle is not None else 0):
            self._read(handle)

    @rule(index=st.integers(0, 30))
    def abort(self, index: int) -> None:
        handle = self._pick(index)
        if handle is not None:
            ended = handle.end
            handle.abort()
            assert handle.end is ended or (ended is None and handle.end is not None and handle.end.reason == "aborted")

    @rule(index=st.integers(0, 30), due=st.floats(-500, 5000), more=st.floats(0, 200))
    def tell(self, index: int, due: float, more: float) -> None:
        handle = self._pick(index)
        if handle is not None:
            self.heard[handle] = self.heard.get(handle, 0.0) + more
            handle.tell(due_in_ms=due, heard_ms=self.heard[handle], window_ms=WINDOW_MS)

    @rule(conversation=st.sampled_from(["a", "b"]))
    def forget(self, conversation: str) -> None:
        self.by_hand.coordinator.forget(conversation)

    @rule(index=st.integers(0, 9), count=st.integers(1, 5))
    def lane_turns(self, index: int, count: int) -> None:
        names = list(self.by_hand.lanes)
        for _ in range(count):
            self.by_hand.turn(names[index % len(names)])

    @rule()
    def coordinator_turn(self) -> None:
        self.by_hand.coordinator.turn(self.world.now)

    @rule(dt=st.floats(0.01, 0.6))
    def tick(self, dt: float) -> None:
        self.world.now += dt

    @invariant()
    def sound(self) -> None:
        if not hasattr(self, "world"):
            return
        assert not self.world.wrong, self.world.wrong
        for lane in self.by_hand.lanes.values():
            for rider in lane.riders.values():
                for seat in rider.seats.values():
                    if seat.state == "open":
                        for upstream, count in seat.config.start_on.items():
                            assert seat.arrived.get(upstream, 0) >= count or upstream in seat.upstream_ended, "opened too soon"
                    listener = (rider.heard_ms, rider.window_ms)
                    before = self.made.get(id(seat))
                    if before is not None and before[1:] == (listener, True):
                        assert seat.made_ms == before[0], "made more although it was ahead of the listener's window"
                    self.made[id(seat)] = (seat.made_ms, listener, seat.ahead())
                    self.seats.append(seat)  # keeps its id from being used again
                    for target, used in seat.used.items():
                        assert 0 <= used <= self.credits + 1, (seat.config.name, target, used)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for turn in range(4000):
            self.by_hand.as_threads_would()
            for handle in self.seen:
                while self._read(handle):
                    pass
                if turn % 10 == 0 and handle.end is None:
                    self.heard[handle] = 1e9
                    handle.tell(due_in_ms=0.0, heard_ms=1e9)
            self.world.now += 0.05
            if self.by_hand.idle and not any(h.events for h in self.seen):
                break
        assert not self.world.wrong, self.world.wrong
        assert self.by_hand.idle, "a request, slot, credit or task was not given back"
        assert self.world.opened == self.world.closed
        assert all(dummy.open_tasks == 0 for dummy in self.world.stages.values())
        exploding = {h.request.body.fail[0] for h in self.seen if h.request.body.fail and h.request.body.fail[1] == "step"} - {
            "caption"
        }
        for handle, log in self.seen.items():
            self._check_log(handle, log, exploding)

    def _check_log(self, handle: Handle, log: list[Event | End], exploding: set[str]) -> None:
        assert sum(isinstance(e, End) for e in log) == 1, log
        end = log[-1]
        assert isinstance(end, End), "the End is the last thing a client sees"
        script: Script = handle.request.body
        assert handle.timeline["released"] >= script.fenced_until, "released before the device was done"
        if end.reason == "finished":
            lasts = sorted(e.terminal for e in log[:-1] if isinstance(e, Event) and e.last)
            assert lasts == sorted(handle.plan.ends), "a terminal without its end"
        may_fail = script.fail is not None and script.fail[0] != "caption"
        if set(handle.plan.ends) == {"caption"}:
            return  # it asked for nothing but the side branch
        if not may_fail and not exploding & set(handle.plan.stages):
            assert end.reason in ("finished", "aborted"), f"a side branch or a neighbour ended it: {end}"


GraphMachine.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=50, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck)
)
TestGraph = GraphMachine.TestCase


@st.composite
def graphs(draw: Any) -> list[dict[str, Any]]:
    """Random acyclic graphs: edges only go to later stages."""
    names = [f"s{i}" for i in range(draw(st.integers(2, 6)))]
    spec = []
    for i, name in enumerate(names):
        later = names[i + 1 :]
        after = draw(st.sets(st.sampled_from(later), max_size=2)) if later else set()
        stream = (draw(st.sets(st.sampled_from(later), max_size=2)) - after) if later else set()
        upstream = [s["name"] for s in spec if name in s["stream"]]
        spec.append(
            {
                "name": name,
                "after": tuple(sorted(after)),
                "stream": tuple(sorted(stream)),
                "credits": draw(st.integers(1, 4)),
                "terminal": draw(st.booleans()) or not (after or stream),
                "max_open": draw(st.integers(1, 2)),
                "lane": draw(st.integers(0, 2)),
                "count": draw(st.integers(0, 7)),
                "start": {u: draw(st.integers(1, 3)) for u in upstream if draw(st.booleans())},
                "kind": draw(st.sampled_from(["xd", "cut"])) if upstream else "ar",
                "delay": draw(st.sampled_from([0.0, 0.5])),
            }
        )
    return spec


def drawn(spec: list[dict[str, Any]]) -> PipelineConfig:
    """Raises ConfigError where the graph drawn cannot run."""
    stages = [
        stage(
            s["name"],
            s["kind"],
            lane=f"lane{s['lane']}",
            max_open=s["max_open"],
            delay_s=s["delay"],
            next=s["after"],
            stream_to=s["stream"],
            credits=s["credits"],
            start_on=s["start"],
            merge_fn=keep_parts,
            terminal=s["name"] if s["terminal"] else None,
            side=s.get("side", False),
        )
        for s in spec
    ]
    return PipelineConfig("random", "s0", stages)


@settings(max_examples=EXAMPLES * 5, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(graphs(), st.data())
def test_whatever_validates_drains(spec: list[dict[str, Any]], data: Any) -> None:
    world = new_world()
    try:
        config = drawn(spec)
    except ConfigError:
        return
    by_hand = ByHand(config, world)
    terminals = [s["name"] for s in spec if s["terminal"]]
    handles = []
    for i in range(3):
        world.now += data.draw(st.sampled_from([0.0, 0.3]))
        wanted = data.draw(st.sets(st.sampled_from(terminals), min_size=1))
        script = Script(counts={s["name"]: s["count"] for s in spec})
        request = Request(id=f"r{i}", terminals=tuple(sorted(wanted)), body=script)
        script.streams = config.plan(request).streams
        handles.append(by_hand.coordinator.submit(request))
    seen = by_hand.run(handles, dt=0.1)
    assert not world.wrong, world.wrong
    assert by_hand.idle, "a graph that validates does not drain"
    for handle in handles:
        assert handle.end == End("finished")
        ended = sorted(e.terminal for e in seen[handle] if isinstance(e, Event) and e.last)
        assert ended == sorted(handle.plan.ends)
