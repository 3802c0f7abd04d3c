"""Files into rows of exactly the declared schema, and what becomes of rows that cannot be read."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from penstock.errors import PenstockError
from penstock.sources import CsvOptions, csv_rows, json_lines
from penstock.sources.file_bytes import Part
from penstock.sources.reading import read_rows
from penstock.topology import parse_schema

NUMBERS = parse_schema("n long, text string")


class Reader:
    """Writes a file, reads it, and collects the bad rows."""

    def __init__(self, folder):
        self.folder = folder
        self.bad = []

    def read(self, data, format, schema=NUMBERS, options=None, strict=False, name="rows"):
        self.bad.clear()
        file = self.folder / name
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
        on_bad_row = None if strict else lambda row, error: self.bad.append((row, error))
        batches = list(read_rows(LocalFileSystem(), str(file), format, schema, options, on_bad_row))
        for batch in batches:
            batch.validate(full=True)
            assert batch.num_rows
            assert batch.schema.equals(schema)
        return [row for batch in batches for row in batch.to_pylist()]

    @property
    def bad_rows(self):
        return [row for row, _ in self.bad]


@pytest.fixture
def reader(tmp_path):
    return Reader(tmp_path)


def failure(reader, *arguments, **options):
    with pytest.raises(PenstockError) as caught:
        reader.read(*arguments, strict=True, **options)
    return caught.value


TIMES = parse_schema("id long, at timestamp, local timestamp_ntz, day date, more struct<at: timestamp>, open boolean")


class TestJson:
    def test_missing_columns_are_null_and_others_ignored(self, reader):
        rows = reader.read('{"n": 1, "more": [1, {}]}\n{"text": "a"}\n{}', "json")
        assert rows == [{"n": 1, "text": None}, {"n": None, "text": "a"}, {"n": None, "text": None}]

    def test_every_type(self, reader):
        schema = parse_schema(
            "a boolean, b byte, c double, d date, e timestamp, f timestamp_ntz, g decimal(10,2), "
            "h struct<x: date, y: array<int>>, i binary"
        )
        line = (
            '{"a": true, "b": 7, "c": 2, "d": "2026-01-02", "e": "2026-01-02T03:04:05+01:00", "f": "2026-01-02 03:04",'
            ' "g": 1.5, "h": {"x": "2026-01-02", "y": [1]}, "i": "x"}'
        )
        assert reader.read(line, "json", schema) == [
            {
                "a": True,
                "b": 7,
                "c": 2.0,
                "d": date(2026, 1, 2),
                "e": datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC),
                "f": datetime(2026, 1, 2, 3, 4),
                "g": Decimal("1.50"),
                "h": {"x": date(2026, 1, 2), "y": [1]},
                "i": b"x",
            }
        ]

    @pytest.mark.parametrize(
        "line",
        [
            '{"n": 1',
            '{"n": "one"}',
            '{"n": 1.5}',
            '{"n": 12345678901234567890}',
            '{"n": 1} {"n": 2}',
            '{"n": 1} null',
            "null",  # pyarrow's reader would crash the process.
            "[1]",
            "plain text",
            '{"text": "never ends}',
            '{"n": 1, "n": 2}',
        ],
    )
    def test_a_bad_line_does_not_take_its_neighbours_along(self, reader, line):
        good = [f'{{"n": {n}}}' for n in range(100)]
        rows = reader.read("\n".join([*good[:37], line, *good[37:]]), "json")
        assert [row["n"] for row in rows] == list(range(100))
        assert reader.bad_rows == [line]

    @pytest.mark.parametrize(
        ("data", "good", "bad"),
        [
            ('{"n":1}{"n":2}\n\n{"n":3}\n', [3], ['{"n":1}{"n":2}']),
            ('{"n":1\n} {"n":2}\n{"n":3}\n', [3], ['{"n":1', '} {"n":2}']),
        ],
    )
    def test_as_many_objects_as_lines_need_not_be_one_a_line(self, reader, data, good, bad):
        assert [row["n"] for row in reader.read(data, "json")] == good
        assert reader.bad_rows == bad

    def test_braces_within_a_string_cost_no_closer_look(self, reader, monkeypatch):
        monkeypatch.setattr(json_lines, "_keep_good_lines", lambda *_: pytest.fail("line by line"))
        rows = reader.read('{"n": 1, "text": "\\"\\\\frac{a}{b}"}\n{"n": 2}\n', "json")
        assert [row["text"] for row in rows] == ['"\\frac{a}{b}', None]

    def test_messages_are_one_object_each(self):
        def parse(*lines):
            return json_lines.parse_lines(list(lines), NUMBERS).column("n").to_pylist()

        assert parse(b'{"n": 1,\n"text": "} {"}', b'{"n": 2}') == [1, 2]
        for lines in ([b'{"n":1}{"n":2}', b""], [b'{"n":1}\n{"n":2}', b""], [b'{"n":1', b'}\n{"n":2}']):
            with pytest.raises(pa.ArrowInvalid, match="one JSON object"):
                parse(*lines)

    @pytest.mark.parametrize("data", ["null", "\n\n null\n", "\ufeffnull"])
    def test_a_null_that_comes_first(self, reader, data):
        assert reader.read(data, "json") == []
        assert len(reader.bad) == 1

    def test_null_within_a_string_is_no_mistake(self, reader):
        rows = reader.read('{"n": 1, "text": "} null"}\n{"n": 2, "text": "null"}\n', "json")
        assert [row["text"] for row in rows] == ["} null", "null"]
        assert reader.bad == []

    def test_text_that_is_not_utf8(self, reader):
        rows = reader.read(b'{"text": "a"}\n{"text": "\xff"}\n{"text": "b"}\n', "json")
        assert [row["text"] for row in rows] == ["a", "b"]
        assert reader.bad_rows == ['{"text": "\ufffd"}']

    def test_blank_lines_and_line_ends(self, reader):
        rows = reader.read(b'\xef\xbb\xbf\r\n{"n": 1}\r\n\r\n  \n{"n": 2}\r\n', "json")
        assert [row["n"] for row in rows] == [1, 2]
        assert reader.bad == []

    @pytest.mark.parametrize("data", ["", "\n", " \n \n"])
    def test_empty(self, reader, data):
        assert reader.read(data, "json") == []

    @pytest.mark.parametrize("block", [1, 7, 64, 1000])
    def test_blocks_do_not_matter(self, reader, monkeypatch, block):
        monkeypatch.setattr(json_lines, "BLOCK_BYTES", block)
        lines = [f'{{"n": {n}}}' if n % 10 else "bad" for n in range(100)]
        assert [row["n"] for row in reader.read("\n".join(lines), "json")] == [n for n in range(100) if n % 10]
        assert len(reader.bad) == 10
        assert "line 10 " in failure(reader, "\n".join(lines[1:]), "json").message

    def test_the_error_names_file_and_line(self, reader):
        error = failure(reader, '{"n": 1}\n\n{"n": "x"}\n', "json", name="orders.json")
        assert error.name == "BAD_ROW"
        assert "line 3" in error.message
        assert "orders.json" in error.message

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            (
                '{"id": 1, "at": "yesterday"}',
                ['"yesterday" is no timestamp', '"at timestamp"', "2026-01-31T23:59:59.5Z"],
            ),
            ('{"at": 1700000000000}', ["1700000000000 is no timestamp", '"at timestamp"', "a number as long"]),
            ('{"local": "x"}', ['"local timestamp_ntz"', "without a zone"]),
            ('{"local": "2026-01-01T00:00:00+02:00"}', ['00+02:00" is no timestamp_ntz', "without a zone"]),
            ('{"local": "2026-01-01T00:00:00Z"}', ['00Z" is no timestamp_ntz', "without a zone"]),
            ('{"local": 5}', ["5 is no timestamp_ntz", "without a zone"]),
            ('{"day": "31.01.2026"}', ['"31.01.2026" is no date', '"day date"', "2026-01-31"]),
            ('{"more": {"at": "x"}}', ['"more struct<at: timestamp>"']),
            ('{"open": "yes"}', ['"yes" is no boolean', '"open boolean"']),
            ('{"id": 1.5}', ["1.5 is no long", '"id long"']),
        ],
    )
    def test_a_bad_value_is_told_with_what_the_schema_says(self, reader, line, says):
        error = failure(reader, f'{{"id": 1}}\n{line}\n', "json", schema=TIMES)
        assert error.name == "BAD_ROW"
        assert "line 2" in error.message
        for words in says:
            assert words in error.message
        assert reader.read(f'{{"id": 1}}\n{line}\n{line}\n', "json", TIMES)[0]["id"] == 1
        assert [says[0] in error for _, error in reader.bad] == [True, True]

    @pytest.mark.parametrize(
        ("written", "moment"),
        [
            ("2026-01-02", datetime(2026, 1, 2)),
            ("2026-01-02 03:04", datetime(2026, 1, 2, 3, 4)),
            ("2026-01-02T03:04:05.000006", datetime(2026, 1, 2, 3, 4, 5, 6)),
        ],
    )
    def test_a_timestamp_without_a_zone(self, reader, written, moment):
        schema = parse_schema("local timestamp_ntz, more struct<at: array<timestamp_ntz>>")
        line = f'{{"local": "{written}", "more": {{"at": ["{written}", null]}}}}'
        row = {"local": moment, "more": {"at": [moment, None]}}
        zoned = line.replace(f'["{written}"', '["2026-01-02T03:04:05Z"')
        nothing = {"local": None, "more": None}
        assert reader.read(f"{line}\n{zoned}\n{{}}\n", "json", schema) == [row, nothing]
        assert reader.bad_rows == [zoned]

    @pytest.mark.parametrize("line", ['{"at": "x"', "[1]", "plain", '{"at": "\\ud800"}'])
    def test_a_line_for_which_no_column_is_to_blame(self, reader, line):
        error = failure(reader, f"{line}\n", "json", schema=TIMES)
        assert error.name == "BAD_ROW"
        assert "line 1" in error.message

    def test_half_of_a_utf16_pair_is_a_bad_row_whose_error_can_be_written(self, reader):
        line = '{"text": "cut \\ud83d"}'
        assert reader.read(f'{{"n": 1}}\n{line}\n', "json") == [{"n": 1, "text": None}]
        [(row, error)] = reader.bad
        assert (row, pa.array([error]).to_pylist()) == (line, [error])
        assert "cut \\ud83d" in error
        failure(reader, line, "json").message.encode()

    def test_a_null_that_the_schema_forbids(self, reader):
        strict = pa.schema([pa.field("n", pa.int64(), nullable=False)])
        assert reader.read('{"n": 1}\n{}\n{"n": 3}', "json", strict) == [{"n": 1}, {"n": 3}]
        assert reader.bad_rows == ["{}"]

    def test_compressed_by_name(self, reader):
        assert reader.read(gzip.compress(b'{"n": 1}\n'), "json", name="rows.json.gz") == [{"n": 1, "text": None}]


class TestCsv:
    def test_columns_by_name(self, reader):
        rows = reader.read("text,more,n\na,x,1\nb,y,\n,z,3\n", "csv")
        assert rows == [{"n": 1, "text": "a"}, {"n": None, "text": "b"}, {"n": 3, "text": ""}]

    def test_missing_columns_are_null(self, reader):
        assert reader.read("n\n1\n", "csv") == [{"n": 1, "text": None}]

    def test_columns_by_position(self, reader):
        rows = reader.read("1;a\n2;b\n", "csv", options=CsvOptions(header=False, separator=";"))
        assert rows == [{"n": 1, "text": "a"}, {"n": 2, "text": "b"}]

    def test_every_type(self, reader):
        schema = parse_schema(
            "a boolean, b byte, c double, d date, e timestamp, f timestamp_ntz, g decimal(10,2), i binary"
        )
        moments = ["2026-01-02T03:04:05Z", "2026-01-02 03:04:05", "2026-01-02T04:04:05+01:00", "2026-01-02"]
        lines = [f"true,7,2.5,2026-01-02,{moment},2026-01-02 03:04:05.5,1.5,x" for moment in moments]
        rows = reader.read("\n".join(["a,b,c,d,e,f,g,i", *lines, ",,,,,,,"]), "csv", schema)
        assert reader.bad == []
        same = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        assert [row["e"] for row in rows] == [same, same, same, datetime(2026, 1, 2, tzinfo=UTC), None]
        assert rows[0] == {
            "a": True,
            "b": 7,
            "c": 2.5,
            "d": date(2026, 1, 2),
            "e": same,
            "f": datetime(2026, 1, 2, 3, 4, 5, 500_000),
            "g": Decimal("1.50"),
            "i": b"x",
        }
        assert rows[-1] == dict.fromkeys("abcdefg") | {"i": b""}

    def test_quotes(self, reader):
        rows = reader.read('n,text\n1,"a\nb"\n2,"say ""hi"", twice"\n3,5" disk\n', "csv")
        assert [row["text"] for row in rows] == ["a\nb", 'say "hi", twice', '5" disk']

    @pytest.mark.parametrize(
        ("line", "reported"),
        [
            ("x,a", "x,a"),
            ("1.5,a", "1.5,a"),
            ("1", "1"),
            ("1,a,b", "1,a,b"),
            ('x,"a, b"', 'x,"a, b"'),
            ('x,"a\nb"', 'x,"a\nb"'),
        ],
    )
    def test_a_bad_row_does_not_take_its_neighbours_along(self, reader, line, reported):
        good = [f"{n},text" for n in range(100)]
        rows = reader.read("\n".join(["n,text", *good[:37], line, *good[37:]]), "csv")
        assert [row["n"] for row in rows] == list(range(100))
        assert reader.bad_rows == [reported]

    def test_a_bad_row_is_reported_whole(self, reader):
        assert reader.read("more,n,text\nkept,x,a\n", "csv") == []
        assert reader.bad_rows == ["kept,x,a"]

    def test_text_that_is_not_utf8(self, reader):
        assert reader.read(b"n,text\n1,a\n2,\xff\n3,b\n", "csv") == [{"n": 1, "text": "a"}, {"n": 3, "text": "b"}]
        assert reader.bad_rows == ["2,\ufffd"]

    @pytest.mark.parametrize(
        ("tail", "reported"),
        [
            ('2,"x\n3,y\n4,z', '2,"x\n3,y\n4,z"'),
            ('2,"x\n3,y\n', '2,"x\n3,y\n"'),
            ('2,"x', "2,x"),
            ('2,"', "2,"),
            ('2,"x""', '2,"x"""'),
            ('"2,x\n3,y\n', '"2,x\n3,y\n'),
            ('2,a,"x\n3,y', '2,a,"x\n3,y'),
        ],
    )
    @pytest.mark.parametrize("block", [64, csv_rows.BLOCK_BYTES])
    def test_a_quote_that_is_never_closed_is_a_bad_row(self, reader, monkeypatch, tail, reported, block):
        monkeypatch.setattr(csv_rows, "BLOCK_BYTES", block)
        data = "n,text\n1,a\n" + tail
        assert reader.read(data, "csv") == [{"n": 1, "text": "a"}]
        assert reader.bad == [(reported, "a quote is not closed before the end of the file")]
        error = failure(reader, data, "csv")
        assert error.name == "BAD_ROW"
        assert "line 3" in error.message
        assert "a quote is not closed" in error.message

    def test_a_quote_that_is_never_closed_in_the_last_part_and_in_compressed_text(self, reader, tmp_path):
        data = b'n,text\n1,a\n2,"x\n3,y\n'
        assert reader.read(gzip.compress(data), "csv", name="rows.csv.gz") == [{"n": 1, "text": "a"}]
        assert reader.bad_rows == ['2,"x\n3,y\n"']
        reader.bad.clear()
        (tmp_path / "rows").write_bytes(data)
        refuse = lambda row, error: reader.bad.append((row, error))  # noqa: E731
        parts = read_rows(LocalFileSystem(), str(tmp_path / "rows"), "csv", NUMBERS, None, refuse, Part(11))
        assert list(parts) == []
        assert reader.bad_rows == ['2,"x\n3,y\n"']

    @pytest.mark.parametrize("tail", ['2,"x"', '2,"x\n"', '2,"x\n"\n', "2,x", '2,5"', "2,x\r", '2,"x\n"""'])
    def test_a_last_value_that_only_looks_open(self, reader, tail):
        assert [row["n"] for row in reader.read("n,text\n1,a\n" + tail, "csv")] == [1, 2]
        assert reader.bad == []

    @pytest.mark.parametrize(("data", "rows"), [('text\n"x', []), ("text\nx", ["x"]), ("text\nx\n\n", ["x"])])
    def test_a_single_column_may_end_within_a_quote(self, reader, data, rows):
        assert [row["text"] for row in reader.read(data, "csv")] == rows
        assert len(reader.bad) == 1 - len(rows)

    @pytest.mark.parametrize("data", ["", "\n\n", "n,text", "n,text\n", "n,text\n\n"])
    def test_empty(self, reader, data):
        assert reader.read(data, "csv") == []

    def test_nothing_but_bad_rows(self, reader):
        assert reader.read("n,text\n1\n2\n", "csv") == []
        assert reader.bad_rows == ["1", "2"]

    @pytest.mark.parametrize("block", [16, 64, 1000])
    def test_blocks_do_not_matter(self, reader, monkeypatch, block):
        monkeypatch.setattr(csv_rows, "BLOCK_BYTES", block)
        lines = [f'{n},"a\nb"' if n % 10 else "bad,b" for n in range(100)]
        rows = reader.read("\n".join(["n,text", *lines]), "csv")
        assert [row["n"] for row in rows] == [n for n in range(100) if n % 10]
        assert len(reader.bad) == 10

    @pytest.mark.parametrize("bad", ["x,a", "1,a,b"])
    def test_the_error_names_file_and_line(self, reader, bad):
        # The header, a record of two lines, and a blank line come before it.
        error = failure(reader, f'n,text\n1,"a\nb"\n\n{bad}\n', "csv", name="orders.csv")
        assert error.name == "BAD_ROW"
        assert "line 5" in error.message
        assert "orders.csv" in error.message

    @pytest.mark.parametrize(
        ("row", "says"),
        [
            ("1,yesterday,", ['"yesterday" is no timestamp', '"at timestamp"', "2026-01-31T23:59:59.5Z"]),
            ("1,1700000000000,", ['"1700000000000" is no timestamp', "a number as long"]),
            ("1,,31.01.2026", ['"31.01.2026" is no date', '"day date"']),
            ("x,,", ['"x" is no long', '"id long"']),
        ],
    )
    def test_a_bad_value_is_told_with_what_the_schema_says(self, reader, row, says):
        schema = parse_schema("id long, at timestamp, day date")
        error = failure(reader, f"id,at,day\n1,,\n{row}\n", "csv", schema=schema)
        assert error.name == "BAD_ROW"
        assert "line 3" in error.message
        for words in says:
            assert words in error.message

    @pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\n\n"])
    @pytest.mark.parametrize("header", [b"Gr\xf6\xdfe,n,text", b'"Gr\xf6\n\xdfe",n,"text"'])
    def test_a_header_that_is_not_utf8(self, reader, mark, header):
        data = mark + header + b"\n1,2,a\n\n1,x,b\n"
        assert reader.read(data, "csv") == [{"n": 2, "text": "a"}]
        assert reader.bad_rows == ["1,x,b"]
        assert f"line {data.count(10)} " in failure(reader, data, "csv").message
        data = data.replace(b",x,b", b",x")
        assert f"line {data.count(10)} " in failure(reader, data, "csv").message
        error = failure(reader, data, "csv", schema=parse_schema("n long, Größe long"))
        assert (error.name, "UTF-8" in error.message) == ("BAD_SOURCE", True)

    @pytest.mark.parametrize(
        "data", ["x" * 200_000 + ",n\n1,2\n", 'n,"text\n' + "1,a\n" * 50_000], ids=["a long name", "an open quote"]
    )
    def test_a_header_that_is_too_long(self, reader, data):
        error = failure(reader, data, "csv")
        assert (error.name, "the header of" in error.message) == ("BAD_SOURCE", True)

    def test_a_header_with_a_quote_that_is_never_closed(self, reader):
        assert reader.read('n,"text\n1,a\n', "csv") == []
        assert reader.bad == [('n,"text\n1,a\n"', "a quote is not closed before the end of the file")]

    def test_a_header_with_other_columns(self, reader):
        assert failure(reader, "1,a\n2,b\n", "csv").name == "BAD_SOURCE"


