"""Reads vectors of passages that others published, in their own layouts, a part at a time.

passages_00 … passages_15   Contriever's: a tar or a folder of pickles of (ids, vectors)
wikipedia_passages_0.pkl …  DPR's: a folder of pickles of lists of (id, vector)
e5_Flat.index               FlashRAG's: a FAISS index, whose rows are the passages in order
index, docid                Pyserini's: a folder with a FAISS index, and the id of each row
"""

import pickle
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import faiss
import numpy as np

from pipelines.errors import LongtailError
from pipelines.sources.streams import visible_files

ROWS_AT_ONCE = 100_000  # vectors of a FAISS index
STORED_WHOLE = {  # the kinds of FAISS index that hold each vector, in fp32 or fp16
    "IndexFlat",
    "IndexFlatIP",
    "IndexFlatL2",
    "IndexHNSWFlat",
    "IndexIVFFlat",
    "IndexScalarQuantizer",
}
DPR_MARK = "wiki:"  # begins the ids in newer files of DPR's
NUMBERS = {"f2", "f4", "i8"}  # numpy's codes of the numbers that a pickled array may have
NO_NUMBERS = np.zeros(0)
PICKLE_MARK = b"\x80"  # begins a pickle of protocol 2 and later

Vectors = tuple[list[str], np.ndarray]  # the passages' ids, and their vectors (n, dim)


def read_vectors(path: Path) -> Iterator[Vectors]:
    """Yield the ids and vectors of each part of a file or folder in one of the layouts.

    A part of Contriever's has 1.3 million vectors. No code of a pickle is run. Raises LongtailError
    for a file that is missing or damaged, is in no such layout, or asks for code.
    """
    if not path.exists():
        raise LongtailError(f"{path}: no such file or folder, expected published vectors")
    if (path / "index").is_file():
        yield from _read_faiss(path / "index", path / "docid")
    elif path.is_dir():
        for file in visible_files(path):
            with file.open("rb") as stream:
                yield _read_pickle(stream, file)
    elif tarfile.is_tarfile(path):
        yield from _read_tar(path)
    else:
        with path.open("rb") as stream:
            is_pickle = stream.read(1) == PICKLE_MARK
            stream.seek(0)
            if is_pickle:
                yield _read_pickle(stream, path)
        if not is_pickle:
            yield from _read_faiss(path, path.with_name("docid"))


def _read_tar(path: Path) -> Iterator[Vectors]:
    try:
        with tarfile.open(path) as archive:
            members = sorted(archive.getmembers(), key=lambda member: member.name)
            for member in members:
                stream = archive.extractfile(member)  # None for a folder
                if stream is not None and not Path(member.name).name.startswith("."):
                    yield _read_pickle(stream, path / member.name)
    except (tarfile.TarError, EOFError) as error:
        raise LongtailError(f"{path}: damaged or cut off ({error}); fetch it again") from None


def _read_faiss(file: Path, names: Path) -> Iterator[Vectors]:
    """Yield the vectors of a FAISS index; without the file `names`, ids are the rows' numbers."""
    try:
        index: Any = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError:
        raise LongtailError(
            f"{file}: damaged, or in another format; expected a tar, pickles or a FAISS index of "
            "published vectors"
        ) from None

    # FAISS ends the process if an index can't give its vectors back.
    kind = type(index).__name__
    is_inexact = kind == "IndexScalarQuantizer" and index.sq.qtype != faiss.ScalarQuantizer.QT_fp16
    if kind not in STORED_WHOLE or is_inexact:
        raise LongtailError(
            f"{file}: FAISS's {kind}, whose codes do not give exact vectors back; expected an "
            f"index with whole vectors: {', '.join(sorted(STORED_WHOLE))}"
        )
    if kind == "IndexIVFFlat":
        try:
            index.make_direct_map()  # from rows to places in lists
        except RuntimeError:
            raise LongtailError(
                f"{file}: its vectors have ids of their own, expected the numbers of their rows"
            ) from None

    ids = None
    if names.is_file():
        lines = names.read_text(encoding="utf-8").splitlines()
        ids = [line.strip() for line in lines]
        if len(ids) != index.ntotal:
            raise LongtailError(
                f"{names}: {len(ids):,} ids for the {index.ntotal:,} vectors of {file.name}, "
                "expected one for each; fetch both again"
            )
    for start in range(0, index.ntotal, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, index.ntotal)
        vectors = index.reconstruct_n(start, stop - start)
        if ids is None:
            yield [str(row) for row in range(start, stop)], vectors
        else:
            yield ids[start:stop], vectors


