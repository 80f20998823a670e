"""A table of a run, declared once: its file, its columns, and what each of them means.

Code that writes a table takes the schema from its declaration. docs/columns.md and docs/analyses.md
are made from the declarations (tests/columns_reference.py). The words of a declaration are no part
of a stage's code, so mending them makes no stage run again (work/code.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from pipelines.errors import LongtailError

# The types of columns.
STRING = pa.string()
BOOL = pa.bool_()
INT32 = pa.int32()
INT64 = pa.int64()
FLOAT32 = pa.float32()
FLOAT64 = pa.float64()

ENDS = ("", "_low", "_high")  # of an interval's columns
# The type of three columns: <name>, and the bounds of its 95 % interval, <name>_low and <name>_high
INTERVAL = pa.struct([(f"value{end}", FLOAT64) for end in ENDS])


@dataclass(frozen=True)
class Column:
    """A column, or several columns (such as "s, p, o") of one type and meaning."""

    name: str
    type: pa.DataType
    meaning: str

    @property
    def names(self) -> list[str]:
        return self.name.split(", ")

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of the file."""
        if self.type != INTERVAL:
            return [pa.field(name, self.type) for name in self.names]
        fields = []
        for name in self.names:
            fields += [pa.field(f"{name}{end}", FLOAT64) for end in ENDS]
        return fields


def type_name(kind: pa.DataType) -> str:
    """A type in words."""
    if kind == INTERVAL:
        return "interval"
    return f"list of {kind.value_type}" if pa.types.is_list(kind) else str(kind)


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The schema of a file with these columns."""
    fields = []
    for column in columns:
        fields += column.fields
    return pa.schema(fields)


@dataclass(frozen=True, eq=False)
class Table:
    """A table, or several tables with the same columns."""

    file: str  # below data/, such as corpus/<name>/docs.parquet; <name> stands for any name
    content: str  # what it has, as Markdown
    columns: Sequence[Column]
    also: Sequence[str] = ()  # further files with these columns
    is_open: bool = False  # whether a file may have more columns

    @property
    def name(self) -> str:
        """The file's name in its folder."""
        return self.file.rpartition("/")[2]

    @property
    def files(self) -> list[str]:
        return [self.file, *self.also]

    @property
    def column_names(self) -> list[str]:
        """The names of the columns. An interval has one."""
        names = []
        for column in self.columns:
            names += column.names
        return names

    @cached_property
    def schema(self) -> pa.Schema:
        return schema_of(self.columns)

    def columns_of(self, names: Sequence[str]) -> list[Column]:
        """What is declared of some columns of a file; the bounds of an interval go with it."""
        columns = []
        for column in self.columns:
            fields = [field for field in column.fields if field.name in names]
            if fields:
                chosen = ", ".join(field.name for field in fields)
                columns.append(Column(chosen, fields[0].type, column.meaning))
        return columns

    def check(self, schema: pa.Schema, file: str = "") -> None:
        """Raise LongtailError if the columns of a file are not the declared ones."""
        types = dict(zip(schema.names, schema.types, strict=True))
        faults = []
        for column in self.schema:
            if column.name not in types:
                faults.append(f"no column {column.name} ({column.type})")
            elif types[column.name] != column.type:
                faults.append(f"{column.name} is {types[column.name]}, expected {column.type}")
        if not self.is_open:
            further = [name for name in types if name not in self.schema.names]
            faults += [f"column {name} is not declared" for name in further]
        if faults:
            raise LongtailError(
                f"{file or self.file}: {'; '.join(faults)}; expected the columns of {self.file} in "
                "docs/columns.md"
            )

    def is_in(self, file: str) -> bool:
        """Whether this is the table of a file below data/."""
        return any(re.fullmatch(_pattern(declared), file) for declared in self.files)


def _pattern(file: str) -> str:
    """The regular expression of a declared file. A <name> is the same wherever it stands in it."""
    pattern = re.escape(file)
    for name in dict.fromkeys(re.findall(r"<(\w+)>", file)):
        pattern = pattern.replace(f"<{name}>", f"(?P<{name}>[^/]+)", 1)
        pattern = pattern.replace(f"/<{name}>", f"/(?P={name})")
    return pattern