class TestParquet:
    def write(self, reader, table, **options):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        return sink.getvalue().to_pybytes()

    def test_columns_are_cast_and_missing_ones_null(self, reader):
        table = pa.table({"more": ["x", "y"], "n": pa.array([1, 2], pa.int16())})
        assert reader.read(self.write(reader, table), "parquet") == [{"n": 1, "text": None}, {"n": 2, "text": None}]

    def test_row_groups(self, reader):
        data = self.write(reader, pa.table({"n": range(10), "text": ["a"] * 10}), row_group_size=4)
        assert [row["n"] for row in reader.read(data, "parquet")] == list(range(10))

    def test_a_value_that_would_be_lost_is_a_bad_row(self, reader):
        data = self.write(reader, pa.table({"n": [1.0, 2.5, 3.0]}), row_group_size=1)
        assert [row["n"] for row in reader.read(data, "parquet")] == [1, 3]
        assert reader.bad_rows == ['{"n": 2.5}']
        error = failure(reader, data, "parquet")
        assert (error.name, "row 2" in error.message) == ("BAD_ROW", True)

    def test_a_bad_row_that_python_cannot_hold_is_reported(self, reader):
        """No datetime is later than the year 9999. This one does not fit into nanoseconds either."""
        at = pa.array([0, 1 << 60], pa.timestamp("us"))
        data = self.write(reader, pa.table({"n": [1.0, 2.5], "at": at}))
        schema = parse_schema("n long, at timestamp_ntz")
        assert [row["n"] for row in reader.read(data, "parquet", schema)] == [1]
        [row] = reader.bad_rows
        assert json.loads(row) == {"n": "2.5", "at": f"<value out of range: {1 << 60}>"}

    @pytest.mark.parametrize(
        ("type_", "declared", "good", "lost"),
        [
            (pa.float64(), "float", [1.1, None, float("inf"), 3e38], [1e300, -1e39]),
            (pa.decimal128(38, 0), "float", [Decimal(7)], []),
            (pa.float64(), "decimal(10,2)", [1.24, None, -0.1, 2.1, 12345678.91, 0.0], [1.239, 1e-9]),
            (pa.float32(), "decimal(10,2)", [1.5, 2.1, 1234.5], [1.234]),
            (pa.timestamp("us"), "date", [datetime(2026, 1, 2), None], [datetime(2026, 1, 2, 3)]),
            (pa.timestamp("us", "UTC"), "date", [datetime(2026, 1, 2, tzinfo=UTC)], [datetime(2026, 1, 2, 3)]),
            (pa.int64(), "boolean", [0, 1, None], [2, -1]),
            (pa.float64(), "boolean", [0.0, 1.0], [0.5]),
            (pa.float64(), "long", [1.0, 3.0], [2.5]),
            (pa.string(), "double", ["1.5", "-Infinity", "inf", None], ["1e400"]),
            (pa.list_(pa.float64()), "array<float>", [[1.5, None], None, []], [[1.0, 1e300]]),
            (pa.struct([("x", pa.int64())]), "struct<x: boolean>", [{"x": 1}, None, {"x": None}], [{"x": 2}]),
        ],
    )
    def test_a_value_that_a_cast_would_change_is_a_bad_row(self, reader, type_, declared, good, lost):
        schema = parse_schema(f"v {declared}")
        data = self.write(reader, pa.table({"v": pa.array([*good, *lost, *good], type_)}))
        assert len(reader.read(data, "parquet", schema)) == 2 * len(good)
        assert len(reader.bad) == len(lost)

    @pytest.mark.parametrize(
        ("column", "declared"),
        [
            (pa.nulls(2), "array<string>"),
            (pa.nulls(2), "struct<x: long>"),
            (pa.array([[], None], pa.list_(pa.null())), "array<struct<x: long>>"),
            (pa.array([{"x": None}, None], pa.struct([("x", pa.null())])), "struct<x: array<long>>"),
            (pa.array([datetime(2024, 6, 30, 22), None], pa.timestamp("ms", "Europe/Berlin")), "date"),
            (pa.array(["inf", "1.5"]).dictionary_encode(), "double"),
            (pa.array([["2024-07-01T00:00:00"], []], pa.large_list(pa.string())), "array<timestamp_ntz>"),
        ],
    )
    def test_a_value_that_a_cast_keeps_is_no_bad_row(self, reader, column, declared):
        data = self.write(reader, pa.table({"v": column}))
        rows = reader.read(data, "parquet", parse_schema(f"v {declared}"))
        assert len(rows) == 2
        assert reader.bad == []
        if declared == "date":
            assert rows[0]["v"] == date(2024, 7, 1)

    def test_the_time_of_day_is_that_of_the_zone(self, reader):
        berlin = pa.array([datetime(2024, 7, 1, 0)], pa.timestamp("ms", "Europe/Berlin"))
        assert reader.read(self.write(reader, pa.table({"v": berlin})), "parquet", parse_schema("v date")) == []
        assert len(reader.bad) == 1

    def test_every_decimal_survives_as_a_double(self, reader):
        data = self.write(reader, pa.table({"v": [cents / 100 for cents in range(-200_000, 200_000, 7)]}))
        rows = reader.read(data, "parquet", parse_schema("v decimal(10,2)"))
        assert [row["v"] for row in rows] == [Decimal(cents) / 100 for cents in range(-200_000, 200_000, 7)]

    def test_a_number_that_is_none_is_kept(self, reader):
        data = self.write(reader, pa.table({"v": [float("nan"), 1.0]}))
        assert len(reader.read(data, "parquet", parse_schema("v float"))) == 2
        assert reader.bad == []

    @pytest.mark.parametrize(
        ("type_", "declared"),
        [
            (pa.timestamp("us", "UTC"), "timestamp_ntz"),
            (pa.list_(pa.timestamp("us", "UTC")), "array<timestamp_ntz>"),
            (pa.struct([("x", pa.int64())]), "struct<q: long>"),
        ],
    )
    def test_a_type_that_does_not_mean_the_same(self, reader, type_, declared):
        data = self.write(reader, pa.table({"v": pa.nulls(1, type_)}))
        assert failure(reader, data, "parquet", schema=parse_schema(f"v {declared}")).name == "BAD_SOURCE"

    def test_a_struct_with_a_field_that_the_file_lacks(self, reader):
        data = self.write(reader, pa.table({"v": [{"x": 1}]}))
        rows = reader.read(data, "parquet", parse_schema("v struct<x: long, q: long>"))
        assert rows == [{"v": {"x": 1, "q": None}}]

    def test_a_type_that_cannot_be_cast(self, reader):
        assert failure(reader, self.write(reader, pa.table({"n": [[1]]})), "parquet").name == "BAD_SOURCE"

    def test_other_columns_only(self, reader):
        assert failure(reader, self.write(reader, pa.table({"m": [1]})), "parquet").name == "BAD_SOURCE"

    def test_not_parquet(self, reader):
        assert failure(reader, "n,text\n1,a\n", "parquet").name == "BAD_SOURCE"