def _read_pickle(stream: IO[bytes], file: Path) -> Vectors:
    """The ids and the array (n, dim) of a pickle; `file` is its name in messages."""
    try:
        content = _Unpickler(stream).load()
    except _Refused as error:
        raise LongtailError(
            f"{file}: a pickle that asks for {error}; none of its code was run; expected ids and "
            "an array of numbers alone"
        ) from None
    except Exception as error:  # a damaged pickle may raise any
        raise LongtailError(
            f"{file}: no pickle, or a damaged one ({type(error).__name__}: {error}); fetch it again"
        ) from None

    ids, vectors = _ids_and_vectors(content)
    are_ids = all(isinstance(id_, str | int) for id_ in ids)
    if vectors.ndim != 2 or len(vectors) != len(ids) or not are_ids:
        raise LongtailError(
            f"{file}: expected a pickle of (ids, vectors) or of (id, vector) pairs, an id for each "
            "vector"
        )
    return [str(id_).removeprefix(DPR_MARK) for id_ in ids], vectors


def _ids_and_vectors(content: Any) -> tuple[Sequence[Any], np.ndarray]:
    """The ids and the vectors in a pickle's content; NO_NUMBERS where it has no such array."""
    if not isinstance(content, list | tuple):
        return [], NO_NUMBERS
    if all(isinstance(entry, tuple) and len(entry) == 2 for entry in content):
        ids = [id_ for id_, _ in content]
        vectors = [_numbers(array) for _, array in content]
        shapes = {vector.shape for vector in vectors}
        if len(shapes) != 1:
            return ids, NO_NUMBERS
        return ids, np.stack(vectors)
    if len(content) != 2 or not isinstance(content[0], list | tuple):
        return [], NO_NUMBERS
    ids, array = content
    return ids, _numbers(array)


def _numbers(array: Any) -> np.ndarray:
    """The numbers of an array; NO_NUMBERS for what is none."""
    return array.values if isinstance(array, _Array) else NO_NUMBERS


class _Refused(pickle.UnpicklingError):
    """A pickle asks for something that is neither a list of ids nor an array of numbers."""


class _DType:
    """Stands for numpy's dtype in a pickle: the type of an array's numbers."""

    def __init__(self, code: str, *_: object) -> None:
        if code not in NUMBERS:
            raise _Refused(f"an array of {code}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        """`state` begins with a version and the order of bytes."""
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stands for numpy's array in a pickle; numpy itself gets bytes, and no state of a pickle."""

    values = NO_NUMBERS  # until the pickle sets the array's state

    def __setstate__(self, state: tuple) -> None:
        """`state` is a version, the shape, the type, whether columns come first, and the bytes."""
        _, shape, of_type, is_fortran, data = state
        self.fill(data, of_type, shape, "F" if is_fortran else "C")

    def fill(self, data: bytes, of_type: _DType, shape: tuple[int, ...], order: Any) -> None:
        self.values = np.frombuffer(data, of_type.dtype).reshape(shape, order=order)


def _empty_array(*_: object) -> _Array:
    """Stands for numpy's `_reconstruct`, after which a pickle sets the array's state."""
    return _Array()


def _array_of_bytes(data: bytes, of_type: _DType, shape: tuple[int, ...], order: str) -> _Array:
    """Stands for numpy's `_frombuffer`, by which pickles of protocol 5 make an array."""
    array = _Array()
    array.fill(data, of_type, shape, order)
    return array


STAND_INS = {
    "numpy.dtype": _DType,
    "numpy.ndarray": _Array,
    "numpy.core.multiarray._reconstruct": _empty_array,
    "numpy._core.multiarray._reconstruct": _empty_array,
    "numpy.core.numeric._frombuffer": _array_of_bytes,
    "numpy._core.numeric._frombuffer": _array_of_bytes,
}


class _Unpickler(pickle.Unpickler):
    """Reads lists, tuples, texts and numbers, and arrays by STAND_INS alone."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for what a pickle names; raises _Refused for any other name."""
        stand_in = STAND_INS.get(f"{module}.{name}")
        if stand_in is None:
            raise _Refused(f"{module}.{name}")
        return stand_in
