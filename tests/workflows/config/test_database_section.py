"""`data.database` of study.yaml; no message shows what may be a password."""

import pytest

from regiondag.config.load import load_purchases
from regiondag.errors import ConfigError
from regiondag.study.database import Database


def load(folder, data):
    (folder / "study.yaml").write_text(f"study: shop\ndata: {data}\n")
    return load_purchases(folder / "study.yaml").table


def test_a_table_and_a_query(tmp_path):
    assert load(tmp_path, "{database: {url: 'sqlite:///shop.db', table: sales}}") == Database(
        f"sqlite:///{tmp_path}/shop.db", "sales"
    )
    assert load(
        tmp_path, "{database: {url: 'postgresql://me@db/shop', query: 'SELECT 1;', password: 'file:secret'}}"
    ) == Database("postgresql://me@db/shop", "", "SELECT 1", f"file:{tmp_path}/secret")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{database: {url: 'postgresql://me:geheim@db/shop', table: t}}", "data.database.url: it holds a password"),
        ('{database: {url: "postgresql://me:geheim@db/\\n", table: t}}', "data.database.url: it holds a line break"),
        ("{database: {url: [geheim], table: t}}", "data.database.url: what stands here is not that"),
        ("{database: {url: 'sqlite:///x', table: t, password: geheim}}", "data.database.password: what stands here"),
        ("{database: {table: t}}", "data.database.url: missing"),
        ("{database: {url: 'sqlite:///x'}}", "seen neither, legal: one of `table` and `query`"),
        ("{database: {url: 'sqlite:///x', table: t, query: SELECT 1}}", "seen both"),
        ("{database: {url: 'sqlite:///x', query: DROP TABLE x}}", "begins with DROP"),
        ("{database: {url: 'sqlite:///x', tabel: t}}", "did you mean 'table'?"),
        ("{database: shop}", "a mapping of keys"),
        ("{database: {url: 'sqlite:///x', table: t}, purchases: x.csv}", "stands beside `database`; leave one out"),
        ("{columns: {item: x}}", "missing, legal: path of the table"),
    ],
)
def test_mistakes(tmp_path, data, said):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, data)
    assert said in str(caught.value) and "geheim" not in str(caught.value)