class TestInfinities:
    """A number that is too large for its type is not an infinite one."""

    SCHEMA = parse_schema("f float, d double")

    def test_csv(self, reader):
        rows = reader.read("f,d\n1,2\n1e40,1\n1,1e400\ninf,-Infinity\n,\n", "csv", self.SCHEMA)
        assert [row["f"] for row in rows] == [1.0, float("inf"), None]
        assert reader.bad_rows == ["1e40,1", "1,1e400"]
        assert '"1e40" is no float' in reader.bad[0][1]

    def test_json(self, reader):
        lines = ['{"f": 1}', '{"f": 1e40}', '{"d": 1e400}', '{"f": Infinity, "d": -Infinity}', "{}"]
        rows = reader.read("\n".join(lines), "json", self.SCHEMA)
        assert [row["f"] for row in rows] == [1.0, float("inf"), None]
        assert reader.bad_rows == lines[1:3]
        assert '"f float"' in reader.bad[0][1]

    def test_within_nested_json(self, reader):
        lines = ['{"v": [{"f": 1}]}', '{"v": [{"f": 1}, {"f": 1e40}]}', '{"v": null}']
        assert len(reader.read("\n".join(lines), "json", parse_schema("v array<struct<f: float>>"))) == 2
        assert reader.bad_rows == lines[1:2]


def test_an_unknown_format(reader):
    assert failure(reader, "", "avro").name == "BAD_SOURCE"
