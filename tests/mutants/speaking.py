"""One-line bugs of the speaking half of the CPU voice."""

from __future__ import annotations

from tests.mutants.run import Mutant

CLAUSES = "pipelines/local/clauses.py"
BREAKS = "pipelines/local/breaks.py"
SPEAKABLE = "pipelines/local/speakable.py"
SEGMENTER = "pipelines/local/segmenter.py"
PHONEMES = "pipelines/local/phonemes.py"
SYNTHESIS = "pipelines/local/synthesis.py"
TALKER = "pipelines/local/talker.py"
CODE2WAV = "pipelines/local/code2wav.py"

TESTS = (
    "tests/pipelines/local/test_speakable.py",
    "tests/pipelines/local/test_clauses.py",
    "tests/pipelines/local/test_segmenter.py",
    "tests/pipelines/local/test_synthesis.py",
    "tests/pipelines/local/test_voice.py",
)

MUTANTS = (
    Mutant(
        "a sentence ends without looking on",
        BREAKS,
        "if end >= len(text):\n        return True if whole else None",
        "if end >= len(text):\n        return True",
    ),
    Mutant("abbreviations end sentences", BREAKS, "if is_abbreviation(text, start):", "if False:"),
    Mutant("links are cut", CLAUSES, 'if character in "[`":', "if False:"),
    Mutant(
        "the first clause is not short", CLAUSES, "if self.eager and len(text[:position].strip()) >= _FIRST_COMMA:", "if False:"
    ),
    Mutant(
        "flush cuts words",
        CLAUSES,
        "if may_part(text, blank) and text[:blank].strip():\n                return blank",
        "return len(text)",
    ),
    Mutant("code is read out", CLAUSES, "self._fence = fence.group(1)", 'self._fence = ""'),
    Mutant("a decimal comma is lost", SPEAKABLE, '.sub(_DECIMAL_COMMA, (1, ".", 2))', ""),
    Mutant("an address is spelled as it is", SPEAKABLE, ".sub(_EMAIL, mail)", ""),
    Mutant("emoji are said", SPEAKABLE, "if silent:", "if False:"),
    Mutant("no patience", SEGMENTER, "now >= task.fed_at + self.patience", "True"),
    Mutant("a call does not end the text", SEGMENTER, "task.closing = True", "pass"),
    Mutant("marks are of the normalised word", PHONEMES, "completes[last] = b - 1", "pass"),
    Mutant("marks come a phoneme late", PHONEMES, "last = base + voiced[-1]", "last = base + voiced[-1] + 1"),
    Mutant("the phase starts anew in a block", SYNTHESIS, "self._cycles = running[-1]", "pass"),
    Mutant("the overlap is forgotten", SYNTHESIS, "self._overlap = made[-(_OVERLAP - 1) :]", "self._overlap = made[:0]"),
    Mutant(
        "the end is not reflected",
        SYNTHESIS,
        "if stop == self._frames:\n            self._padded[_EDGE +",
        "if False:\n            self._padded[_EDGE +",
    ),
    Mutant("speech is cut at its start", TALKER, "int(loud[0]) - _MARGIN)", "int(loud[0]) + 8)"),
    Mutant("noise is shared", TALKER, "np.random.default_rng(_SEED if seed is None else seed)", "np.random.default_rng()"),
    Mutant(
        "marks restart with each clause",
        CODE2WAV,
        "Mark(task.base + mark.sample, mark.text_offset)",
        "Mark(mark.sample, mark.text_offset)",
    ),
    Mutant(
        "samples are not counted", CODE2WAV, "emit.result(task, AudioResult(task.sent))", "emit.result(task, AudioResult(0))"
    ),
)
