import csv
import sys
from pathlib import Path
from typing import Any

import pytest

from dualstudent.data.images.listing import Listing
from dualstudent.data.images.tables import Columns, list_table
from dualstudent.errors import UserError

UGLY = ['with "quotes"', "with, comma", "with\nline feed", "<b>&amp;", "; semicolon", "\ttab"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("1.png", "2.png", "3.png", "4.png", "sub/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"not looked at")
    return tmp_path


def saved(folder: Path, text: str | bytes) -> Path:
    content = text.encode() if isinstance(text, str) else text
    (folder / "table.csv").write_bytes(content)
    return folder / "table.csv"


def told(listing: Listing) -> list[tuple[str, str, str]]:
    classes = (*listing.classes, "")
    return [
        (path.name, classes[label], part)
        for path, label, part in zip(listing.paths, listing.labels, listing.parts, strict=True)
    ]


USUAL = [("1.png", "cat", "train"), ("2.png", "dog", "train"), ("3.png", "", "train")]


@pytest.mark.parametrize(
    "text",
    [
        "path,label\n1.png,cat\n2.png,dog\n3.png,\n",
        "path,label\r\n1.png,cat\r\n2.png,dog\r\n3.png,\r\n",
        "\ufeffpath,label\n1.png,cat\n2.png,dog\n3.png,",
        "path;label\n1.png;cat\n2.png;dog\n3.png;\n",
        "path\tlabel\n1.png\tcat\n2.png\tdog\n3.png\t\n",
        'Label ,"Filename"\ncat,1.png\n dog ,2.png\n  ,3.png\n',
        "id,image,category,width\n7,1.png,cat,20\n8,2.png,dog,20\n9,3.png,,20\n",
        "path,label\n\n1.png,cat\n2.png,dog\n\n3.png\n\n",
        "file,split,class\n1.png,train,cat\n2.png,,dog\n3.png,Training,\n",
    ],
    ids=["plain", "Windows", "BOM", "semicolons", "tabs", "names", "others", "blank", "part"],
)
def test_the_same_table_in_many_forms(folder: Path, text: str) -> None:
    listing = list_table(saved(folder, text))
    assert told(listing) == USUAL
    assert all(path.is_file() for path in listing.paths)


def test_paths_are_relative_to_the_table_or_absolute(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = saved(folder, f"path,label\nsub/../1.png,a\n{folder}/2.png,b\nsub/1.png,\n")
    monkeypatch.chdir("/")
    names = ("1.png", "2.png", "sub/1.png")
    assert list_table(table).paths == tuple(folder / name for name in names)


def test_columns_can_be_named(folder: Path) -> None:
    text = "path,label,where,what,when\nx,9,1.png,cat,train\ny,9,2.png,dog,\nz,9,3.png,cat,TEST\n"
    columns = Columns(path="where", label="What", part="when")
    assert told(list_table(saved(folder, text), columns))[2] == ("3.png", "cat", "test")


def test_a_column_of_domains_can_be_named_or_ignored(folder: Path) -> None:
    rows = ["path,label,domain,where", "1.png,cat,a.org,source", "2.png,dog,b.org,source"]
    table = saved(folder, "\n".join([*rows, "3.png,,b.org,Target\n"]))
    with pytest.raises(UserError, match=r"line 2 is of the domain 'a\.org'.*data\.domain_column"):
        list_table(table)
    assert list_table(table, Columns(domain="where")).targets == (False, False, True)
    assert not list_table(table, Columns(domain="")).adapts


def test_of_several_usual_names_the_first_counts(folder: Path) -> None:
    text = "class,image,path,label\n0,x,1.png,cat\n1,y,2.png,dog\n"
    assert list_table(saved(folder, text)).classes == ("cat", "dog")


def test_labels_that_are_numbers_are_in_the_order_of_numbers(folder: Path) -> None:
    text = "path,label\n1.png,10\n2.png,9\n3.png,1\n"
    listing = list_table(saved(folder, text))
    assert listing.classes == ("1", "9", "10")
    assert listing.labels == (2, 1, 0)


def test_any_name_works(tmp_path: Path) -> None:
    with (tmp_path / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        for name in UGLY:
            (tmp_path / f"{name}.png").write_bytes(b"")
            writer.writerow([f"{name}.png", name])
    listing = list_table(tmp_path / "table.csv")
    for path, label in zip(listing.paths, listing.labels, strict=True):
        assert path.is_file()
        assert listing.classes[label] == path.stem.strip()


def test_a_repeated_row_counts_once(folder: Path) -> None:
    text = "path,label\n1.png,cat\n2.png,dog\n./1.png,cat\n"
    assert told(list_table(saved(folder, text))) == USUAL[:2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "path or file or .*none"),
        ("just some text\nof mine\n", "path .*; .* just some text"),
        ("path,kind\n1.png,cat\n", "label or class .*; .* path, kind"),
        ("path,kind\n1.png,cat\n", "check --label-column .*data.label_column"),
        (b"\xff\xd8\xff\xe0 an image", "UTF-8"),
        ("path,label\n1.png,\0\n2.png,b", "line 2 .*NUL"),
        ('path,label\n1.png,"cat\n', r"not a table: .*line 2"),
        ("path,label\n", "holds no images"),
        ("path,label,probability,stable\n1.png,a,0.9,true\n", "predictions"),
        ("path,label\n1.png,\n2.png,\n", "no .*label"),
        ("path,label\n1.png,cat\n2.png,cat\n", "'cat'"),
        (
            "path,label\n1.png,a\nnone.png,b\n",
            r"1 file.* none\.png in line 3",
        ),
        ("path,label\n1.png,a\nsub,b\n", r"1 file.* sub in line 3"),
        ("path,label\n1.png,a\n1.png,b\n", r"1\.png .*a for train in line 2 and b"),
        ("path,label\n1.png,a\n./1.png,\n", r"1\.png .* unlabeled for train in line 3"),
        ("path,label,part\n1.png,a,\n1.png,a,test\n", "a for train in line 2 and a for test in"),
        ("path,label\n1.png,a\n,b\n", "line 3 has no path"),
        ("path,label\n1.png,a\n2.png,-1\n", "line 3 .*label -1"),
        ("path,label\n1.png,a\n2.png,NaN\n", "line 3 .*label NaN"),
        (f"path,label\n1.png,a\n{'x' * 5_000}.png,b\n", "1 file.* in line 3"),
        ("path,label\na,b,1.png,cat\n", r"line 2 .*4 cells.* 2"),
        ("path,label,part\n1.png,a,val\n", "line 2 .*'val'; .*train or test"),
        ("path,label,part\n1.png,a,\n2.png,b,\n3.png,c,test\n", "test .*'c'"),
        ("path,label,part\n1.png,a,\n2.png,b,\n3.png,,test\n", r"3\.png has no label"),
    ],
)
def test_mistakes(folder: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        list_table(saved(folder, text))


def test_several_mistakes_are_named_at_once(folder: Path) -> None:
    rows = ["1.png,a,", ",b,", "2.png,-1,", "1.png,b,", "none.png,b,", "nor.png,b,", "3.png,c,val"]
    with pytest.raises(UserError) as refused:
        list_table(saved(folder, "\n".join(["path,label,part", *rows])))
    for mistake in (
        "line 3 has no path",
        "line 4 has label -1",
        "1.png is given twice",
        "2 file(s) do not exist, such as none.png in line 6, nor.png in line 7",
        "line 8 is in part 'val'",
    ):
        assert mistake in str(refused.value)


def test_of_very_many_mistakes_ten_are_named(folder: Path) -> None:
    with pytest.raises(UserError, match=r"line 11 has no path; and 5 more$"):
        list_table(saved(folder, "path,label\n" + 15 * ",b\n"))


@pytest.mark.parametrize("column", ["path", "label", "part", "domain"])
def test_a_named_column_that_is_not_there(folder: Path, column: str) -> None:
    table = saved(folder, "path,label\n1.png,a\n2.png,b\n")
    with pytest.raises(UserError, match=r"nowhere; .* path, label"):
        list_table(table, Columns(**{column: "nowhere"}))


def test_a_file_that_is_not_parquet_is_refused(folder: Path) -> None:
    (folder / "t.parquet").write_text("path,label\n1.png,a\n")
    with pytest.raises(UserError, match=r"t\.parquet: .*not a table"):
        list_table(folder / "t.parquet")


def test_parquet_without_pyarrow_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    table = saved(folder, b"PAR1 and so on")
    with pytest.raises(UserError, match=r"the extra 'parquet'"):
        list_table(table)


def parquet(folder: Path, **columns: list[Any]) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    parquet_files = pytest.importorskip("pyarrow.parquet")
    parquet_files.write_table(pyarrow.table(columns), folder / "table.parquet")
    return folder / "table.parquet"


def test_parquet(folder: Path) -> None:
    table = parquet(
        folder,
        width=[1, 2, 3],
        label=["cat", "dog", None],
        path=["1.png", "2.png", "3.png"],
    )
    assert told(list_table(table)) == USUAL


def test_parquet_with_numbers_that_may_be_missing(folder: Path) -> None:
    table = parquet(folder, path=["1.png", "2.png", "3.png"], label=[10.0, 9.0, float("nan")])
    listing = list_table(table)
    assert listing.classes == ("9", "10")
    assert listing.labels == (1, 0, -1)


def test_parquet_mistakes(folder: Path) -> None:
    table = parquet(folder, path=["1.png", "2.png"], label=["a", None])
    with pytest.raises(UserError, match="'a'"):
        list_table(table)
    with pytest.raises(UserError, match=r"where; .* path, label"):
        list_table(table, Columns(path="where"))
    table.write_bytes(table.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"not a table: .*Parquet"):
        list_table(table)


def test_parquet_with_too_many_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = parquet(folder, path=["1.png", "2.png"], label=["a", "b"])
    assert len(list_table(table)) == 2
    monkeypatch.setattr("dualstudent.data.images.tables._MOST_ROWS", 1)
    with pytest.raises(UserError, match=r"table\.parquet: has more than 1 rows"):
        list_table(table)


def test_parquet_with_text_that_is_no_text(folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    broken = pyarrow.array([b"1.png", b"\xff.png"]).view(pyarrow.string())
    with pytest.raises(UserError, match=r"not a table: .*Parquet"):
        list_table(parquet(folder, path=broken, label=["a", "b"]))
