"""Tables that pandas pickled, read without pandas and without running anything a pickle may hold.

A pickle is a program: it names functions, and unpickling calls them. Here every name it may use stands for a small class or
function of this file, which keeps the data it is given; any other name is an error. So nothing of numpy, pandas or the system
is ever called by the file, and tables written by any version of pandas since 0.15 can be read, Python 2's among them.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ig2._utils.files import check_regular
from ig2.errors import InputError, reason

PLAIN = re.compile(r"([?biufcSUMm]\d*|O8?)(\[\w+\])?")


def read_frame(path: str | PathLike[str]) -> dict[str, NDArray[Any]]:
    """The columns of a pickled pandas.DataFrame by name. Cells that are arrays are read; other objects raise an error."""
    path = Path(fspath(path))
    check_regular(path)
    try:
        with path.open("rb") as file:
            frame = _Unpickler(file, path).load()
    except InputError:
        raise
    except Exception as error:  # a broken pickle raises whatever its broken instructions lead to
        raise InputError(f"{path} cannot be read as a pickled table: {reason(error)}") from error
    if not isinstance(frame, _Frame):
        raise InputError(f"{path} holds no table but {type(frame).__name__.strip('_').lower()}: expected one pickled by pandas")
    try:
        return frame.columns()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} holds a table in a layout that is not known: {reason(error)}") from error


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, path: Path) -> None:
        # Python 2 pickled the bytes of arrays as text, which is these bytes again in latin1
        super().__init__(file, encoding="latin1")
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        package = module.partition(".")[0]
        if known := KNOWN.get((package, name)):
            return known
        if package == "pandas" and name.endswith("Index"):
            return _Index
        raise InputError(
            f"{self.path} asks for {module}.{name}, which a table of numbers, texts and arrays does not need: it was not run. "
            "If you know where the file comes from, open it there and save the table again without it"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise InputError(f"{self.path} refers to data outside the file: expected a table pickled by pandas")


class _Dtype:
    """Stands for numpy.dtype: plain kinds only, so that bytes never become anything but numbers and texts."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or not PLAIN.fullmatch(code):
            raise InputError(f"the table has an array of the kind {code!r}: expected numbers, texts or objects")
        self.code, self.order = code, "="

    def __setstate__(self, state: Sequence[Any]) -> None:
        self.order = state[1] if state[1] in ("<", ">") else "="

    @property
    def plain(self) -> np.dtype[Any]:
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


class _Array:
    """Stands for an array of numpy while it is read."""

    __slots__ = ("values",)
    values: NDArray[Any]

    def __setstate__(self, state: Sequence[Any]) -> None:
        shape, dtype, by_columns, data = state[-4:]  # a version may stand before them
        self.values = _array(data, dtype, shape, "F" if by_columns else "C")


def _array(data: Any, dtype: _Dtype, shape: Sequence[int], order: str) -> NDArray[Any]:
    if dtype.plain.hasobject:
        flat = np.empty(len(data), dtype=object)
        for place, item in enumerate(data):
            flat[place] = _value(item)
    else:
        flat = np.frombuffer(data.encode("latin1") if isinstance(data, str) else data, dtype=dtype.plain)
    return flat.reshape(shape, order=order)  # type: ignore[call-overload, no-any-return]


def _value(item: Any) -> Any:
    return item.values if isinstance(item, (_Array, _Texts)) else item


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _frombuffer(data: Any, dtype: _Dtype, shape: Sequence[int], order: str) -> _Array:
    array = _Array()
    array.values = _array(data, dtype, shape, order)
    return array


def _scalar(dtype: _Dtype, data: Any) -> Any:
    return _array(data, dtype, (), "C")[()]


class _Texts:
    """Stands for the arrays of texts that pandas has of its own."""

    values: NDArray[Any]

    def __setstate__(self, state: Any) -> None:
        parts = state.values() if isinstance(state, dict) else state
        self.values = next(_value(part) for part in parts if isinstance(part, (np.ndarray, _Array)))


def _arrow(state: Sequence[Any]) -> NDArray[Any]:
    """Texts as Arrow has them: all in one piece, and where each begins."""
    kind, count, _, skipped, (present, offsets, data) = state[:5]
    edges = np.frombuffer(offsets, dtype={"string": "<i4", "large_string": "<i8"}[kind]).tolist()
    there = np.ones(skipped + count) if present is None else np.unpackbits(np.frombuffer(present, np.uint8), bitorder="little")
    texts = np.empty(count, dtype=object)
    for place, at in enumerate(range(skipped, skipped + count)):
        texts[place] = bytes(data[edges[at] : edges[at + 1]]).decode() if there[at] else None
    return texts


def _chunks(chunks: Sequence[NDArray[Any]], *_: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype=object), *chunks])


class _Index:
    """Stands for every kind of index."""


def _new_index(_: Any, data: dict[str, Any]) -> Any:
    return _value(data["data"]) if "data" in data else range(data["start"], data["stop"], data["step"])


class _Blocks:
    """Stands for pandas' BlockManager: columns of one kind lie together, with the places they have in the table."""

    def __init__(self, blocks: Sequence[Any] = (), axes: Sequence[Any] = ()) -> None:
        self.blocks, self.axes = blocks, axes

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple):  # before pandas 1.3
            state = state[3]["0.14.1"]
            self.blocks, self.axes = [(block["values"], block["mgr_locs"]) for block in state["blocks"]], state["axes"]


def _block(values: Any, places: Any, *_: Any) -> tuple[Any, Any]:
    return values, places


class _Frame:
    """Stands for pandas.DataFrame."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.manager: _Blocks = state["_mgr"] if "_mgr" in state else state["_data"]

    def columns(self) -> dict[str, NDArray[Any]]:
        names = [str(name) for name in self.manager.axes[0]]
        columns: dict[str, NDArray[Any]] = {}
        for values, places in self.manager.blocks:
            table = _value(values)
            table = table[None] if table.ndim == 1 else table
            numbers = np.arange(len(names))[places if isinstance(places, slice) else _value(places)]
            for column, number in zip(table, numbers, strict=True):
                columns[names[number]] = column
        return columns


def _bare(kind: Callable[[], Any], *_: Any) -> Any:
    return kind()


def _bytes(text: Any = b"", *_: Any) -> bytes:
    return text.encode("latin1") if isinstance(text, str) else bytes(memoryview(text))


KNOWN: dict[tuple[str, str], Any] = {
    ("pandas", "DataFrame"): _Frame,
    ("pandas", "BlockManager"): _Blocks,
    ("pandas", "_unpickle_block"): _block,
    ("pandas", "new_block"): _block,
    ("pandas", "_new_Index"): _new_index,
    ("pandas", "ArrowStringArray"): _Texts,
    ("pandas", "StringArray"): _Texts,
    ("pandas", "__pyx_unpickle_NDArrayBacked"): _bare,
    ("pandas", "StringDtype"): lambda *_: None,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "_reconstruct"): _reconstruct,
    ("numpy", "_frombuffer"): _frombuffer,
    ("numpy", "scalar"): _scalar,
    ("pyarrow", "_restore_array"): _arrow,
    ("pyarrow", "chunked_array"): _chunks,
    ("pyarrow", "type_for_alias"): lambda name: name,
    ("pyarrow", "py_buffer"): _bytes,
    ("_codecs", "encode"): _bytes,
    **{
        (module, name): stand_in
        for module in ("builtins", "__builtin__")
        for name, stand_in in {"slice": slice, "object": object, "bytes": _bytes, "bytearray": _bytes}.items()
    },
    **{(module, "_reconstructor"): _bare for module in ("copyreg", "copy_reg")},
}
