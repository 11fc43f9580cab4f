"""Options as data: a msgspec struct declares them, `fields_of` lists them, `convert` checks their values. No I/O.

The command line, the environment, the job file and the documentation are made from `fields_of`.
"""

import datetime as dt
import types
import typing
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

from slurmddp.errors import UsageError
from slurmddp.text import quote_value, suggest

Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1, description=f"a whole number, 1 to {2**31 - 1}")]
Tasks = Annotated[int, msgspec.Meta(ge=1, le=9999, description="a whole number, 1 to 9999")]


def whole_text(pattern: str, description: str) -> msgspec.Meta:
    """Return the annotation of a text that matches the pattern as a whole."""
    return msgspec.Meta(pattern=rf"^({pattern})\Z", description=description)


class Option(msgspec.Struct, frozen=True):
    """The annotation of a field besides its type."""

    help: str
    short: str = ""
    """The short option, as sbatch's `-N`."""
    also: str = ""
    """A second long name."""
    metavar: str = ""
    group: str = ""
    """The heading of `--help-all` that begins with this option."""
    variable: str = ""
    """The environment variable of sbatch for this option."""


class Given(msgspec.Struct, frozen=True):
    """A raw value, and where it was given."""

    raw: Any
    origin: str


class Field(msgspec.Struct, frozen=True):
    """One option: a field of a struct with its annotation."""

    name: str
    type: Any
    bare: Any
    """The type without `Annotated` and `| None`."""
    default: Any
    option: Option
    group: str
    """The heading of `--help-all` above the option."""

    @property
    def key(self) -> str:
        """The name in a job file, and after `--`."""
        return self.name.replace("_", "-")

    @property
    def variables(self) -> tuple[str, ...]:
        """Our environment variables of a job option; that of its first name is the last, and beats the other."""
        return tuple(f"SLURMDDP_{name.upper()}" for name in (self.option.also, self.name) if name)

    @property
    def is_list(self) -> bool:
        """Whether the option may be given several times."""
        return typing.get_origin(self.bare) is tuple

    @property
    def is_switch(self) -> bool:
        """Whether the option takes no value."""
        return self.bare is bool

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words; empty when there is no such list."""
        return typing.get_args(self.bare) if typing.get_origin(self.bare) is Literal else ()

    @property
    def expected(self) -> str:
        """A description of the allowed values."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        return _meta(self.type, "description") or _WORDS.get(self.bare, "a list of strings")


_WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def fields_of(struct: type[msgspec.Struct]) -> dict[str, Field]:
    """Return the options of a struct by key, in their order; fields without an `Option` are left out."""
    found: dict[str, Field] = {}
    group = ""
    for info in msgspec.structs.fields(struct):
        for option in typing.get_args(info.type):
            if isinstance(option, Option):
                group = option.group or group
                field = Field(info.name, info.type, _bare(info.type), info.default, option, group)
                found[field.key] = field
    return found


def convert(field: Field, raw: Any, origin: str) -> Any:
    """Return `raw` as the field's type; a text becomes a number or a switch where the type is one.

    Raises UsageError with the value, its origin, and the allowed values.
    """
    if isinstance(raw, (dt.date, dt.time)):
        raise UsageError(f'{origin}: a date or a time is not {field.expected}; write it with quotes, as in "{raw}"')
    if type(raw) is int and _meta(field.type, "pattern"):  # as `time = 30` in a job file
        raw = str(raw)
    try:
        texts = raw if isinstance(raw, tuple) else (raw,)
        return msgspec.convert(raw, field.type, strict=not all(isinstance(text, str) for text in texts))
    except msgspec.ValidationError as error:
        example = ', as in ["a", "b"]' if field.is_list else ""
        raise UsageError(f"{origin}: {quote_value(raw)} is not {field.expected}{example}") from error


def unknown(key: str, allowed: Iterable[str], origin: str, *, what: str = "key") -> UsageError:
    """Return the error for a name that is not allowed, with similar names."""
    hint = suggest(key, allowed, "allowed are " + ", ".join(allowed), cutoff=0.6)
    return UsageError(f"{origin}: unknown {what} {quote_value(key)}; {hint}")


def _bare(annotation: Any) -> Any:
    """Return an annotation without `Annotated` and `| None`."""
    is_wrapped = typing.get_origin(annotation) in (Annotated, typing.Union, getattr(types, "UnionType", typing.Union))
    return _bare(typing.get_args(annotation)[0]) if is_wrapped else annotation


def _meta(annotation: Any, name: str) -> Any:
    """Return the first value of that name, as `description`, in the Meta of an annotation; None without one."""
    found = (
        getattr(item, name) if isinstance(item, msgspec.Meta) else _meta(item, name)
        for item in typing.get_args(annotation)
    )
    return next((value for value in found if value is not None), None)
