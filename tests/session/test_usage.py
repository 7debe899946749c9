"""What an answer says that it has read and written."""

from __future__ import annotations

from antiphon.pipelines.outputs import Usage
from antiphon.session.features import Features
from antiphon.session.request import Message

from .talk import Talk, of

USER_TEXT = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


def test_no_kind_of_input_is_cached_more_than_there_is() -> None:
    """Who counts the cost takes what is cached from each kind: 142 - 160 text tokens were fewer than none."""
    talk = Talk()
    talk.command("response.create")
    usage = Usage(prompt_tokens=189, cached_tokens=180, completion_tokens=12, prompt_audio_tokens=43, prompt_image_tokens=4)
    (done,) = of(talk.end(talk.gen(), usage=usage), "response.done")
    read = done["response"]["usage"]["input_token_details"]
    cached = read["cached_tokens_details"]
    assert all(cached[kind] <= read[kind] for kind in cached) and sum(cached.values()) == read["cached_tokens"] == 180


def test_a_cancelled_answer_counts_its_instructions_and_tools_as_read() -> None:
    sizes = {"system": 100, "user": 1}
    talk = Talk(Features(estimate=lambda entry: sizes[entry.role] if isinstance(entry, Message) else 10))
    talk.update(instructions="Be kind.", tools=[{"type": "function", "name": "f"}])
    talk.command("conversation.item.create", item=USER_TEXT)
    aside = {"conversation": "none", "input": [USER_TEXT, USER_TEXT], "tools": []}
    for beside, read in ({}, 111), ({"tool_choice": "none"}, 101), (aside, 102):
        rid = talk.command("response.create", response=beside)[0]["response"]["id"]
        done = of(talk.command("response.cancel", response_id=rid), "response.done")[0]["response"]
        assert done["usage"]["input_tokens"] == read
    talk.close()
