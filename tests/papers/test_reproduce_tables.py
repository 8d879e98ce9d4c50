"""The papers' data files: every format, from a folder and from a server of our own, checked by checksum."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest
from file_server import served_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import random as random_sparse
from sklearn.datasets import dump_svmlight_file

from benchmarks.papers.source import FILES, LIMIT, TableFile, TableSource, read_content
from benchmarks.papers.tables import (
    read_adult,
    read_german,
    read_reuters,
    read_shuttle,
    read_web,
)
from pipeline.errors import InputError

ADULT = b"-1 3:1 11:1 123:1 \n+1 5:1 18:1 \n-1 \n"
PACKERS = {"": bytes, ".xz": lzma.compress, ".bz2": bz2.compress, ".gz": gzip.compress}


def put(folder: Path, **contents: bytes) -> TableSource:
    """A source of files whose checksums are not those of the real ones; a__b stands for a/b, _t for .t."""
    for name, content in contents.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return TableSource(folder, any_version=True)


def file_of(content: bytes, room: str = "adult", name: str = "small") -> TableFile:
    sha256 = hashlib.sha256(content).hexdigest()
    return TableFile(room, name, f"https://example.org/{name}", sha256, sha256)


# LIBSVM text


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("room", ["adult/", ""])
def test_adult_plain_or_compressed_in_its_folder_or_not(tmp_path, suffix, room):
    source = put(tmp_path, **{f"{room}a9a.t{suffix}": PACKERS[suffix](ADULT)})
    table = read_adult(source, "a9a.t")
    assert table.name == "a9a.t"
    assert table.X.shape == (3, 123)
    assert table.X.nnz == 5
    assert table.X[0].indices.tolist() == [2, 10, 122]
    assert table.y.tolist() == [-1, 1, -1]
    with pytest.raises(InputError, match=r"a9a is missing.*adult/a9a"):
        read_adult(source)


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(2, 30), density=st.floats(0, 0.5), seed=st.integers(0, 999))
def test_what_scikit_learn_writes_is_read_back(tmp_path_factory, rows, density, seed):
    generator = np.random.default_rng(seed)
    X = random_sparse(rows, 300, density, format="csr", random_state=generator)
    y = np.append([1, -1], generator.choice([1, -1], rows - 2))
    written = io.BytesIO()
    dump_svmlight_file(X, y, written, zero_based=False)
    table = read_web(put(tmp_path_factory.mktemp("web"), w7a=written.getvalue()), "w7a")
    np.testing.assert_allclose(table.X.toarray(), X.toarray(), rtol=1e-12)
    assert (table.y == y).all()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"+1 3:1 124:1\n-1 1:1\n", "123 features"),
        (b"+1 3:one\n-1 1:1\n", "not LIBSVM text"),
        (b"+1 3:1\n+1 4:1\n", "classes 1 and -1"),
        (b"+1 3:1\n2 4:1\n-1 5:1\n", "classes 1 and -1"),
        (b"", "got none"),
    ],
)
def test_text_that_is_not_the_table_is_refused(tmp_path, content, problem):
    with pytest.raises(InputError, match=problem):
        read_adult(put(tmp_path, adult__a1a=content), "a1a")


def test_the_test_rows_of_w1a_are_made_where_they_are_missing(tmp_path):
    page, empty, other, rare = b"+1 2:1 9:1 \n", b"-1 \n", b"-1 4:1 \n", b"+1 300:1 \n"
    everything = [page, empty, empty, other, page, empty, rare, other]
    training = [empty, page, other]
    source = put(tmp_path, web__w8a=b"".join(everything), web__w1a=b"".join(training))
    table = read_web(source, "w1a.t")
    # The first page, the first row without words and the first other one are gone.
    assert table.y.tolist() == [-1, 1, -1, 1, -1]
    assert [row.indices.tolist() for row in table.X] == [[], [1, 8], [], [299], [3]]
    given = put(tmp_path, **{"web/w1a.t": page + other})
    assert read_web(given, "w1a.t").y.tolist() == [1, -1]


# Tables of numbers


def test_two_classes_of_shuttle(tmp_path):
    def rows(labels: str, first: int) -> bytes:
        return "".join(f"{first + n} 0 1 2 3 4 -5 6 7 {label}\n" for n, label in enumerate(labels)).encode()

    source = put(tmp_path, **{"shuttle/shuttle.trn.gz": gzip.compress(rows("124427", 10))})
    source = put(tmp_path, **{"shuttle/shuttle.tst": rows("42", 50).replace(b" ", b"\t")})
    train, both = read_shuttle(source), read_shuttle(source, part="both")
    assert train.X.shape == (4, 9)
    assert train.X[:, 0].tolist() == [11, 12, 13, 14]
    assert train.y.tolist() == [1, -1, -1, 1]
    assert both.X[:, 0].tolist() == [11, 12, 13, 14, 50, 51]
    assert both.y.tolist() == [1, -1, -1, 1, -1, 1]
    assert read_shuttle(source, (1, 7)).y.tolist() == [1, -1]
    with pytest.raises(InputError, match="classes 2 and 6"):
        read_shuttle(source, (2, 6))


@pytest.mark.parametrize("content", [b"1 2 3\n", b"", b"a b c\n", b"1 " * 24 + b"nan\n", b"1 2\n1 2 3\n"])
def test_rows_that_are_not_the_tables_are_refused(tmp_path, content):
    with pytest.raises(InputError, match="german"):
        read_german(put(tmp_path, **{"german.data-numeric": content}))


# Reuters


STORIES = """<!DOCTYPE lewis SYSTEM "lewis.dtd">
<REUTERS TOPICS="YES" LEWISSPLIT="TEST" CGISPLIT="TRAINING-SET" OLDID="1" NEWID="30">
<DATE> 1-APR-1987</DATE><TOPICS><D>grain</D><D>wheat</D></TOPICS><PLACES><D>usa</D></PLACES>
<TEXT>&#2;
<TITLE>WHEAT &lt;UP> &amp; AWAY</TITLE><DATELINE>    PARIS, April 1 - </DATELINE><BODY>Caf\xe9 prices
rose.
 Reuter
