"""What is given to the voice to read (field notes 3.16: markdown, decimals, addresses, emoji that were read out or lost)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.pipelines.local.speakable import foreign_script, speakable


def said(source: str, **where: bool) -> str | None:
    result = speakable(source, **where)
    return None if result is None else result.text


@pytest.mark.parametrize(
    ("source", "spoken"),
    [
        # left to the voice's own normaliser
        ("It is 3.14 now.", "It is 3.14 now."),
        ("Dr. Smith comes at 10:30.", "Dr. Smith comes at 10:30."),
        ("That is $3.20, e.g. 1,250 people.", "That is $3.20, e.g. 1,250 people."),
        # numbers and money as written elsewhere
        ("It costs 1,5 € now.", "It costs 1.5 euros now."),
        ("Only 1 €.", "Only 1 euro."),
        ("Pay 10 $ or 5£.", "Pay 10 dollars or 5 pounds."),
        ("About 1.000.000 people.", "About 1,000,000 people."),
        ("Steps 1,2,3 end.", "Steps 1,2,3 end."),
        ("Ping 192.168.0.1 now.", "Ping 192 dot 168 dot 0 dot 1 now."),
        ("2*3 or 4 × 5.", "2 times 3 or 4 times 5."),
        # addresses
        ("Write to a@b.co.", "Write to A at B dot co."),
        ("Ask john.doe@my-host.co.uk, please.", "Ask john dot doe at my dash host dot co dot uk, please."),
        ("See https://www.example.com/a-b/c?q=1#x.", "See example dot com slash A B slash C."),
        ("See <https://example.com>.", "See example dot com."),
        # markdown
        ("**Bold** and *it* and __u__ and `code` and ~~old~~.", "Bold and it and u and code and old."),
        ("See [the docs](https://x.y/z_(a)), page [2].", "See the docs, page."),
        ("[word](/fˈeɪk/) is text.", "word is text."),
        ("![a cat](cat.png)", "a cat,"),
        ("# A title", "A title,"),
        ("> quoted", "quoted,"),
        ("- [x] done", "done,"),
        ("2. second", "2. second,"),
        ("| a | b |", "a, b,"),
        ("a<br>b &amp; c &lt; d", "a b & c < d,"),
        (r"\*not bold\*.", "not bold."),
        ("snake_case stays.", "snake_case stays."),
        # pictures
        ("I'm 😀 happy 👩‍👩‍👧 🇩🇪!", "I'm happy!"),
        ("Press 1️⃣ now.", "Press 1 now."),
        ("-5 °C ± 2", "-5 °C ± 2,"),
        ("Really?!! Well!!!!", "Really?! Well!"),
    ],
)
def test_what_is_said(source: str, spoken: str) -> None:
    assert said(source) == spoken


@pytest.mark.parametrize(
    "source", ["", "  \n ", "😀🎉", "...", "?!", "---", "|---|:-:|", "**", "``", "👩‍👩‍👧", "\u200b", "***"]
)
def test_nothing_to_say(source: str) -> None:
    assert said(source) is None


def test_line_of_its_own_ends_like_a_sentence() -> None:
    assert said("# A title", line_end=True) == "A title."
    assert said("- item", line_end=True) == "item."


def test_marks_are_only_looked_for_where_a_line_begins() -> None:
    assert said("- 5 is less", line_start=False) == "- 5 is less,"


def test_every_word_knows_where_it_was_said() -> None:
    source = "Pay **1,5 €** to a@b.co 😀 soon."
    result = speakable(source, 100)
    assert result is not None
    words = result.text.split()
    assert len(words) == len(result.word_ends)
    ends = {word: source[: end - 100] for word, end in zip(words, result.word_ends, strict=True)}
    assert ends["Pay"] == "Pay"
    assert ends["1.5"] == "Pay **1,5"
    assert ends["euros"] == "Pay **1,5 €"
    assert ends["co"] == "Pay **1,5 €** to a@b.co"
    assert ends["soon."] == source


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from([*"ab1,.€$@:/-*_`#|>[]()!? \n<&;~^\\", "😀", "é", "中", "\u200d", "²"]), max_size=60))
def test_any_text_is_survived_with_its_places(source: str) -> None:
    result = speakable(source, 7)
    if result is not None:
        assert len(result.text.split()) == len(result.word_ends)
        assert all(7 < end <= 7 + len(source) for end in result.word_ends)
        assert list(result.word_ends) == sorted(result.word_ends)


def test_foreign_script_is_named() -> None:
    assert foreign_script("Привет, мир") == "Cyrillic"
    assert foreign_script("你好") == "Cjk"
    assert foreign_script("Hello Привет") == ""
    assert foreign_script("123 !") == ""
