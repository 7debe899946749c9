"""Clients that ask for the next response a moment before the one that called their tools has been said to end."""

from __future__ import annotations

from antiphon.session import events as ev

from .talk import Talk


def call(talk: Talk, call_id: str = "call_1") -> str:
    """A response that has made its calls and has not ended; its generation."""
    talk.command("response.create")
    gen = talk.gen()
    talk.do(ev.CallMade(gen, call_id, "weather", "{}", last=True))
    return gen


def kinds(events: list[dict[str, object]]) -> list[object]:
    return [e["type"] for e in events]


def test_the_answer_to_a_call_may_be_asked_for_before_response_done() -> None:
    talk = Talk()
    gen = call(talk)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
    talk.command("conversation.item.create", item=output)
    assert talk.command("response.create", response={"metadata": {"n": "2"}}) == []
    sent = talk.end(gen)
    done, created = kinds(sent).index("response.done"), kinds(sent).index("response.created")
    assert done < created and sent[created]["response"]["metadata"] == {"n": "2"}
    assert talk.request.context[-1].output == "rain"


def test_it_may_be_asked_for_while_what_was_said_before_the_call_is_still_sent() -> None:
    """Audio is sent as it is heard, so that the end of 9 s of it comes seconds after the call; OpenAI's comes with it."""
    talk = Talk()
    talk.command("response.create")
    gen = talk.gen()
    talk.make(gen, "One moment please, this takes a while.", 9)
    talk.do(ev.CallMade(gen, "call_1", "weather", "{}", last=True))
    assert "response.done" not in kinds(talk.end(gen))
    talk.command("conversation.item.create", item={"type": "function_call_output", "call_id": "call_1", "output": "rain"})
    assert talk.command("response.create", event_id="e2") == []
    sent = kinds(talk.wait(9))
    assert sent.index("response.done") < sent.index("response.created")
    assert talk.request.context[-1].output == "rain"


def test_a_third_one_is_refused() -> None:
    talk = Talk()
    call(talk)
    talk.command("response.create")
    (error,) = talk.command("response.create", event_id="e3")
    assert error["error"]["code"] == "conversation_already_has_active_response" and error["error"]["event_id"] == "e3"


def test_a_call_that_is_still_being_written_is_no_such_moment() -> None:
    talk = Talk()
    talk.command("response.create")
    talk.do(ev.CallMade(talk.gen(), "call_1", "weather", "{"))
    assert kinds(talk.command("response.create")) == ["error"]


def test_an_interruption_refuses_what_was_waiting() -> None:
    talk = Talk()
    call(talk)
    talk.command("response.create", event_id="mine")
    sent = talk.say()
    errors = [e["error"] for e in sent if e["type"] == "error"]
    assert [e["event_id"] for e in errors] == ["mine"]
    assert kinds(sent).count("response.created") == 0


def test_a_call_that_the_token_limit_cut_off_is_incomplete() -> None:
    """Clients run a tool whose item ends as completed; half of its arguments would be no JSON."""
    talk = Talk()
    talk.command("response.create")
    talk.do(ev.CallMade(talk.gen(), "call_1", "weather", '{"'))
    sent = talk.end(talk.gen(), "length")
    (item,) = [e["item"] for e in sent if e["type"] == "response.output_item.done"]
    assert (item["status"], item["arguments"]) == ("incomplete", '{"')
    assert sent[kinds(sent).index("response.done")]["response"]["status"] == "incomplete"


def test_a_waiting_one_that_cannot_be_made_is_refused_by_its_own_id() -> None:
    """Its input is read when its time comes; a reference to nothing broke the conversation."""
    talk = Talk()
    gen = call(talk)
    wanted = {"input": [{"type": "item_reference", "id": "gone"}]}
    assert talk.command("response.create", event_id="e2", response=wanted) == []
    sent = talk.end(gen)
    (error,) = [e["error"] for e in sent if e["type"] == "error"]
    assert (error["code"], error["param"], error["event_id"]) == ("item_retrieve_invalid_item_id", "response.input[0].id", "e2")
    assert "response.created" not in kinds(sent)
    assert "response.created" in kinds(talk.command("response.create"))
