"""The base class of all settings, and readable messages for invalid ones."""

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

Table = dict[str, Any]

_SHOWN = 3  # methods or networks that have a key
_NEAR = 0.75  # similarity (difflib) above which a key counts as misspelled


class Settings(BaseModel):
    """Immutable, validated settings: wrong types, values out of range and unknown keys raise."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def explain(error: ValidationError, settings: type[BaseModel], table: Table) -> str:
    """Describe every problem in one line: the key, its value, and what is allowed.

    Args:
        error: raised when ``table`` was validated.
        settings: the class that it was validated against.
        table: the input.
    """
    texts: dict[str, str] = {}
    for problem in error.errors():
        key = _name_key(problem["loc"], table)
        message = problem["msg"].removeprefix("Value error, ")
        message = message[0].lower() + message[1:].replace("valid tuple", "list")  # as in TOML
        if problem["type"] == "missing":
            texts[key] = _explain_missing(key, problem)
        elif problem["type"] == "union_tag_invalid":
            tag, known = problem["ctx"]["tag"], problem["ctx"]["expected_tags"]
            advice = suggest(tag, (name.strip(" '") for name in known.split(",")))
            texts[key] = f"{key}.name = {tag!r}: there is no such name{advice} ({known})"
        elif problem["type"] == "union_tag_not_found":
            texts[key] = f"{key}.name is missing"
        elif problem["type"] == "extra_forbidden":
            others = _list_owners(key, settings)
            advice = _suggest_key(key, list(_list_keys(settings, table)), others)
            texts[key] = f"{key} = {problem['input']!r}: unknown key{advice}"
        elif problem["type"] == "model_type" and isinstance(problem["loc"][-1], int):
            texts[key] = f"{key}: write each of them as a section [[{key}]]"
        elif problem["type"] == "model_type":
            texts[key] = f"{key} = {problem['input']!r}: is a section; set {key}.… in it"
        elif problem["type"] == "tuple_type" and isinstance(problem["input"], dict):
            texts[key] = f"{key}: write each of them as a section [[{key}]]"
        elif key in texts:  # another member of a union
            texts[key] += f" or {message.removeprefix('input should be ')}"
        elif not key:  # sections that do not fit together
            texts[key] = message
        elif isinstance(problem["input"], dict):
            texts[key] = f"{key}: {message}"
        else:
            texts[key] = f"{key} = {problem['input']!r}: {message}"
    return "; ".join(texts.values())


def _explain_missing(key: str, problem: ErrorDetails) -> str:
    """Describe a key without a value, or with fewer than it needs."""
    last = problem["loc"][-1]
    return (
        f"{key} = {problem['input']!r}: give {last + 1} values"
        if isinstance(last, int)
        else f"{key} is missing"
    )


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests a similar name; empty if there is none."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _suggest_key(key: str, known: list[str], others: dict[str, list[str]]) -> str:
    """Return the end of a message: the key that was probably meant, or all keys of the section.

    Args:
        key: what there is not.
        known: all keys that there are.
        others: keys of the section if it had another name → those names.
    """
    section, _, last = key.rpartition(".")
    here = [_last_part(other) for other in known if other.rpartition(".")[0] == section]
    close = difflib.get_close_matches(last, here, n=1, cutoff=_NEAR)
    if close and last not in others:
        return f"; did you mean {'.'.join(filter(None, (section, close[0])))!r}?"
    meant_there = difflib.get_close_matches(last, others, n=1, cutoff=_NEAR)
    if meant_there:
        names = list(map(repr, others[meant_there[0]]))
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        settings = ", ".join(key for key in here if key != "name")
        return (
            f"; {meant_there[0]} is a setting of {section}.name = {' or '.join(names[:_SHOWN])}"
            f"{more}; the one chosen has {settings or 'none'}"
        )
    elsewhere = difflib.get_close_matches(last, map(_last_part, known), n=1, cutoff=_NEAR)
    meant = [repr(other) for other in known if _last_part(other) in elsewhere]
    meant = meant or [repr(other) for other in known if last in _last_part(other).split("_")]
    if meant:
        return f"; did you mean {' or '.join(meant)}?"
    there = f"{section} has" if section else "there are"
    return f"; {there} {', '.join(here)}" if here else ""


def _list_owners(key: str, settings: type[BaseModel]) -> dict[str, list[str]]:
    """Return the keys that the section of ``key`` has under any name → these names."""
    field = settings.model_fields.get(_last_part(key.rpartition(".")[0]))
    owners: dict[str, list[str]] = {}
    for kind in get_args(field.annotation) if field else ():
        if isinstance(kind, type) and issubclass(kind, BaseModel) and "name" in kind.model_fields:
            for each in kind.model_fields:
                owners.setdefault(each, []).append(str(kind.model_fields["name"].default))
    return owners


def _last_part(key: str) -> str:
    return key.rpartition(".")[2]


def _name_key(location: tuple[int | str, ...], table: Table) -> str:
    """Return the dotted key of a location, without the tags that pydantic adds for unions."""
    keys: list[str] = []
    inside: Any = table
    for number, part in enumerate(location, start=1):
        if isinstance(inside, list) and isinstance(part, int):
            if part >= len(inside) or not isinstance(inside[part], dict):
                break
            keys.append(str(inside[part].get("name", part)))
            inside = inside[part]
        elif not isinstance(inside, dict):
            break
        elif part in inside or part != inside.get("name") or number == len(location):
            keys.append(str(part))
            inside = inside.get(part)
    return ".".join(keys)


def _list_keys(settings: type[BaseModel], table: Table, prefix: str = "") -> Iterator[str]:
    """Yield all valid keys, given the methods, networks and rows that ``table`` names."""
    for key, field in settings.model_fields.items():
        yield prefix + key
        inside = table.get(key)
        for kind in (field.annotation, *get_args(field.annotation)):
            if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
                continue
            if isinstance(inside, list):
                for number, each in enumerate(inside):
                    if isinstance(each, dict):
                        inner_prefix = f"{prefix}{key}.{each.get('name', number)}."
                        yield from _list_keys(kind, each, inner_prefix)
            else:
                inner = inside if isinstance(inside, dict) else {}
                name = kind.model_fields.get("name")
                if name is None or name.default == inner.get("name"):
                    yield from _list_keys(kind, inner, f"{prefix}{key}.")
