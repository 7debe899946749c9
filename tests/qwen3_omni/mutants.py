"""One-line mistakes of the published algorithm, each of which the comparison with ``generate()`` must catch."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """In ``module`` (of the family) the one place that reads ``old`` reads ``new``; ``case`` shows it."""

    name: str
    module: str
    old: str
    new: str
    case: str = "chelsie"


MUTANTS = (
    Mutant("the end of text is not told", "talker", "row = self.input.eos", "row = self.input.pad"),
    Mutant("text after the first token is not spoken", "talker", "row = self.input.text([task.token])[0]", "pass"),
    Mutant("another speaker", "talker_input", "t.speaker_id[speaker]", 't.speaker_id["aiden"]'),
    Mutant("the sixteenth code is dropped", "code_predictor", "total + x[:, 0]", "total + x[:, 0] * (len(groups) < 14)"),
    Mutant("the first code is dropped", "code_predictor", "total = first.float()", "total = first.float() * 0"),
    Mutant("no repetition penalty", "params", "repetition_penalty=1.05", "repetition_penalty=1.0", "turns"),
    Mutant("positions are one ahead", "talker", "t.length + t.frames - 1 + t.delta", "t.length + t.frames + t.delta"),
    Mutant("the terminal token is spoken", "answer", "[*said[:-1], End(", "[*said, End("),
    Mutant(
        "the start of speech stands before its pads",
        "talker_input",
        "self.pad.expand(4, -1), self._bos[None]",
        "self._bos[None], self.pad.expand(4, -1)",
    ),
    Mutant(
        "the system turn is heard",
        "talker_input",
        "ids[start + 1] == config.user_token_id",
        "ids[start + 1] in (config.user_token_id, config.system_token_id)",
    ),
    Mutant("four frames of context", "vocoder", "CONTEXT = 9", "CONTEXT = 4", "text"),
    Mutant("samples of an unfinished frame", "vocoder", "* self.upsample - self.tail", "* self.upsample"),
    Mutant("media places without their states", "talker_input", "if prompt.media is None:", "if True:", "audio"),
    Mutant("a delta cut to a whole number", "positions", "float(delta)", "int(delta)", "video"),
)
