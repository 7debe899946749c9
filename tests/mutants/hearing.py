"""Bugs planted in the hearing: the media cache, the ears' bookkeeping, the decoding rule, the transcriber."""

from __future__ import annotations

from tests.mutants.run import Mutant

TESTS = (
    "tests/hearing/test_media_cache.py",
    "tests/hearing/test_whisper_segments.py",
    "tests/hearing/test_windows.py",
    "tests/hearing/test_ears.py",
    "tests/hearing/test_transcriber.py",
)

CACHE = "pipelines/media_cache.py"
EARS = "pipelines/ears/ears.py"
LOUDNESS = "pipelines/ears/loudness.py"
SEGMENTS = "pipelines/local/whisper_segments.py"
WINDOWS = "pipelines/local/windows.py"
READINGS = "pipelines/local/readings.py"
TRANSCRIBER = "pipelines/local/transcriber.py"

MUTANTS = (
    Mutant("everybody computes", CACHE, "flight.askers[0] == who", "flight.askers"),
    Mutant("the newest result is evicted", CACHE, "popitem(last=False)", "popitem(last=True)"),
    Mutant("who leaves stays in the flight", CACHE, "flight.askers.remove(who)", "pass"),
    Mutant("what was never said is kept", SEGMENTS, "if late or no_room:", "if no_room:"),
    Mutant("ends lie behind the sound", SEGMENTS, "min(max(begin, end), seconds)", "max(begin, end)"),
    Mutant("a doubled sentence stands", SEGMENTS, "half >= 3", "half >= 30"),
    Mutant("hallucinations stand", SEGMENTS, "return Verdict.NOTHING", "return Verdict.GOOD"),
    Mutant("one click is speech", WINDOWS, "len(voiced) < 2 and", "False and"),
    Mutant("long speech is cut in the middle of its loudest part", WINDOWS, "energy.argmin()", "energy.argmax()"),
    Mutant("the network is never reset", EARS, "ear.silent == RESET_WINDOWS", "ear.silent == -1"),
    Mutant("one state for all that is silent too", EARS, "ear.silent = 0", "ear.silent = RESET_WINDOWS - 1"),
    Mutant("scores after close", EARS, "None if self.closed else call()", "call()"),
    Mutant("an echo interrupts", EARS, "and not ear.loudness.near(window)", "and False"),
    Mutant("an echo is expected for ever", EARS, "ear.scored < ear.echo_until", "True"),
    Mutant("a failed network is asked at once again", EARS, "self._retry_at = time.monotonic() + RETRY_S", "pass"),
    Mutant("the backlog is not bounded", EARS, "> BACKLOG * WINDOW", "> 9 * BACKLOG * WINDOW"),
    Mutant("loud is one block early", LOUDNESS, "(int(loud[-1]) + 1) - 1", "int(loud[-1]) - 1"),
    Mutant("those that arrive starve those that wait", READINGS, "reading.waited = True", "pass"),
    Mutant("windows are decoded one by one", READINGS, "min(GROUP,", "min(1,"),
    Mutant("options are no part of the key", TRANSCRIBER, "_Clip((clip.key, options)", "_Clip((clip.key, Transcription())"),
    Mutant(
        "an aborted reader keeps its place",
        TRANSCRIBER,
        "for clip in task.clips:\n            self._cache.leave",
        "for clip in task.clips[1:]:\n            self._cache.leave",
    ),
    Mutant("the first clip is shown", TRANSCRIBER, "clip is task.clips[-1]", "clip is task.clips[0]"),
)
