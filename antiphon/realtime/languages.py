"""ISO 639-1 codes and the English names that transcripts carry, as Whisper knows them (openai/whisper, tokenizer.py)."""

from __future__ import annotations

from typing import Final

_TABLE: Final = """
af afrikaans|am amharic|ar arabic|as assamese|az azerbaijani|ba bashkir|be belarusian|bg bulgarian|bn bengali|bo tibetan
br breton|bs bosnian|ca catalan|cs czech|cy welsh|da danish|de german|el greek|en english|es spanish|et estonian|eu basque
fa persian|fi finnish|fo faroese|fr french|gl galician|gu gujarati|ha hausa|haw hawaiian|he hebrew|hi hindi|hr croatian
ht haitian creole|hu hungarian|hy armenian|id indonesian|is icelandic|it italian|ja japanese|jw javanese|ka georgian
kk kazakh|km khmer|kn kannada|ko korean|la latin|lb luxembourgish|ln lingala|lo lao|lt lithuanian|lv latvian|mg malagasy
mi maori|mk macedonian|ml malayalam|mn mongolian|mr marathi|ms malay|mt maltese|my myanmar|ne nepali|nl dutch|nn nynorsk
no norwegian|oc occitan|pa punjabi|pl polish|ps pashto|pt portuguese|ro romanian|ru russian|sa sanskrit|sd sindhi
si sinhala|sk slovak|sl slovenian|sn shona|so somali|sq albanian|sr serbian|su sundanese|sv swedish|sw swahili|ta tamil
te telugu|tg tajik|th thai|tk turkmen|tl tagalog|tr turkish|tt tatar|uk ukrainian|ur urdu|uz uzbek|vi vietnamese
yi yiddish|yo yoruba|yue cantonese|zh chinese
"""
NAMES: Final = {
    code: name for line in _TABLE.strip().splitlines() for code, _, name in (e.partition(" ") for e in line.split("|"))
}
"""Code -> English name, in lower case."""

_CODES: Final = {name: code for code, name in NAMES.items()}


def name_of(code: str) -> str:
    """ "en" -> "english"; an unknown code stays as it is."""
    return NAMES.get(code, code)


def code_of(given: str) -> str | None:
    """A code, a code with a region ("en-US") or an English name -> the code; None when it is not known."""
    low = given.strip().lower()
    base = low.replace("_", "-").partition("-")[0]
    return low if low in NAMES else base if base in NAMES else _CODES.get(low)
