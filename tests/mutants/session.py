"""Bugs of a conversation that somebody once made, or easily could."""

from __future__ import annotations

from .run import Mutant

TESTS = ("tests/session/test_machine.py", "tests/session")

MUTANTS = [
    Mutant(
        "an answer that is owed is forgotten",
        "session/responses.py",
        "            self._owed = True\n",
        "            pass\n",
    ),
    Mutant(
        "barge-in lets the response run",
        "session/responses.py",
        '            self._cancel(active, "turn_detected", abort=not parked)',
        "            pass",
    ),
    Mutant(
        "an early answer is released for any request",
        "session/early.py",
        "if early is None or early.request != request:",
        "if early is None:",
    ),
    Mutant(
        "what the model makes after its end is sent",
        "session/responses.py",
        "if response is None or response.ending:",
        "if response is None:",
    ),
    Mutant(
        "the buffer is not emptied by a commit",
        "session/hearing.py",
        "        self.buffer_start = span[1]\n        self._announced",
        "        self._announced",
    ),
    Mutant(
        "resumed speech leaves the early answer running",
        "session/hearing.py",
        '            self._anticipation.drop("resumed")\n',
        "",
    ),
    Mutant(
        "a closed session leaves its generations running",
        "session/responses.py",
        "        for response in list(self._running.values()):\n            if not response.ending:\n"
        "                self._core.do(Abort(response.gen))\n            if reason",
        "        for response in list(self._running.values()):\n            if reason",
    ),
    Mutant("a score counts twice", "session/turn.py", "if score.end <= self.scored:", "if False:"),
    Mutant(
        "truncate is not clamped to what was sent",
        "session/conversation.py",
        "item.mark = min(ms * OUT_RATE // 1000, item.ledger.sent)",
        "item.mark = ms * OUT_RATE // 1000",
    ),
    Mutant(
        "audio is not paced",
        "session/response.py",
        "wait = ledger.lead(core.now) - window",
        "wait = 0.0",
    ),
    Mutant(
        "an open microphone fills memory",
        "session/hearing.py",
        "            self._forget_silence(detector)",
        "            pass",
    ),
    Mutant(
        "an item does not keep its samples",
        "session/memory.py",
        "        self._core.do(KeepAudio(span))\n",
        "",
    ),
    Mutant(
        "the pre-roll is forgotten",
        "session/hearing.py",
        "floor = first - self._padding() - WINDOW",
        "floor = first - WINDOW",
    ),
    Mutant(
        "a turn may be read early without end",
        "session/hearing.py",
        "            speech.guesses -= 1\n",
        "",
    ),
    Mutant(
        "a turn may be answered early without end",
        "session/hearing.py",
        "            speech.answers -= 1\n",
        "",
    ),
    Mutant(
        "what is read ahead leaves no room for the turn to come",
        "session/early.py",
        "self._context.request(ResponseParams(), ahead=True)",
        "self._context.request(ResponseParams())",
    ),
    Mutant(
        "an early answer that failed is released",
        "session/early.py",
        'if isinstance(event, Ended) and event.reason == "failed":',
        "if False:",
    ),
    Mutant(
        "an early answer that fits no more runs on",
        "session/responses.py",
        '            self._anticipation.drop("stale")\n            self._anticipation.stop_preparing()',
        "            self._anticipation.stop_preparing()",
    ),
    Mutant(
        "what was closed is closed again at the end",
        "session/response.py",
        "        output.open = False\n",
        "",
    ),
    Mutant(
        "a guess outlives the turn that went on",
        "session/transcripts.py",
        "        if self._readings.pop(guess.gen, None):\n            self._core.do(Abort(guess.gen))",
        "        self._readings.pop(guess.gen, None)",
    ),
    Mutant(
        "all that was sent counts as heard",
        "session/listener.py",
        "            heard = ledger.heard(now)\n",
        "            heard = ledger.sent\n",
    ),
    Mutant(
        "what ended before is not marked",
        "session/listener.py",
        "found = [s.item for s in self._sounding if s.lead(now) > 0 and (self._webrtc or not s.response.aside)]",
        "found: list[Item] = []",
    ),
    Mutant(
        "each answer is heard at once, not after the last",
        "session/responses.py",
        "max(self._listener.until, self._core.now)\n\n    def _fail",
        "self._core.now\n\n    def _fail",
    ),
    Mutant(
        "a refused update is half applied",
        "session/config.py",
        "    new = copy.deepcopy(old)\n",
        "    new = old\n",
    ),
    Mutant(
        "a deleted item keeps its samples",
        "session/memory.py",
        "        if item.span:\n            self._core.do(DropAudio(item.span))\n",
        "",
    ),
    Mutant(
        "a committed turn never stopped",
        "session/hearing.py",
        "            self._unscore(speech)\n            self._say_stopped(speech.item_id, self.received)",
        "            self._unscore(speech)",
    ),
    Mutant(
        "the announced id is forgotten when detection is switched off",
        "session/hearing.py",
        "                self._announced = self._speech.item_id\n",
        "",
    ),
    Mutant(
        "the loudspeaker is not cleared",
        "session/listener.py",
        "        core.do(ClearPlayback())\n",
        "",
    ),
    Mutant(
        "idle time runs while the answer is being heard",
        "session/responses.py",
        "return max(self._done_at, self._listener.until)",
        "return self._done_at",
    ),
    Mutant(
        "a guess for other samples becomes the transcript",
        "session/transcripts.py",
        "        if guess and (guess.span, guess.recognition) == (span, recognition):\n            self._guess = None",
        "        if guess:\n            self._guess = None",
    ),
    Mutant(
        "interrupt_response false is not respected",
        "session/hearing.py",
        'if policy.get("interrupt_response") and core.converses',
        "if core.converses",
    ),
    Mutant(
        "a second default response begins",
        "session/responses.py",
        "            self._owed = True\n        else:\n            self._owed = False\n            self._ask(ResponseParams())",
        "            pass\n        self._ask(ResponseParams())",
    ),
    Mutant(
        "an answer cut before its audio counts as heard",
        "session/response.py",
        "if ledger is not None and (cut_short or output.queue) and output.item.mark is None:",
        "if ledger is not None and output.queue and output.item.mark is None:",
    ),
    Mutant(
        "a partial outlives its turn",
        "session/transcripts.py",
        "        self._stop_partial()\n        partial, self._partial = self._partial, None",
        "        partial, self._partial = self._partial, None",
    ),
    Mutant(
        "an older turn score ends a later silence",
        "session/hearing.py",
        "if speech is None or speech.scoring != event.gen or",
        "if speech is None or",
    ),
    Mutant(
        "a preparation runs beside the answer",
        "session/early.py",
        "        self.stop_preparing()\n        self._early = Early",
        "        self._early = Early",
    ),
    Mutant(
        "an owed answer begins in the middle of a turn",
        "session/responses.py",
        "if self._owed and self.active is None and not self._core.user_speaks:",
        "if self._owed and self.active is None:",
    ),
    Mutant(
        "metadata is not echoed",
        "session/response.py",
        '"metadata": self._metadata,',
        '"metadata": None,',
    ),
    Mutant(
        "a trimmed turn comes back",
        "session/context.py",
        "                self._trimmed.add(item.id)\n",
        "                kept = [pair for pair in kept if pair[0].id != item.id]\n",
    ),
    Mutant(
        "silence is counted in samples that nobody has scored",
        "session/turn.py",
        "return self.received if self.received - self.scored < WINDOW else self.scored",
        "return self.received",
    ),
    Mutant(
        "a long turn gets no attempt back",
        "session/hearing.py",
        "            speech.answers = min(ATTEMPTS, speech.answers + 1)\n",
        "",
    ),
    Mutant(
        "a conversation keeps all that the context holds",
        "session/context.py",
        "room = min(room, keeps) if keeps else room",
        "room = room",
    ),
]
