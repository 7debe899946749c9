"""``python -m benchmarks.answers``: the held-out half of the requests, one table, medians.

``--half tune`` is the half that prompt, sampling and quantisation were chosen on; ``--model`` takes any GGUF file or the
name of a weight; ``--show`` prints what failed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from antiphon.pipelines import weights
from antiphon.pipelines.local import thinker_model
from antiphon.pipelines.local.thinker import Thinker
from antiphon.pipelines.requests import GenerateRequest, Message, TextPart, Tool
from benchmarks.answers.asking import Heard, ask
from benchmarks.answers.checks import call_passes, passes
from benchmarks.machine import machine, table

HERE = Path(__file__).parent


def read(name: str, half: str) -> list[dict[str, Any]]:
    items = [json.loads(line) for line in (HERE / name).read_text().splitlines()]
    return [i for i in items if half in ("all", i["half"])]


def said(role: Any, text: str) -> Message:
    return Message(role, (TextPart(text),))


def converse(thinker: Thinker, item: dict[str, Any], tools: tuple[Tool, ...] = ()) -> Heard:
    """Say every turn of an item; the answer to the last one counts."""
    messages: list[Message] = []
    heard = Heard()
    for turn in item["say"]:
        messages.append(said("user", turn))
        heard = ask(
            thinker,
            GenerateRequest(
                id=item["id"],
                task="chat",
                terminals=("text", "audio"),
                messages=tuple(messages),
                conversation=item["id"],
                tools=tools,
            ),
        )
        messages.append(said("assistant", heard.text))
    return heard


def answers(thinker: Thinker, half: str, show: bool) -> None:
    kinds: dict[str, list[bool]] = {}
    first, whole, rate = [], [], []
    for item in read("requests.jsonl", half):
        heard = converse(thinker, item)
        thinker.forget(item["id"])
        good = passes(heard.text, item["check"])
        kinds.setdefault(item["kind"], []).append(good)
        first.append(heard.first_ms)
        whole.append(heard.total_ms)
        assert heard.result is not None
        made = heard.result.usage.completion_tokens
        if made > 1:
            rate.append(1e3 * (made - 1) / (heard.total_ms - heard.first_ms))
        if show and not good:
            print(f"  {item['id']} {item['say'][-1]} -> {heard.text!r}")
    total = [g for goods in kinds.values() for g in goods]
    rows = [(kind, f"{sum(goods)}/{len(goods)}") for kind, goods in kinds.items()]
    print(table(("kind", "right"), [*rows, ("all", f"{sum(total)}/{len(total)}")]))
    print(f"first token, prefix cached: median {statistics.median(first):.0f} ms, worst {max(first):.0f} ms")
    print(f"whole answer: median {statistics.median(whole):.0f} ms; {statistics.median(rate):.0f} tokens/s")


def calls(thinker: Thinker, half: str, show: bool) -> None:
    described = json.loads((HERE / "tools.json").read_text())
    right_tool = right_all = wanted = false_calls = unwanted = valid = made = 0
    first_call, first_text = [], []
    for item in read("tools.jsonl", half):
        tools = tuple(Tool(n, described[n]["description"], described[n]["parameters"]) for n in item["tools"])
        heard = converse(thinker, item, tools)
        thinker.forget(item["id"])
        name, arguments = (heard.calls[0][0], json.loads(heard.calls[0][1])) if heard.calls else (None, None)
        (first_call if heard.calls else first_text).append(heard.first_ms)
        made += bool(heard.calls)
        if arguments is not None and name is not None:
            valid += set(arguments) == set(described[name]["parameters"]["required"])
        good = call_passes(name, arguments, item)
        if item["call"]:
            wanted += 1
            right_tool += name == item["call"]
            right_all += good
        else:
            unwanted += 1
            false_calls += name is not None
        if show and not good:
            print(f"  {item['id']} {item['say'][-1]} wants {item['call']} -> {heard.calls or heard.text!r}")
    print(f"tool_choice auto: right tool {right_tool}/{wanted}, and right arguments {right_all}/{wanted};", end=" ")
    print(f"called without need {false_calls}/{unwanted}; arguments valid {valid}/{made}")
    for what, times in (("call", first_call), ("answer", first_text)):
        if times:
            print(f"first piece of a {what} with tools offered: median {statistics.median(times):.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.answers")
    parser.add_argument("--half", choices=("report", "tune", "all"), default="report")
    parser.add_argument("--model", default=thinker_model.DEFAULT)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    named = options.model in weights.CATALOG
    path = thinker_model.ensure(options.model) if named else Path(options.model)
    thinker = Thinker(path)
    thinker.warm_up()
    print(machine())
    print(f"model {thinker.engine.name} ({path.name}), half {options.half!r}, 1 thread, greedy")
    answers(thinker, options.half, options.show)
    calls(thinker, options.half, options.show)
    thinker.shut_down()


if __name__ == "__main__":
    main()
