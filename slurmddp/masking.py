"""Keeps secrets off the terminal: what looks like one by its name is shown without its value. No I/O."""

import re
from typing import Any, Final

MASK: Final = "***"

_WORDS: Final = (
    "TOKEN|KEY|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|PWD|PAT|AUTH|AUTHORIZATION|BEARER|CREDENTIALS?|CREDS"
    "|APIKEY|JWT|DSN"
)
_ENDINGS: Final = "TOKEN|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|APIKEY|ACCESSKEY|SECRETKEY"
_SECRET: Final = rf"(?i)(^|[_-])({_WORDS})([_-]|$)|({_ENDINGS})$"
_NAMED: Final = r"(?<![\w-])([\w-]+)(?![\w./-])[\s=:]*(?=[^\s=:])"
_IN_ADDRESS: Final = r"(?<=://)([^/\s:@]*:)?[^/\s]+(?=@)"
_NO_SECRETS: Final = frozenset({"PWD", "OLDPWD"})


def is_secret(name: str) -> bool:
    """Tell by its name whether a variable or an option holds a secret: HF_TOKEN does, TOKENIZERS_PARALLELISM not."""
    return name not in _NO_SECRETS and re.search(_SECRET, name.lstrip("-")) is not None


def masked(value: Any) -> Any:
    """Return a value of a job as it may be shown: of a text nothing that stands behind the name of a secret.

    Of several words also not the one behind a secret's option. Rather too little of a text is shown than too much.
    """
    if isinstance(value, dict):
        return {key: MASK if is_secret(str(key)) else masked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        before = ("", *value)
        return type(value)(_after(last, item) for last, item in zip(before, value, strict=False))
    return _in_text(value) if isinstance(value, str) else value


def _after(last: Any, item: Any) -> Any:
    awaited = isinstance(last, str) and last.startswith("-") and "=" not in last and is_secret(last)
    return MASK if awaited and not str(item).startswith("-") else masked(item)


def _in_text(text: str) -> str:
    text = re.sub(_IN_ADDRESS, rf"\1{MASK}", text)
    named = next((found for found in re.finditer(_NAMED, text) if is_secret(found[1])), None)
    return text[: named.end()] + MASK if named else text
