"""Hostile tables of purchases: what a line, a field, a number, a date and a file of them may be."""

from __future__ import annotations

import gzip
import io
import zlib

from tests.hostile.inputs import STEERING, Input, content, link, sparse

HEAD = "region,customer,item,date,quantity\n"
INIT = "init --data t.csv shop"
N = "nnlib import t.csv --out data"
D = "init --data t.csv.gz shop"
SHOP, DATA = ("shop",), ("data",)
AS_IS = "--region region --customer customer --item item --time date"
MORE = 3 << 20


def rows(more: str = "", head: str = HEAD, count: int = 400):
    """Write an honest table, and lines behind it."""
    lines = [
        f"{'Berg' if n % 2 else 'Tal'},c{n % 23},i{n % 17},2026-0{1 + n % 6}-{1 + n % 28:02},{1 + n % 3}\n"
        for n in range(count)
    ]
    return head + "".join(lines) + more


def table(more: str | bytes = "", **how):
    text = rows("" if isinstance(more, bytes) else more, **how).encode()
    return content("t.csv", text + more if isinstance(more, bytes) else text)


def line(region="Berg", customer="c1", item="i1", date="2026-02-03", quantity="1"):
    return table(f"{region},{customer},{item},{date},{quantity}\n")


def bomb(size: int) -> bytes:
    """Return a file of gzip that unpacks to so many line breaks."""
    buffer, packer = io.BytesIO(), zlib.compressobj(9, zlib.DEFLATED, 31)
    buffer.write(packer.compress(rows().encode()))
    for _ in range(size >> 20):
        buffer.write(packer.compress(b"x" * (1 << 20)))
    buffer.write(packer.flush())
    return buffer.getvalue()


