"""The cuts depend on the text alone, not on how it arrives, and never fall where they would be heard."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.pipelines.local.clauses import LONGEST, ClauseScanner, Cut


def cut(pieces: list[str], *, eager: bool = True, longest: int = LONGEST) -> list[Cut]:
    scanner, cuts = ClauseScanner(longest, eager), list[Cut]()

    def take() -> None:
        while True:
            if found := scanner.next():
                cuts.append(found)
            elif scanner.waiting:
                return

    for piece in pieces:
        scanner.push(piece)
        take()
    scanner.finish()
    take()
    assert scanner.pending == 0
    return cuts


def spoken(text: str, **options: bool) -> list[str]:
    return [one.said.text for one in cut([text], **options)]


TRAPS = (
    "Sure, I can help with that. It costs 3.14 euros or 1,5 €. Write to a.b@c.co.uk, please. Dr. Smith, e.g. J. K. Rowling, "
    'will see you at 10:30. No. 5 is at https://example.com/a.b?c=1,2. The U.S. is big. So do I. Really? "Yes!" he said. '
    "Wait... What? It is 5 p.m. now."
)
MARKDOWN = (
    "# Title\n\nA list:\n\n- first\n- second, with comma\n  * nested\n\n1. One\n2. Two\n\n```python\nx = 3.5\nprint('a. b')\n"
    "```\nSee [the docs. Really](https://example.com/a.b) and `f(a. B)`.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\n😀\n"
)
WRAPPED = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the\n"
    "age of foolishness, it was the epoch of belief.\nA new line begins here and is not very\nlong."
)


@pytest.mark.parametrize(
    "text", [TRAPS, MARKDOWN, WRAPPED, "Hi", "...", "😀", "1. ", "- ", "```\ncode", "a" * 400, "ab " * 150]
)
def test_every_split_gives_the_same_clauses(text: str) -> None:
    whole = cut([text])
    for at in range(1, len(text)):
        assert cut([text[:at], text[at:]]) == whole, (text[:at], text[at:])
    assert cut(list(text)) == whole


def test_traps_are_not_cut() -> None:
    assert spoken(TRAPS) == [
        "Sure, I can help with that.",
        "It costs 3.14 euros or 1.5 euros.",
        "Write to A dot B at C dot co dot uk, please.",
        "Dr. Smith, e.g. J. K. Rowling, will see you at 10:30.",
        "No. 5 is at example dot com slash A dot B.",
        "The U.S. is big.",
        "So do I.",
        "Really?",
        '"Yes!" he said.',
        "Wait...",
        "What?",
        "It is 5 p.m. now.",
    ]


def test_words_that_look_like_abbreviations_end_sentences() -> None:
    assert spoken("The dog sat. It saw the sun. We met on Sat. the first. I ate a fig. No. Say no. Yes.") == [
        "The dog sat.",
        "It saw the sun.",
        "We met on Sat. the first.",
        "I ate a fig.",
        "No.",
        "Say no.",
        "Yes.",
    ]


def test_markdown_is_spoken_line_by_line() -> None:
    assert spoken(MARKDOWN) == [
        "Title.",
        "A list:",
        "first.",
        "second, with comma.",
        "nested.",
        "1. One.",
        "2. Two.",
        "Here is some code.",
        "See the docs. Really and f(a. B).",
        "a, b.",
        "1, 2.",
        "quote.",
    ]


def test_wrapped_lines_are_one_text() -> None:
    assert spoken(WRAPPED, eager=False) == [
        "It was the best of times, it was the worst of times, it was the age of wisdom,",
        "it was the age of foolishness, it was the epoch of belief.",
        "A new line begins here and is not very.",
        "long.",
    ]


def test_first_clause_of_a_stream_is_short_and_others_are_whole() -> None:
    text = "Of course I can, but it depends on the weather. Of course I can, but it depends on the weather."
    assert spoken(text) == [
        "Of course I can,",
        "but it depends on the weather.",
        "Of course I can, but it depends on the weather.",
    ]
    assert spoken(text, eager=False) == ["Of course I can, but it depends on the weather."] * 2


TOKENS = [
    "Hello", "the", "and", "because", "x", "I", "3.14", "1,5", "10:30", "1,250.50", "$3.20", "5", "million", "€", "Dr.", "e.g.",
    "U.S.", "p.m.", "No.", "a@b.co", "john.doe@example.com", "https://x.org/a?b=1.2,3", "www.example.com", "end.", "end!",
    "why?", "so,", "well;", "—", "-", "**bold**", "`a.b()`", "[t. T](http://u.v)", "😀",
    "café", "...", "(see", "it)", "1.", "#", "C++",
]  # fmt: skip
WHOLE = re.compile(r"\d[\d.,:]*\d|\S+@\S+\.\S+\w|https?://\S+\w|www\.\S+\w|`a\.b\(\)`|\[t\. T\]\(http://u\.v\)")
SHORT = re.compile(r"\b(?:Dr\.|e\.g\.|No\.(?= \d)|U\.S\.)(?=[ ]+\S)")
texts = st.lists(
    st.tuples(st.sampled_from(TOKENS), st.sampled_from([" ", " ", " ", " ", "\n", "\n\n", "  "])), max_size=40
).map(lambda pairs: "".join(token + blank for token, blank in pairs))


@settings(max_examples=150, deadline=None)
@given(texts, st.data(), st.booleans())
@example("No. 5", None, True)
def test_any_text_split_anywhere(text: str, data: st.DataObject | None, eager: bool) -> None:
    whole = cut([text], eager=eager)
    if data is not None:
        places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
        pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        assert cut(pieces, eager=eager) == whole
    assert cut(list(text), eager=eager) == whole
    ends = {one.end for one in whole}
    for found in (*WHOLE.finditer(text), *SHORT.finditer(text)):
        inside = set(range(found.start() + 1, found.end())) | ({found.end()} if SHORT.fullmatch(text, *found.span()) else set())
        assert not inside & ends, (found.group(), whole)
    at = 0
    for one in whole:
        assert at <= one.start < one.end <= len(text)
        skipped = re.sub(r"[^\w]", "", text[at : one.start])
        assert not skipped, f"lost: {text[at : one.start]!r}"
        at = one.end
    assert not re.sub(r"\W", "", text[at:])


def test_a_clause_is_never_longer_than_asked() -> None:
    for text in ("word " * 300, "many, " * 300, "a" * 900, "1234567890 " * 90):
        for longest in (30, LONGEST):
            lengths = [one.end - one.start for one in cut([text], longest=longest, eager=False)]
            assert max(lengths) <= longest + 12, (text[:10], longest)
            assert sum(lengths) >= len(text.replace(" ", "")) * 0.9


@pytest.mark.parametrize("unit", ["A fox jumps over the dog, and sleeps. ", "a", "😀", "\n", "```\nx\n", "[", "1. ", "- "])
def test_a_megabyte_is_bounded_work_a_call(unit: str) -> None:
    """Each call looks at a window, whatever waits behind it, and passes over at most so many silent characters."""
    scanner = ClauseScanner(eager=False)
    scanner.push(unit * (1_000_000 // len(unit)))
    scanner.finish()
    for _ in range(60):
        before = scanner.pending
        scanner.next()
        assert 0 < before - scanner.pending <= 4096
        assert len(scanner._text) <= 4096


@pytest.mark.parametrize(
    ("waiting", "flushed"),
    [
        ("The weather in Lon", "The weather in"),
        ("The weather in London", "The weather in"),
        ("The weather ", "The weather"),
        ("Hello there. ", "Hello there."),
        ("Hello there.", "Hello there."),
        ("Hello there!", "Hello there!"),
        ("It costs 3.", "It costs"),
        ("It costs 3", "It costs"),
        ("It costs 3 ", "It costs"),
        ("Ask Dr. ", "Ask"),
        ("Ask Dr.", "Ask"),
        ("Write to a@b.", "Write to"),
        ("See https://example.", "See"),
        ("Fruit, e.g.", "Fruit,"),
        ("Hello", None),
        ("3 ", None),
        ("- ", None),
        ("``", None),
        ("See [the do", "See"),
        ("", None),
    ],
)
def test_flush_gives_whole_words_only(waiting: str, flushed: str | None) -> None:
    scanner = ClauseScanner()
    scanner.push(waiting)
    assert scanner.next() is None
    found = scanner.flush()
    assert (found and waiting[found.start : found.end]) == flushed


def test_flush_of_the_whole_for_a_tool_call() -> None:
    scanner = ClauseScanner()
    scanner.push("Let me look")
    found = scanner.flush(whole=True)
    assert found is not None and found.said.text == "Let me look,"
    assert scanner.pending == 0
