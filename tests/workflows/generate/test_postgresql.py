"""A study whose purchases are in PostgreSQL: a server of Debian's package, in a folder of its own, gone at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from nnlib.errors import DataError
from regiondag.cli import main
from regiondag.generate.fresh_data import refresh_data
from regiondag.util.databases import open_rows

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
PASSWORD = "ge:h/e@i m%"  # noqa: S105 - of a server that ends with the test
TABLE = 'CREATE TABLE {} ("Store %s" text, client bigint, sku text, "when" timestamptz, price numeric)'
ROW = (
    "INSERT INTO {} SELECT 'N', n % 40, 'i' || (n * 7 % 23), timestamptz '2026-01-01 01:30+02' + n * interval '4 hours'"
    ", 1.5 FROM generate_series(1, 1500) n"
)


@dataclass(frozen=True)
class Server:
    """Where it is, and its user who may do all."""

    folder: Path
    port: int
    user: str

    @property
    def url(self) -> str:
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/postgres"

    def run(self, *statements):
        import psycopg

        with psycopg.connect(self.url, password=PASSWORD) as connection:
            for sql in statements:
                connection.execute(sql)


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("psycopg")
    if not PROGRAMS:
        pytest.skip("PostgreSQL's server is not installed: apt-get install postgresql")
    user = "shop"
    who = {"user": pwd.getpwnam("nobody").pw_uid, "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
    who = who if os.geteuid() == 0 else {}  # it refuses to be root's
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    programs = PROGRAMS[-1].parent
    (folder / "password").write_text(PASSWORD)
    if who:
        for path in (folder, folder / "password"):
            os.chown(path, who["user"], who["group"])

    def call(*command):
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, **who)

    data = folder / "data"
    try:
        call(programs / "initdb", "-D", data, "-U", user, "-A", "scram-sha-256", "--pwfile", folder / "password", "-N")
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories='' -c fsync=off"
        call(programs / "pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start")
        try:
            yield Server(folder, port, user)
        finally:
            call(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def sales(server, tmp_path, monkeypatch):
    server.run("DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop")
    server.run(TABLE.format('shop."Sales"'), ROW.format('shop."Sales"'))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    return server


def init(server, *words):
    return main(["init", "--data", server.url, "--password", "env:SHOP_PASSWORD", *words, "shop"])


def test_from_the_server_to_data_sets(sales, tmp_path, capsys):
    assert init(sales, "--table", "shop.Sales", "--region", "Store %s", "--customer", "client", "--item", "sku") == 0
    assert f"shop.Sales in postgres on 127.0.0.1:{sales.port}: 1,500 rows of a database" in capsys.readouterr().err
    study = tmp_path / "shop/study.yaml"
    assert refresh_data(study) is True
    assert refresh_data(study) is False
    sales.run('CREATE TABLE shop.t AS SELECT * FROM shop."Sales" ORDER BY random()', 'DROP TABLE shop."Sales"')
    sales.run('ALTER TABLE shop.t RENAME TO "Sales"', 'ALTER TABLE shop."Sales" ADD COLUMN other int')
    assert refresh_data(study) is False
    sales.run("""INSERT INTO shop."Sales" VALUES ('N', 1, 'new', '2026-05-05', 1)""")
    assert refresh_data(study) is True
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes()


def test_a_query_reads_in_blocks_and_days_are_those_of_utc(sales):
    query = """SELECT "when", sku FROM shop."Sales" WHERE sku LIKE 'i%' AND sku <> ':x' ORDER BY "when" """
    with open_rows(sales.url, query=query, password=PASSWORD) as rows:
        blocks = list(rows.read(["sku", "when"]))
    assert len(blocks[0]) == 1500 and blocks[0][0][0] == "i7"
    from regiondag.generate.database_rows import show_value

    assert show_value(blocks[0][0][1]) == "2026-01-01 03:30:00"


def test_nothing_can_be_written(sales):
    for query in ['DELETE FROM shop."Sales" RETURNING *', "SELECT nextval('shop.s')", "SELECT 1 INTO shop.x"]:
        sales.run("CREATE SEQUENCE IF NOT EXISTS shop.s")
        with (
            pytest.raises(DataError, match=r"read-only transaction|syntax error|INTO"),
            open_rows(sales.url, query=query, password=PASSWORD) as rows,
        ):
            list(rows.read(rows.header))


def test_what_the_server_refuses(sales, capsys, monkeypatch):
    wrong = "wr/on:g"
    for words, said in (
        (["--table", "Salse"], "no table 'Salse', there are: "),
        (["--table", "shop.Sale"], "no table 'shop.Sale', there are: shop.Sales; did you mean 'shop.Sales'?"),
        (["--query", 'SELECT skew FROM shop."Sales"'], 'column "skew" does not exist'),
        (["--query", "SELECT FROM WHERE"], "syntax error"),
    ):
        assert init(sales, *words) == 1
        error = capsys.readouterr().err
        assert said in error and PASSWORD not in error and "Traceback" not in error
    monkeypatch.setenv("SHOP_PASSWORD", wrong)
    assert init(sales, "--table", "shop.Sales") == 1
    error = capsys.readouterr().err
    assert "password authentication failed" in error and "is the password that was read the right one?" in error
    assert wrong not in error
    monkeypatch.delenv("SHOP_PASSWORD")
    assert init(sales, "--table", "shop.Sales") == 1
    assert "the variable SHOP_PASSWORD is not set here" in capsys.readouterr().err
    assert main(["init", "--data", sales.url.replace(str(sales.port), "1"), "--table", "x", "shop"]) == 1
    assert "is the host right, does it answer within 10 s" in capsys.readouterr().err