FILES = (
    Input("a table of nothing", content("t.csv", ""), INIT, "t.csv", 1),
    Input("a header alone", content("t.csv", HEAD), INIT, "t.csv", 1),
    Input("line breaks alone", content("t.csv", "\n" * 1_000_000), INIT, "t.csv", 1),
    Input("a table of zero bytes", content("t.csv", bytes(1_000_000)), INIT, "t.csv", 1),
    Input("NUL in a field", table(b"Berg,c\0,i1,2026-02-03,1\n"), INIT, "t.csv", 1),
    Input(
        "a million columns",
        content("t.csv", ",".join(f"c{n}" for n in range(1_000_000)) + "\n" + "1," * 999_999 + "1\n"),
        INIT,
        "t.csv",
        1,
    ),
    Input("a line of 20 MB", table("x" * (20 << 20)), INIT, "t.csv", 1),
    Input("a field of 20 MB", table(f'"{"x" * (20 << 20)}",c1,i1,2026-02-03,1\n'), INIT, "t.csv", 1),
    Input("a quote that never ends", table('"Berg,c1,i1,2026-02-03,1\n' + rows(head="")), INIT, "t.csv", 1),
    Input("quotes without end", table('"' * 1_000_001), INIT, "t.csv", 1),
    Input("a header twice", table(head="region,customer,customer,date,quantity\n"), N, "customer", 4),
    Input("a header of nothing", table(head=",,,,\n"), INIT, "t.csv", 1),
    Input("a header that steers", table(head=f"region,customer,item,date,{STEERING}\n"), INIT, ".", (0, 1), SHOP),
    Input(
        "a header of code", table(head='region,customer,item,date,"""); DROP TABLE t; --"\n'), INIT, ".", (0, 1), SHOP
    ),
    Input("fields beyond the header", table("Berg,c1,i1,2026-02-03,1,2,3,4,5\n" * 3), N, "t.csv", 4),
    Input("fields that are missing", table("Berg,c1\n"), N, "t.csv", 4),
    Input("no UTF-8 in the middle", table(b"B\xe9rg,c1,i1,2026-02-03,1\n"), N, "t.csv", 4),
    Input(
        "two encodings", table(b"B\xe9rg,c1,i1,2026-02-03,1\nB\xc3\xa9rg,c1,i1,2026-02-03,1\n"), INIT, ".", (0, 1), SHOP
    ),
    Input("UTF-16 without its end", content("t.csv", rows().encode("utf-16")[:-1]), INIT, ".", (0, 1), SHOP),
    Input("a table of a terabyte of holes", sparse("t.csv", 1 << 40, rows().encode()), INIT, "t.csv", 1),
    Input("a table that is a device", link("t.csv", "/dev/zero"), INIT, "t.csv", 1),
    Input("a table that is random", link("t.csv", "/dev/urandom"), INIT, "t.csv", 1),
    Input("a link to itself", link("t.csv", "t.csv"), INIT, "t.csv", 1),
    Input("gzip that is none", content("t.csv.gz", b"\x1f\x8b" + b"x" * 1000), D, "t.csv.gz", 1),
    Input("gzip cut off", content("t.csv.gz", gzip.compress(rows(count=20_000).encode())[:-2000]), D, "t.csv.gz", 1),
    Input("a gzip bomb", content("t.csv.gz", bomb(256 << 20)), D, "t.csv.gz", (0, 1), SHOP),
    Input(
        "zstd that is none",
        content("t.csv.zst", b"\x28\xb5\x2f\xfd" + b"x" * 1000),
        "init --data t.csv.zst shop",
        "zst",
        1,
    ),
    Input(
        "Parquet that is none",
        content("t.parquet", b"PAR1" + b"\xff" * 1000 + b"PAR1"),
        "init --data t.parquet shop",
        "parquet",
        1,
    ),
    Input(
        "Parquet whose footer lies",
        content("t.parquet", b"PAR1" + bytes(40) + b"\xff\xff\xff\x7fPAR1"),
        "init --data t.parquet shop",
        "parquet",
        1,
    ),
)
VALUES = (
    Input("a day that is not", line(date="2026-02-30"), N, "t.csv.*date|date.*2026-02-30", 4),
    Input("the year zero", line(date="0000-01-01"), N, ".", 0, DATA),
    Input("the year 9999", line(date="9999-12-31"), INIT, ".", (0, 1), SHOP),
    Input("the year 300000", line(date="300000-01-01"), N, "date", 4),
    Input("before the calendar", line(date="-4000-01-01"), N, "date", 4),
    Input("a date of letters", line(date="x" * 100_000), N, "date", 4),
    Input("a time zone of days", line(date="2026-02-03T00:00:00+99:99"), N, ".", 0, DATA),
    Input("seconds since ever", line(date="9" * 400), N, "date", 4),
    Input("a quantity of NaN", line(quantity="nan"), f"{N} --quantity-column quantity", "quantity", 4),
    Input("a quantity of infinity", line(quantity="inf"), f"{N} --quantity-column quantity", "quantity", 4),
    Input("a quantity beyond all", line(quantity="1e999"), f"{N} --quantity-column quantity", "quantity", 4),
    Input("a negative quantity", line(quantity="-1e300"), f"{N} --quantity-column quantity", "quantity", 4),
    Input("a quantity of text", line(quantity="DROP TABLE"), f"{N} --quantity-column quantity", "quantity", 4),
    Input("a quantity of 4000 digits", line(quantity="9" * 4000), f"{N} --quantity-column quantity", "quantity", 4),
    Input(
        "a region of a path",
        table("".join(f"../../owned,c{n},i{n % 5},2026-0{1 + n % 6}-03,1\n" for n in range(60))),
        N,
        ".",
        0,
        DATA,
    ),
    Input("a region with the name of a device", line(region="CON"), N, ".", 0, DATA),
    Input("a region that steers in a table", line(region=f'"{STEERING}"'), N, ".", (0, 4), DATA),
    Input("a region of a line break", line(region='"Berg\nTal"'), N, ".", (0, 4), DATA),
    Input("a region of 100 kB", line(region="r" * 100_000), N, ".", (0, 4), DATA),
    Input("a region of nothing", line(region=""), N, ".", (0, 4), DATA),
    Input("a customer of 100 kB", line(customer="c" * 100_000), N, ".", (0, 4), DATA),
    Input("an item of 100 kB", line(item="i" * 100_000), N, ".", (0, 4), DATA),
    Input("an item of nothing", line(item=""), N, ".", (0, 4), DATA),
    Input("an item that steers", line(item=f'"{STEERING}"'), N, ".", (0, 4), DATA),
    Input("an item of a formula", line(item="\"=cmd|' /C calc'!A0\""), N, ".", 0, DATA),
    Input("an item of a page", line(item="<script>alert(1)</script>"), N, ".", 0, DATA),
    Input("200 regions of a line", table("".join(f"r{n},c1,i1,2026-02-03,1\n" for n in range(200))), N, ".", 0, DATA),
    Input(
        "100,000 customers of a line",
        table("".join(f"Berg,d{n},i1,2026-02-03,1\n" for n in range(100_000))),
        N,
        ".",
        0,
        DATA,
    ),
    Input("a separator of nothing", table(), f"{N} --separator ", "separator", 2),
    Input("an encoding of code", table(), f"{N} --encoding zlib_codec", "encoding|zlib", (2, 4)),
    Input("dates that take all", table(), f"{N} --dates %%%%%Q", "dates|%Q", (2, 4)),
    Input("a column that is not", table(), f"{N} --region-column {'x' * 10_000}", "x", 4),
)
TABLES = (*FILES, *VALUES)
