"""Pickles of plain values and arrays of numbers, read by a machine that knows nothing else.

Python's own unpickler with most of its instructions taken away: no name outside the few an array
needs is looked up, no object but those below is built, and no instruction takes more memory or time
than the file has bytes.
"""

import pickle
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_pickled"]

NUMBERS = {f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)} - {"f1"}
INSTRUCTIONS = """
    MARK STOP PROTO FRAME MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST LIST
    APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 BINFLOAT STRING
    BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 BINUNICODE SHORT_BINUNICODE BINUNICODE8 UNICODE GLOBAL
    STACK_GLOBAL REDUCE BUILD
"""


def read_pickled(content: bytes) -> Any:
    """What a pickle holds, text of Python 2 as bytes. A pickle of anything else raises; what it raises may be of any kind.

    >>> read_pickled(pickle.dumps({"data": np.eye(2, dtype=np.uint8), "labels": [3, 4]}))
    {'data': array([[1, 0],
           [0, 1]], dtype=uint8), 'labels': [3, 4]}
    """
    held = _Reader(BytesIO(content), encoding="bytes").load()
    if isinstance(held, dict):
        return {
            key: value.array if isinstance(value, _Array) else value for key, value in held.items()
        }
    return held


class _Kind:
    """A numpy.dtype as a pickle makes it: letter and size, then the order of bytes."""

    def __init__(self, name: str | bytes, *_: object) -> None:
        text = name.decode() if isinstance(name, bytes) else name
        if text not in NUMBERS:
            raise pickle.UnpicklingError(f"it holds an array of {text[:20]!r}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order: Any = state[1].decode() if isinstance(state[1], bytes) else state[1]
        if state[2:5] != (None, None, None):
            raise pickle.UnpicklingError("it holds an array of more than numbers")
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """An array as a pickle makes it: empty, then filled."""

    def __init__(self, *_: object) -> None:
        self.array: NDArray[Any] = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, content = state
        if not isinstance(kind, _Kind) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("it holds an array of more than numbers")
        self.array = np.frombuffer(content, kind.dtype).reshape(
            shape, order="F" if by_columns else "C"
        )


class _Named(dict[Any, Any]):
    """A dict with plain keys: the hash of tuples of tuples of tuples could take for ever."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str | bytes | int):
            raise pickle.UnpicklingError("it holds a key that is no name")
        super().__setitem__(key, value)


class _Instructions(dict[int, Callable[[Any], None]]):
    def __missing__(self, code: int) -> Callable[[Any], None]:
        raise pickle.UnpicklingError("it asks for more than arrays need, which is not admitted")


class _Reader(
    pickle._Unpickler
):  # the one written in Python: the other makes room for whatever a file announces
    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    dispatch = _Instructions(
        {
            code: pickle._Unpickler.dispatch[code]
            for name in INSTRUCTIONS.split()
            for code in getattr(pickle, name)
        }
    )

    def find_class(self, module: str, name: str) -> object:
        meanings: dict[tuple[str, str], object] = {
            ("numpy.core.multiarray", "_reconstruct"): _Array,
            ("numpy._core.multiarray", "_reconstruct"): _Array,
            ("numpy", "ndarray"): None,
            ("numpy", "dtype"): _Kind,
        }
        if (module, name) not in meanings:
            raise pickle.UnpicklingError(
                f"it asks for {f'{module}.{name}'[:100]}, which is not admitted"
            )
        return meanings[module, name]

    def load_empty_dict(self) -> None:
        self.stack.append(_Named())

    def load_dict(self) -> None:
        items, held = self.pop_mark(), _Named()
        for key, value in zip(items[::2], items[1::2], strict=True):
            held[key] = value
        self.stack.append(held)

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Array | _Kind):
            raise pickle.UnpicklingError("it changes more than arrays, which is not admitted")
        self.stack[-1].__setstate__(state)

    for _code, _load in (
        (pickle.EMPTY_DICT, load_empty_dict),
        (pickle.DICT, load_dict),
        (pickle.BUILD, load_build),
    ):
        dispatch[_code[0]] = _load
