"""Numbers, measures and signs against what a person says, written out by hand: each was misread once by the voice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.pipelines.local.clauses import ClauseScanner
from antiphon.pipelines.local.speakable import speakable


def said(source: str) -> str:
    result = speakable(source, line_start=False)
    assert result is not None
    assert len(result.word_ends) == len(result.text.split())
    return result.text.rstrip(",")


@pytest.mark.parametrize(
    ("source", "spoken"),
    [
        # telephone numbers and digit strings, also before a full stop
        ("Call 555-1234.", "Call 5 5 5, 1 2 3 4."),
        ("Call (555) 123-4567.", "Call 5 5 5, 1 2 3, 4 5 6 7."),
        ("Call 1-800-555-1234 now", "Call 1, 8 0 0, 5 5 5, 1 2 3 4 now"),
        ("Call +44 20 7946 0958.", "Call plus 4 4, 2 0, 7 9 4 6, 0 9 5 8."),
        ("Call 911.", "Call 9 1 1."),
        ("The code is 007.", "The code is 0 0 7."),
        ("It grew +5 to 10.", "It grew +5 to 10."),
        # dates
        ("On 25.12.2024 we rest.", "On 2024-12-25 we rest."),
        ("On 2024/03/05.", "On 2024-03-05."),
        ("On 3/4.", "On March 4."),
        ("Mon, 3 Jun", "Monday, 3 Jun"),
        ("Dec 2024", "December 2024"),
        ("May 3-5", "May 3 to 5th"),
        ("At 2024-03-05T10:30:00Z.", "At 2024-03-05, 10:30."),
        # clocks, ranges, ratios
        ("9am-5pm", "9 A.M to 5 P.M"),
        ("9:00-17:00", "9:00 to 17:00"),
        ("pages 10-20.", "pages 10 to 20."),
        ("$5-10", "5 to $10"),
        ("10%–20%", "10% to 20%"),
        ("1.5-2.5 hours", "1.5 to 2.5 hours"),
        ("Monday-Friday", "Monday to Friday"),
        ("The score was 3:2.", "The score was 3 to 2."),
        ("At 10:30.", "At 10:30."),
        ("1-800-FLOWERS", "1-800-FLOWERS"),
        ("COVID-19 and F-16", "COVID-19 and F-16"),
        # differences and fractions
        ("5 - 3 = 2", "5 minus 3 = 2"),
        ("5-3=2", "5 minus 3=2"),
        ("2 − 1", "2 minus 1"),
        ("What is 12 - 5?", "What is 12 minus 5?"),
        ("x - 1 and 5 - x", "x minus 1 and 5 minus x"),
        ("Item 5 - a thing", "Item 5 — a thing"),
        ("10 / 2 = 5", "10 divided by 2 = 5"),
        ("7/16 inch", "7 sixteenths inch"),
        ("Take 1/2.", "Take one half."),
        ("2 1/2 cups", "2 and a half cups"),
        ("1½ cups and ⅔", "1 and a half cups and 2 thirds"),
        ("Open 24/7.", "Open 24 7."),
        ("I give it 8/10.", "I give it 8 out of 10."),
        ("22/7", "22 over 7"),
        ("It was 12/25.", "It was December 25."),
        # decimals and powers
        ("USB 3.0", "USB 3 point 0"),
        ("GPT-3.5 and v2.0", "GPT-3 point 5 and v2 point 0"),
        ("It is 3.14, or $2.50.", "It is 3.14, or $2.50."),
        ("v1.2.3-beta", "v1 dot 2 dot 3-beta"),
        ("€1.234,56", "€1,234.56"),
        ("10⁶ and x^2", "10 to the power of 6 and x squared"),
        ("1 000 000 and 1'000 and 3.000", "1,000,000 and 1,000 and 3,000"),
        ("card 4111 1111 1111 1111", "card 4 1 1 1, 1 1 1 1, 1 1 1 1, 1 1 1 1"),
        ("On 9-10-2024.", "On 9/10/2024."),
        ("June 3-July 5, 1st-3rd, 20k-30k", "June 3 to July 5, 1st to 3rd, 20k to 30k"),
        ("1/4-1/2 cup or 2-1/2 cups", "1 quarter to one half cup or 2 and a half cups"),
        ("Psalm 23:1-4", "Psalm 23:1-4"),
        # mathematics as a model writes it
        ("So $E = mc^2$ holds.", "So E = mc squared holds."),
        ("It costs $5 and a = b is $6.", "It costs $5 and a = b is $6."),
        (r"It is \(\frac{1}{x} \times 3\).", "It is 1 over x times 3."),
        (r"It is \[\sqrt{9} \leq 4\] here.", "It is root of 9 at most 4 here."),
        # measures and money
        ("5 L, 3 m², 12 Ω, 1 g", "5 liters, 3 square meters, 12 ohms, 1 gram"),
        ("9.8 m/s²", "9.8 meters per second squared"),
        ("5 μm", "5 micrometers"),
        ("5'11\" tall", "5 foot 11 tall"),
        ("It lasted 2h 30m.", "It lasted 2 hours 30 minutes."),
        ("$3/kg or $5/month", "$3 per kilogram or $5 per month"),
        ("/usr/share/python3/html", "/usr/share/python3/html"),
        ("2x faster, 3x3", "2 times faster, 3 by 3"),
        ("y = 2x + 1", "y = 2x + 1"),
        ("US$20, 20 USD, -$5", "20 US dollars, 20 US dollars, minus $5"),
        ("€1.5bn", "€1.5 billion"),
        ("~20%", "about 20%"),
        ("It took 0.2s, then 5 s, in the 80s", "It took 0.2 seconds, then 5 seconds, in the 80s"),
        ("20 ℃ at 6 ft 2 in", "20°C at 6 ft 2 inches"),
        ("US$20 million, CHF 20, ₽100", "$20 million, 20 Swiss francs, 100 rubles"),
        ("at 5.30pm", "at 5:30 P.M"),
        ("6.02e23", "6.02 times 10 to the power of 23"),
        ("read / write the .env, Figure IV", "read slash write the dot env, Figure 4"),
        # signs, files, short forms
        ("if x == 5 && y != 3", "if x equals 5 and y is not 3"),
        ("Open main.py at openai.com/docs.", "Open main dot py at openai dot com slash docs."),
        ("It stops here. Then e.g. this.", "It stops here. Then e.g. this."),
        ("wait - no", "wait — no"),
        ("α and CO₂", "alpha and C O 2"),
        ("See p. 12 and ext. 3.", "See page 12 and extension 3."),
        ("the XIX century", "the 19th century"),
        # capitals for stress, but not where all is capitals
        ("You HAVE to, DON'T wait.", "You have to, don't wait."),
        ("YOU HAVE TO.", "YOU HAVE TO."),
    ],
)
def test_said_as_a_person_says_it(source: str, spoken: str) -> None:
    assert said(source) == spoken


@pytest.mark.parametrize(
    "text",
    ["You can reach us at (555) 123-4567.", "Please have a look at p. 12 today.", "Compute for me 125 - 30 now."],
)
def test_no_clause_ends_inside_a_number_or_before_one(text: str) -> None:
    scanner = ClauseScanner()
    scanner.push(text)
    scanner.finish()
    clauses = []
    while cut := scanner.next():
        clauses.append(text[cut.start : cut.end])
    number = next(n for n in ("(555) 123-4567", "p. 12", "125 - 30") if n in text)
    assert any(number in clause for clause in clauses)


_PIECES = [
    "12",
    "007",
    "2024",
    "٣",
    "-",
    "–",
    "−",
    "/",
    ":",
    ".",
    " ",
    "$",
    "US$",
    "₽",
    "½",
    "²",
    "⁶",
    "x",
    "km",
    "pm",
    "α",
    "p.",
]


@given(st.lists(st.sampled_from([*_PIECES, "==", "May 3", "a@b.co", "www.a.com/b", "+1 555 123 4567", "1️⃣"]), max_size=10))
@settings(max_examples=400, deadline=None)
def test_words_are_said_in_the_order_of_the_source(pieces: list[str]) -> None:
    source = "".join(pieces)
    result = speakable(source)
    if result is not None:
        assert len(result.word_ends) == len(result.text.split())
        assert list(result.word_ends) == sorted(result.word_ends)
        assert result.word_ends[-1] <= len(source)


def test_each_end_of_a_range_has_its_own_place() -> None:
    result = speakable("pages 10-20 now")
    assert result is not None
    assert result.text.split()[:4] == ["pages", "10", "to", "20"]
    assert result.word_ends[:4] == (5, 8, 9, 11)
