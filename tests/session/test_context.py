"""Long talks: what leaves the model's context, when, and what never does."""

from __future__ import annotations

from typing import Any

from antiphon.session import events as ev
from antiphon.session.features import Features
from antiphon.session.request import Entry, Message, Text

from .talk import Talk, of


def ten(entry: Entry) -> int:
    return 10


def talk_of(turns: int, update: dict[str, Any] | None = None, **features: Any) -> Talk:
    """``turns`` questions and answers of 10 tokens each, typed; the instructions take 10 as well."""
    talk = Talk(Features(context_tokens=160, estimate=ten, **features), update={"output_modalities": ["text"]})
    talk.update(**(update or {}))
    item = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "rules"}]}
    talk.command("conversation.item.create", item=item)
    for n in range(turns):
        ask(talk, f"q{n}")
        talk.make(talk.gen(), f"a{n}")
        talk.end(talk.gen())
    return talk


def ask(talk: Talk, text: str) -> list[dict[str, Any]]:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    talk.command("conversation.item.create", item=item)
    return talk.command("response.create")


def texts(talk: Talk) -> list[str]:
    return [e.parts[0].text for e in talk.request.context if isinstance(e, Message) and isinstance(e.parts[0], Text)]


def test_whole_oldest_turns_go_and_system_messages_and_the_question_stay() -> None:
    talk = talk_of(6)  # room for 160 - 20 (an eighth, for the answer) - 10 (instructions)
    assert talk.session.counts["context_items_trimmed"] == 0
    ask(talk, "q6")
    trimmed = [e for e in talk.effects if isinstance(e, ev.ContextTrimmed)]
    assert trimmed == [ev.ContextTrimmed(8, 150)]
    assert texts(talk) == ["rules", "q4", "a4", "q5", "a5", "q6"], "half of the room is kept"


def test_the_largest_limit_that_a_client_may_set_does_not_cost_it_the_conversation() -> None:
    """All of a small model's context was kept free for the answer: the agent forgot every turn but the last."""
    talk = talk_of(4, update={"max_output_tokens": 4096})  # room for 160 - 40 (a quarter) - 10
    ask(talk, "q4")
    assert texts(talk)[:3] == ["rules", "q0", "a0"] and talk.request.max_tokens == 4096
    talk = talk_of(1, update={"max_output_tokens": 4096, "truncation": "disabled"})
    assert "response.created" in [e["type"] for e in ask(talk, "q1")] and talk.session.responses.active is not None


def test_trimming_is_sticky_so_that_the_prompt_stays_cached() -> None:
    talk = talk_of(7)
    first = texts(talk)[1]
    ask(talk, "q7")
    assert texts(talk)[1] == first, "room was left for several turns"


def test_the_oldest_go_when_an_answer_has_ended_and_not_when_the_next_is_awaited() -> None:
    talk = talk_of(6, prepare=True)  # 130 of 130: no room for a question
    assert talk.session.counts["context_items_trimmed"] == 8
    (read,) = [e.request for e in talk.effects if isinstance(e, ev.Prepare)]
    assert [e.parts[0].text for e in read.context] == ["rules", "q4", "a4", "q5", "a5"]
    ask(talk, "q6")
    assert texts(talk) == ["rules", "q4", "a4", "q5", "a5", "q6"], "what was read ahead is its beginning"
    assert not any(isinstance(e, ev.ContextTrimmed) for e in talk.effects)


def test_what_may_not_be_dropped_is_not_dropped_ahead_either() -> None:
    talk = talk_of(6, {"truncation": "disabled"}, prepare=True)
    assert talk.session.counts["context_items_trimmed"] == 0 and talk.gen("prepare")


def test_retention_ratio_keeps_what_it_says() -> None:
    talk = talk_of(6, {"truncation": {"type": "retention_ratio", "retention_ratio": 0.8}})
    ask(talk, "q6")
    assert texts(talk) == ["rules", "q2", "a2", "q3", "a3", "q4", "a4", "q5", "a5", "q6"]


def test_a_token_limit_after_the_instructions() -> None:
    limits = {"type": "retention_ratio", "retention_ratio": 1.0, "token_limits": {"post_instructions": 60}}
    talk = talk_of(4, {"truncation": limits})
    assert len(texts(talk)) <= 6


def test_disabled_fails_the_response_and_says_why() -> None:
    talk = talk_of(6, {"truncation": "disabled"})
    events = ask(talk, "q6")
    done = of(events, "response.done")[0]["response"]
    assert done["status"] == "failed" and done["status_details"]["error"]["code"] == "context_length_exceeded"
    item_id = talk.check.items[1]
    talk.command("conversation.item.delete", item_id=item_id)
    assert not of(talk.command("response.create"), "response.done"), "the session goes on"


def test_disabled_fails_a_spoken_turn_too() -> None:
    talk = talk_of(6, {"truncation": "disabled"})
    talk.command("conversation.item.create", item={"type": "message", "role": "user", "content": "x"})
    events = talk.turn()
    assert of(events, "response.created") and of(events, "response.done")[0]["response"]["status"] == "failed"


def test_an_early_answer_survives_the_trimming_that_its_turn_brings() -> None:
    talk = talk_of(6)
    talk.turn()
    assert talk.session.counts["context_items_trimmed"] and talk.session.counts["early_won"] == 1


def test_a_deleted_id_may_come_back() -> None:
    talk = talk_of(7)
    gone = talk.check.items[1]
    talk.command("conversation.item.delete", item_id=gone)
    item = {"type": "message", "role": "user", "id": gone, "content": [{"type": "input_text", "text": "again"}]}
    talk.command("conversation.item.create", item=item)
    talk.command("response.create")
    assert "again" in texts(talk)


def test_long_instructions_do_not_take_the_room_that_the_conversation_keeps() -> None:
    """100 tokens of the conversation are kept, whether the instructions beside them take 10 or 200 of a context of 400."""

    def sized(entry: Entry) -> int:
        return 200 if isinstance(entry, Message) and any("long" in p.text for p in entry.parts if isinstance(p, Text)) else 10

    for instructions in ("short", "long"):
        features = Features(context_tokens=400, conversation_tokens=100, estimate=sized)
        talk = Talk(features, update={"output_modalities": ["text"], "instructions": instructions})
        for n in range(6):  # the 6th question is the 11th entry
            ask(talk, f"q{n}")
            talk.make(talk.gen(), f"a{n}")
            talk.end(talk.gen())
        assert texts(talk) == ["q3", "a3", "q4", "a4", "q5"], "half of it, as ever"


def test_a_conversation_that_may_not_be_cut_has_the_whole_context() -> None:
    features = Features(context_tokens=400, conversation_tokens=50, estimate=ten)
    talk = Talk(features, update={"output_modalities": ["text"], "truncation": "disabled"})
    for n in range(8):
        ask(talk, f"q{n}")
        talk.end(talk.gen())
    assert len(texts(talk)) == 8