&#3;</BODY></TEXT>
</REUTERS>
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="2" NEWID="7">
<TOPICS></TOPICS>
<TEXT TYPE="UNPROC">&#2;
 A STORY WITHOUT PARTS
&#3;</TEXT>
</REUTERS>
<REUTERS TOPICS="NO" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="3" NEWID="8"><TOPICS><D>earn</D></TOPICS>
<TEXT><BODY>not of the split</BODY></TEXT></REUTERS>
<REUTERS TOPICS="YES" LEWISSPLIT="NOT-USED" CGISPLIT="TRAINING-SET" OLDID="4" NEWID="9"><TOPICS><D>earn</D></TOPICS>
<TEXT><BODY>not of the split</BODY></TEXT></REUTERS>
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="6" NEWID="5"><TOPICS><D>earn</D></TOPICS>
<TEXT TYPE="BRIEF"><TITLE>PROFITS</TITLE></TEXT></REUTERS>
"""


def archive(mode: str = "w:xz", parts: int = 22, stories: str = STORIES, folder: str = "") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:
        for number in range(parts):
            content = stories.encode("latin-1") if number == 17 else b"<!DOCTYPE lewis SYSTEM 'lewis.dtd'>\n"
            member = tarfile.TarInfo(f"{folder}reut2-{number:03d}.sgm")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        tar.addfile(tarfile.TarInfo("../../README.txt"), io.BytesIO())
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "mode"),
    [("reuters21578/reuters21578-sgml.tar.xz", "w:xz"), ("reuters21578.tar.gz", "w:gz")],
)
def test_reuters_documents_of_the_modapte_split(tmp_path, name, mode):
    result = read_reuters(put(tmp_path, **{name: archive(mode, folder="./")}))
    assert result.numbers.tolist() == [5, 7, 30]
    assert result.train.tolist() == [True, True, False]
    assert result.topics == (("earn",), (), ("grain", "wheat"))
    assert result.texts[0] == "PROFITS"
    assert result.texts[1] == "A STORY WITHOUT PARTS"
    assert result.texts[2] == "WHEAT <UP> & AWAY\nCaf\xe9 prices\nrose.\n Reuter"
    assert result.categories == ("earn", "grain", "wheat")
    assert result.of("wheat").tolist() == [False, False, True]
    assert [path.name for path in tmp_path.parent.rglob("README.txt")] == [], "nothing is unpacked"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (archive(parts=21), "reut2-021.sgm missing"),
        (archive(stories=""), "got none"),
        (archive()[:200], "cannot be read"),
        (b"no archive at all", "cannot be read"),
    ],
)
def test_an_archive_that_is_not_reuters_is_refused(tmp_path, content, problem):
    with pytest.raises(InputError, match=problem):
        read_reuters(put(tmp_path, **{"reuters21578.tar.xz": content}))


# Folders


def test_a_missing_file_is_named_with_where_it_was_looked_for_and_where_it_lives(tmp_path):
    for name, file in FILES.items():
        assert file.address.startswith("https://")
        with pytest.raises(InputError) as failure:
            TableSource(tmp_path).read(file)
        for part in (str(tmp_path), f"{file.room}/{name}", file.address):
            assert part in str(failure.value)


def test_a_file_of_another_content_is_refused_unless_any_version_will_do(tmp_path):
    put(tmp_path, adult__a9a=ADULT)
    with pytest.raises(InputError) as failure:
        read_adult(TableSource(tmp_path))
    for part in (str(tmp_path / "adult" / "a9a"), FILES["a9a"].sha256, hashlib.sha256(ADULT).hexdigest()):
        assert part in str(failure.value)
    assert read_adult(TableSource(tmp_path, any_version=True)).X.shape == (3, 123)


@pytest.mark.parametrize("suffix", [".xz", ".bz2", ".gz"])
def test_a_damaged_file_is_an_error_of_the_table(tmp_path, suffix):
    # An empty file is an empty stream to some of the formats, and then another content.
    for damaged in (PACKERS[suffix](ADULT)[:-9], b"no such format", b""):
        put(tmp_path, **{f"small{suffix}": damaged})
        with pytest.raises(InputError, match="small"):
            TableSource(tmp_path).read(file_of(ADULT))


def test_a_file_larger_than_any_table_is_not_taken_in(tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(LIMIT + 1)
    with pytest.raises(InputError, match=f"at most {LIMIT}"):
        read_content(tmp_path / "huge")


# Downloads


@pytest.fixture
def served(tmp_path):
    """A folder, and the address at which a server of this process has its files."""
    folder = tmp_path / "served"
    folder.mkdir()
    with served_folder(folder) as address:
        yield folder, address


def test_a_file_is_fetched_once_and_then_read_from_the_cache(tmp_path, served):
    folder, address = served
    put(folder, adult__small=ADULT)
    source = TableSource(mirror=f"{address}/", cache=tmp_path / "cache")
    file = file_of(ADULT)
    assert not source.has(file)
    assert source.read(file) == ADULT
    (folder / "adult" / "small").unlink()
    assert source.read(file) == ADULT
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == ["small"]


def test_what_is_fetched_must_have_its_checksum(tmp_path, served):
    folder, address = served
    put(folder, adult__a9a=ADULT)
    source = TableSource(mirror=address, cache=tmp_path / "cache")
    with pytest.raises(InputError, match=f"a9a: .*{FILES['a9a'].sha256}.*{hashlib.sha256(ADULT).hexdigest()}"):
        read_adult(source)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()], "a wrong file must not stay"


@pytest.mark.parametrize("where", ["missing", "closed"])
def test_a_file_that_cannot_be_fetched_says_what_to_do(tmp_path, served, where):
    _, address = served
    source = TableSource(mirror=address if where == "missing" else "http://127.0.0.1:9", cache=tmp_path / "cache")
    with pytest.raises(InputError, match=r"a9a: cannot be fetched from .*adult/a9a.* --tables"):
        read_adult(source)
