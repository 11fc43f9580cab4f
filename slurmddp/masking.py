"""Keeps secrets off the terminal: what looks like one by its name is shown without its value. No I/O."""

import re
from typing import Any, Final

MASK: Final = "***"

_WORDS: Final = "TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|APIKEY|JWT|DSN"
_SECRET: Final = re.compile(rf"(^|[_-])({_WORDS})([_-]|$)|(TOKEN|SECRET|PASSWORD|PASSWD|APIKEY)$", re.IGNORECASE)
_ASSIGNED: Final = re.compile(r"""([A-Za-z_][\w-]*)=('[^']*'|"[^"]*"|[^\s;&|]+)""")
_IN_ADDRESS: Final = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]+(?=@)")
_NO_SECRETS: Final = frozenset({"PWD", "OLDPWD"})


def is_secret(name: str) -> bool:
    """Tell by its name whether a variable or an option holds a secret: HF_TOKEN does, TOKENIZERS_PARALLELISM not."""
    return name not in _NO_SECRETS and _SECRET.search(name.lstrip("-")) is not None


def masked(value: Any) -> Any:
    """Return a value of a job as it may be shown: `NAME=VALUE` without VALUE where NAME is that of a secret."""
    if isinstance(value, tuple):
        return tuple(masked(item) for item in value)
    return _in_text(value) if isinstance(value, str) else value


def masked_variables(items: tuple[str, ...]) -> tuple[str, ...]:
    """Return `KEY=VALUE` items as they may be shown, whatever a secret's value is made of."""
    return tuple(_variable(item) for item in items)


def masked_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command's words as they may be shown, with no word of a secret's after its option either."""
    before = ("", *words)
    return tuple(
        MASK if _awaits(last) and not word.startswith("-") else _variable(word)
        for last, word in zip(before, words, strict=False)
    )


def _variable(item: str) -> str:
    key, equals, _ = item.partition("=")
    return f"{key}={MASK}" if equals and is_secret(key) else masked(item)


def _awaits(word: str) -> bool:
    return word.startswith("--") and "=" not in word and is_secret(word)


def _in_text(text: str) -> str:
    text = _IN_ADDRESS.sub(rf"\1:{MASK}", text)
    return _ASSIGNED.sub(lambda found: f"{found[1]}={MASK}" if is_secret(found[1]) else found[0], text)
