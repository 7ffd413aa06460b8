"""Varied prompts for parity: short and long, chat and raw, code, CJK, emoji, numbers, repetition."""

from collections.abc import Mapping, Sequence

Conversation = Sequence[Mapping[str, str]]


def _user(text: str) -> Conversation:
    return ({"role": "user", "content": text},)


CONVERSATIONS: tuple[Conversation, ...] = (
    _user("What is the capital of Sweden?"),
    _user("Write a haiku about a water mill."),
    _user("用中文介绍一下北京。"),
    _user("日本の首都はどこですか？"),
    _user("Repeat after me: 🙂🚀🌾"),
    _user("List three prime numbers larger than ten."),
    _user("Translate to French: the mill grinds slowly."),
    _user("def fibonacci(n):\n    # complete this function\n"),
    _user("Count: 1, 2, 3, 4, 5, 6, 7,"),
    ({"role": "system", "content": "You answer in one word."}, *_user("Is the sky blue?")),
    (
        *_user("My name is Ada."),
        {"role": "assistant", "content": "Nice to meet you, Ada."},
        *_user("What is my name?"),
    ),
    _user("Summarise: " + "The stone turns, the grain is ground, and the flour falls. " * 24),
)

TEXTS: tuple[str, ...] = (
    "The",
    "Once upon a time, in a small village by the river,",
    "import numpy as np\n\ndef softmax(x):\n",
    "1 1 2 3 5 8 13 21 34",
    "The quick brown fox jumps over the lazy dog. " * 6,
    "Café, naïve, Ångström, Übermut, ñandú:",
    "SELECT name, count(*) FROM mills WHERE",
    "Q: How many legs does a spider have?\nA:",
    "北京是中国的首都，",
    '{"name": "Ada", "born": 1815, "known_for":',
    "To be, or not to be, that is the question:",
    "The mill wheel turns because the river runs, and the river runs because " * 20,
)
