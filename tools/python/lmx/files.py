"""The error of this package, JSON as lmx writes it, and rows as frames."""
import difflib
import importlib
import json
from pathlib import Path

_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_FRAMES = ("pandas", "polars", "list")


class LmxError(ValueError):
    """A file that is missing or damaged, or a name that does not exist. The message names both."""


def nearest(name, known):
    """Returns " (did you mean 'x'?)" for the known name that resembles `name`, or ""."""
    close = difflib.get_close_matches(str(name), [str(k) for k in known], 1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def choose(name, known, what):
    """Returns `name` if it is one of the names `known`. LmxError: it is not; `what` is the start of the message."""
    if name in known:
        return name
    some = ", ".join(str(k) for k in list(known)[:20]) or "none"
    raise LmxError(f"{what} '{name}'{nearest(name, known)}; there are: {some}{', ...' if len(known) > 20 else ''}")


def package(name, needed_for, install=None):
    """Imports an optional package. LmxError: it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise LmxError(f"{needed_for} needs the package {name}: pip install {install or name}") from e


def _special(value):
    """JSON has no NaN and no infinities; lmx writes them as strings."""
    if isinstance(value, str):
        return _NUMBERS.get(value, value)
    if isinstance(value, list):
        return [_special(v) for v in value]
    if isinstance(value, dict):
        return {k: _special(v) for k, v in value.items()}
    return value


def text_of(path):
    """Returns the text of a file. LmxError: it cannot be read; the message names the nearest file of the folder."""
    path = Path(path)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as e:
        parent = path.parent
        while not parent.is_dir():
            path, parent = parent, parent.parent
        raise LmxError(f"{path} does not exist{nearest(path.name, [p.name for p in parent.iterdir()])}") from e
    except (OSError, UnicodeDecodeError) as e:
        raise LmxError(f"{path} cannot be read: {e}") from e


def parse(text, path):
    """Returns the value of a JSON text. LmxError: it is damaged."""
    try:
        return _special(json.loads(text))
    except ValueError as e:
        raise LmxError(f"{path} is damaged: {e}") from e


def json_of(path):
    return parse(text_of(path), path)


def json_lines(path, keys):
    """Returns the objects of a file with one in each line. An incomplete last line, which lmx is writing or was killed
    while writing, is left out. LmxError: another line is no object with these keys."""
    lines = text_of(path).split("\n")[:-1]
    for number, line in enumerate(lines, 1):
        value = parse(line, f"{path}:{number}")
        if not isinstance(value, dict) or not set(keys) <= value.keys():
            raise LmxError(f"{path}:{number} is damaged: it is no object with {' and '.join(keys)}")
        yield value


def flat(value, path="", separator="/"):
    """Returns the leaves of nested dicts as one dict: {"a": {"b": 1}} as {"a/b": 1}."""
    if not isinstance(value, dict):
        return {path: value}
    leaves = {}
    for key, inner in value.items():
        leaves.update(flat(inner, f"{path}{separator}{key}" if path else str(key), separator))
    return leaves


def with_numbers(places):
    """Returns places (dicts from axis to text) in which the values of an axis are numbers if all of them are."""
    def values(texts):
        for kind in (int, float):
            try:
                return [kind(t) for t in texts]
            except ValueError:
                pass
        return texts
    columns = {axis: values([p[axis] for p in places]) for axis in (places[0] if places else ())}
    return [{axis: column[i] for axis, column in columns.items()} for i in range(len(places))]


def table(rows, kind="pandas"):
    """Returns rows (dicts) as a table: "pandas" or "polars", or "list" for the rows themselves. The columns are the keys
    in the order in which they first occur; a value that a row lacks is missing (NaN or null)."""
    choose(kind, _FRAMES, "there is no kind of frame")
    if kind == "list":
        return rows
    library = package(kind, f"frame='{kind}'")
    columns = {key: [row.get(key) for row in rows] for key in dict.fromkeys(k for row in rows for k in row)}
    return library.DataFrame(columns, strict=False) if kind == "polars" else library.DataFrame(columns)
