"""The source map: what is blanked, what is expanded, and where every byte of the result comes from."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from cudalint.frontend.conditions import evaluate
from cudalint.frontend.macros import Macro
from cudalint.frontend.source import SourceFile, decode, holds_cuda, load

if TYPE_CHECKING:
    from pathlib import Path


def source(text: str | bytes) -> SourceFile:
    return SourceFile("/p/a.cu", text.encode() if isinstance(text, str) else text)


def expanded(text: str | bytes) -> str:
    """The text with white space (not in literals) normalised."""
    return " ".join(source(text).text.decode().split())


def came_from(file: SourceFile, fragment: str, nth: int = 0) -> str:
    """What the ``nth`` occurrence of ``fragment`` in the text is in the file."""
    at = -1
    for _ in range(nth + 1):
        at = file.text.index(fragment.encode(), at + 1)
    start, end = file.origin(at, at + len(fragment.encode()))
    return file.raw[start:end].decode()


# Decoding


@pytest.mark.parametrize(
    ("data", "raw"),
    [
        (b"int a;\n", "int a;\n"),
        (b"\xef\xbb\xbfint a;\n", "int a;\n"),
        ("// é ∑\n".encode(), "// é ∑\n"),
        ("﻿// é ∑\n".encode("utf-16-le"), "// é ∑\n"),
        ("﻿// é ∑\n".encode("utf-16-be"), "// é ∑\n"),
        ("﻿// é\n".encode("utf-32-le"), "// é\n"),
        (b"// caf\xe9 \x93quoted\x94\n", "// café “quoted”\n"),
        (b"// \x81\n", "// \x81\n"),
        (b"", ""),
    ],
)
def test_decodes(data: bytes, raw: str) -> None:
    file = source(data)
    assert file.error is None
    assert file.raw.decode() == raw


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"int a;\0int b;", "NUL at byte 6"),
        (b"\x7fELF\x02\x01\x01\0\0", "binary"),
        (b"\x89\x01\x02\xff\xfe\x03", "neither UTF-8 nor text"),
        (b"\xff\xfea", "UTF-16"),
        (b"\xff\xfea\0\0\0", "NUL"),
        (b"\xef\xbb\xbf\xff", "not valid UTF-8: invalid start byte at byte 3"),
    ],
)
def test_says_why_it_cannot_decode(data: bytes, says: str) -> None:
    file = source(data)
    assert file.error is not None
    assert says in file.error
    assert (file.raw, file.text, file.macros, file.includes) == (b"", b"", {}, [])


def test_remembers_how_to_write_the_file_back() -> None:
    assert decode(b"\xef\xbb\xbfa")[1:3] == ("utf-8", b"\xef\xbb\xbf")
    assert decode(b"\xff\xfea\0")[1:3] == ("utf-16-le", b"\xff\xfe")
    assert decode(b"\xe9")[1:3] == ("cp1252", b"")


def test_load_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "x.cu").mkdir()
    for name in ("x.cu", "absent.cu"):
        file = load(str(tmp_path / name))
        assert file.error is not None
        assert file.error.startswith("cannot be read: ")


def test_positions_count_code_points_and_every_kind_of_line_end() -> None:
    file = source("a\r\né∑b\rcc\n\tx")
    at = file.raw.index
    assert file.position(0) == (1, 1)
    assert file.position(at(b"b")) == (2, 3)
    assert file.position(at(b"c")) == (3, 1)
    assert file.position(at(b"x")) == (4, 2)
    assert file.position(len(file.raw)) == (4, 3)
    start = at("∑".encode())
    assert file.raw_span(start, at(b"c") + 1)[1:5] == (2, 2, 3, 2)


def test_columns_on_a_huge_line_cost_the_same_everywhere() -> None:
    file = source("é = 1;" * 500_000)
    began = time.process_time()
    for i in range(0, 500_000, 50):
        assert file.position(i * 7) == (1, i * 6 + 1)
    assert file.text == file.raw
    assert time.process_time() - began < 5


def test_a_lone_carriage_return_ends_a_comment() -> None:
    file = source(b"// one\rint a;\r#define N 3\rint b = N;")
    assert file.text.decode().split() == ["//", "one", "int", "a;", "int", "b", "=", "3;"]


# Conditionals


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1", 1), ("0", 0), ("", 0), ("UNKNOWN", 0), ("true", 1), ("false", 0), ("!0", 1), ("!!5", 1),
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("10 - 4 - 3", 3), ("-7 / 2", -3), ("-7 % 3", -1), ("~0", -1),
        ("0x1F", 31), ("010", 8), ("0b101", 5), ("1'000u", 1000), ("201703L >= 201402L", 1), ("'A'", 65),
        ("'\\n'", 10),
        ("1 << 4 | 1", 17), ("6 & 3 ^ 1", 3), ("256 >> 4", 16), ("1 ? 2 : 3", 2), ("0 ? 2 : 0 ? 3 : 4", 4),
        ("1 == 1 && 2 != 3", 1), ("0 || 0", 0), ("1 || 1 / 0", 1), ("0 && 1 / 0", 0), ("1 / 0", 0),
        ("1 ? 1 : 1 / 0", 1),
        ("3 > 2 > 1", 0), ("1 and not 0", 1), ("defined A", 1), ("defined(A) && !defined ( B )", 1), ("A", 7),
        ("F(2) == 4", 1), ("F == 0", 1), ("HAS_A", 1), ("SELF", 0), ("(1", 0), ("1)", 0), ("1 +", 0), ("1 2", 0),
        ("UNKNOWN(3)", 0), ("1.5", 0), ('"s"', 0), ("defined", 0), ("__has_include(<x.h>)", 0), ("@", 0),
        ("defined(__has_include) && __has_include(\"yes.h\")", 1), ("9223372036854775807 + 1 < 0", 1),
        ("1 << 1000000", 1),
        ("(" * 10_000 + "1" + ")" * 10_000, 1), ("!" * 10_000 + "1", 1), ("1" + "+1" * 10_000, 10_001),
        ("1" * 10_000, 0),
    ],
)  # fmt: skip
def test_evaluates_if_expressions(expression: str, value: int) -> None:
    table = {
        b"A": Macro(b"A", None, b"7"),
        b"F": Macro(b"F", (b"x",), b"((x) + (x))"),
        b"HAS_A": Macro(b"HAS_A", None, b"defined(A)"),
        b"SELF": Macro(b"SELF", None, b"SELF"),
    }
    assert evaluate(expression.encode(), table, lambda name, angled: name == "yes.h" and not angled) == value


def test_takes_one_branch_and_keeps_every_offset() -> None:
    text = "#if A\nint a; // it's\n#elif 1\nint b;\n#else\nint c;\n#endif\nint d;\n"
    file = source(text)
    assert len(file.text) == len(file.raw)
    assert file.text.decode().split() == ["int", "b;", "int", "d;"]
    for word in ("int b;", "int d;"):
        assert file.text.decode().index(word) == text.index(word)
    assert [len(line) for line in file.text.split(b"\n")] == [len(line) for line in file.raw.split(b"\n")]
    assert file.origin(10, 20) == (10, 20)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("#ifdef A\na\n#else\nb\n#endif\n", "b"),
        ("#ifndef A\na\n#else\nb\n#endif\n", "a"),
        ("#define A\n#ifdef A\na\n#endif\n#undef A\n#ifdef A\nb\n#endif\n", "a"),
        ("#if 0\n#if 1\na\n#else\nb\n#endif\nc\n#elifdef __CUDACC__\nd\n#elif 1\ne\n#else\nf\n#endif\n", "d"),
        ("#if 0\n#elifndef A\na\n#endif", "a"),
        ("#if 1\na\n#elif 1/0 syntax (\nb\n#endif\nc", "a c"),
        ("#if 0\n#define N 1\n#include \"x\"\n#endif\nN", "N"),
        ("a\n#endif\n#else\nb\n#elif 0\nc\n", "a b c"),
        ("a\n#if 0\nb\n", "a"),
        ("  #  if 0\nb\n\t#\tendif\nc", "c"),
        ("/* x */ #if 0\nb\n/* y\n */ #endif // z\nc", "/* x */ /* y */ c"[:7] + " c"),
        ("#if 0 /* a\n #endif */\nb\n#endif\nc", "c"),
        ("#if \\\n 0\nb\n#endif\nc", "c"),
        ("#if 0\n#error don't\n/*\n#endif\n*/\nb\n#endif\nc", "c"),
        ("#if 0\n\"\n#endif\nc", "c"),
        ("#error don't do this\n#warning \"so\n#pragma once\n#line 3\n#\n#!/bin/x\na", "a"),
        ("a # if 0\nb", "a # if 0 b"),
        ("#if __CUDACC__ && defined(__NVCC__) && __cplusplus >= 201703L && !defined(__HIPCC__)\na\n#endif", "a"),
        ("#if __CUDA_ARCH__ >= 800\na\n#else\nb\n#endif", "a"),
        ("#if defined(__HIP_PLATFORM_AMD__) || _MSC_VER || __GNUC__\na\n#else\nb\n#endif", "b"),
    ],
)  # fmt: skip
def test_conditionals(text: str, left: str) -> None:
    assert expanded(text) == left


def test_reads_an_include_guard_and_defines_what_it_guards() -> None:
    file = source("#ifndef G_H\n#define G_H\n#define N 4\nint a[N];\n#endif\n")
    assert file.text.decode().split() == ["int", "a[4];"]
    assert list(file.macros) == ["G_H", "N"]


# What is no directive and no macro


@pytest.mark.parametrize(
    "text",
    [
        '"N"', "'N'", "// N", "/* N\n N */", 'R"(N " N)"', 'u8R"x(N)" N)x"', "// a \\\n N", '"a\\"N"', '"a\\\nN"', "NN",
        "N_", "_N", "xN", "éN", "1N", "0xN", "1'0N", "'\\'N'",
    ],
)  # fmt: skip
def test_leaves_alone_what_is_no_name(text: str) -> None:
    file = source("#define N 1\n" + text + "\n")
    assert file.text == b" " * 11 + b"\n" + text.encode() + b"\n"


def test_a_string_hides_comments_and_a_comment_hides_strings() -> None:
    assert expanded('#define N 1\n"/*" N "*/" N // " \n N \' \n') == '"/*" 1 "*/" 1 // " 1 \''


def test_digit_separators_begin_no_character() -> None:
    file = source("#define N 2\nint a = 1'000'000 + N; char b = 'N', c = u8'N'; int d = 0xAB'CD * N;\n")
    assert file.text.decode().split("\n")[1] == "int a = 1'000'000 + 2; char b = 'N', c = u8'N'; int d = 0xAB'CD * 2;"
    assert file.gaps == []


def test_unended_comment_and_literals_are_gaps_and_hide_nothing_else() -> None:
    file = source('#define N 1\nint a = N;\nchar* s = "abc;\nint b = N;\n#if 0\n"\n#endif\nchar c = \';\n/* N')
    assert expanded(file.raw).startswith("int a = 1; char* s = \"abc; int b = 1; char c = '; /* N")
    assert [(gap.why, file.raw[gap.start : gap.end]) for gap in file.gaps] == [
        ("the string that begins here does not end on its line", b'"abc;'),
        ("the character that begins here does not end on its line", b"';"),
        ("the comment that begins here does not end", b"/* N"),
    ]
    assert source('R"(a').gaps == [(1, 4, "the raw string that begins here does not end")]


def test_takes_the_first_side_of_a_merge_conflict() -> None:
    text = "int a;\n<<<<<<< HEAD\nint b;\n||||||| base\nint c;\n=======\nint d;\n>>>>>>> other\nint e;\n"
    file = source(text)
    assert file.text.decode().split() == ["int", "a;", "int", "b;", "int", "e;"]
    assert file.text.index(b"int e") == text.index("int e")
    (gap,) = file.gaps
    assert file.raw[gap.start : gap.end].decode() == text[7 : text.index("\nint e")]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("k << <g, b >> > (a);", "k <<< g, b  >>> (a);"),
        ("k < < <g, b >>> (a);", "k <<<  g, b >>> (a);"),
        ("k<7><< <g, n >> 2 >> >(a);", "k<7><<< g, n >> 2  >>>(a);"),
        ("k<<<g, n >> 2>>>(a); x << 1;", "k<<<g, n >> 2>>>(a); x << 1;"),
        ("o& operator<< <T>(o&, A<B<C<int>> >(x));", "o& operator<< <T>(o&, A<B<C<int>> >(x));"),
        ("V<V<int>> >(s) << a; y >> 1;", "V<V<int>> >(s) << a; y >> 1;"),
    ],
)
def test_reads_a_launch_with_spaces_in_its_brackets(text: str, result: str) -> None:
    file = source(text)
    assert file.text.decode() == result
    assert file.raw.decode() == text


@pytest.mark.parametrize(
    "text", ["k<<<<<<<1\n", "<<<<<<< HEAD\na\n", "=======\n", "<<<<<<< a\nb\n>>>>>>> c\n", "/*\n=======\n*/\n"]
)
def test_other_rows_of_signs_are_no_conflict(text: str) -> None:
    assert source(text).text == text.encode()
    assert source(text).gaps == []


# Macros; the expected texts are what GCC makes of them, white space aside


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("#define N 256\nint a[N];", "int a[256];"),
        ("#define N\nvoid N f();", "void f();"),
        ("N\n#define N 1\nN\n#undef N\nN\n#define N 2\nN", "N 1 N 2"),
        ("#define N (1 << \\\n 20) /* big */ // N\nN", "(1 << 20)"),
        ("#define F(x) ((x) + 1)\nF(2) F (3) F\n(4) F F(F(5))", "((2) + 1) ((3) + 1) ((4) + 1) F ((((5) + 1)) + 1)"),
        ("#define F (x) y\nF(2)", "(x) y(2)"),
        ("#define F() f\nF() F( ) F(1)", "f f F(1)"),
        ("#define F(a, b) a b\nF(1) F(1, 2, 3) F((1, 2), 3) F(, 2) F(\"(,\", ')')",
         "F(1) F(1, 2, 3) (1, 2) 3 2 \"(,\" ')'"),
        ("#define F(a) [a]\nF({1) F(a // , )\n + b) F(/* ) */ c)", "[{1] [a + b] [c]"),
        ("#define F(x) x\nF(1", "F(1"),
        ("#define S(x) #x\nS(a  +  \"b\\n\" 'c') S( ) S(a /* x */ b)", "\"a + \\\"b\\\\n\\\" 'c'\" \"\" \"a b\""),
        ("#define C(a, b) a##b\n#define X 1\nC(x, 1) C(X, 2) C(, y) C(x, ) C(,) C(1, e-3)", "x1 X2 y x 1e-3"),
        ("#define C(a, b) C2(a, b)\n#define C2(a, b) a ## b\n#define X y\nC(X, X) C2(X, X)", "yy XX"),
        ("#define L(f, ...) p(f, ##__VA_ARGS__)\nL(\"x\") L(\"x\", 1, 2)", 'p("x") p("x",1, 2)'),
        ("#define L(f, ...) p(f __VA_OPT__(,) __VA_ARGS__)\nL(1) L(1, 2)", "p(1) p(1 , 2)"),
        ("#define L(args...) p(args)\nL() L(1, 2)", "p() p(1, 2)"),
        ("#define S(...) #__VA_ARGS__\nS(a, b)", '"a, b"'),
        ("#define A B\n#define B A\nA B", "A B"),
        ("#define f(x) f(x + 1)\nf(f(1))", "f(f(1 + 1) + 1)"),
        ("#define f(x) x\n#define g f\ng(1) f(g)(2) f(f)(1)", "1 f(2) f(1)"),
        ("#define EMPTY\n#define F() 1\nF EMPTY ()", "F ()"),
        ("#define ARGS 1, 2\n#define F(a, b) a+b\n#define G(x) F(x)\nG(ARGS)", "1+2"),
        ("#define M -1\nint a=-M; b=M-M;", "int a=- -1; b= -1- -1;"),
        ("#define V v<int>\nw<V>", "w<v<int> >"),
        ("#define LINE2(x) x\nLINE2(__LINE__)\n", "2"),
        ("#define U _Pragma(\"unroll\") for\nU (;;) _Pragma(\"x\") a;", "for (;;) a;"),
        ("#define D(n, t) __global__ void n(t* p) { p[0] = 1; }\nD(k, float)",
         "__global__ void k(float* p) { p[0] = 1; }"),
        ("#define RUN(k, ...) k<<<g, b>>>(__VA_ARGS__)\nRUN(f<int, 2>, x);", "f<int<<<g, b>>>(2>, x);"),
        ("#define CHECK(c) do { if ((c) != 0) exit(1); } while (0)\nCHECK(f(a, b[i]));",
         "do { if ((f(a, b[i])) != 0) exit(1); } while (0);"),
        ("#define T(n, ...) n { __VA_ARGS__ }\nT(k, int a = 1,\n b; // c\n f(a, b);)", "k { int a = 1, b; f(a, b); }"),
        ("#define __forceinline inline\n__forceinline int f();", "inline int f();"),
        ("#define F(x) x\n#if F(1) == 1\na\n#endif", "a"),
        ("#define F(x) x\nF(1\n#if 0\n2\n#else\n3\n#endif\n)", "1 3"),
        ("int a = __CUDA_ARCH__;", "int a = 900;"),
        ("#define\n#define 1\n#define F(\n#define G(a\n#define H(1) x\n#undef\nH(1)", "H(1)"),
    ],
)  # fmt: skip
def test_expands(text: str, result: str) -> None:
    assert expanded(text) == result


def test_a_range_comes_from_an_argument_a_use_or_the_file() -> None:
    file = source(
        "#define N 256\n#define CHECK(c) do { e = (c); } while (0)\n#define SUM(a, b) (a + b)\n"
        "x = N * y;\nCHECK(f(&p,  N * sizeof(int)));\nz = SUM(u, CHECK);\nSUM(SUM(1, q), r)\n"
    )
    assert came_from(file, "x = 256 * y") == "x = N * y"
    assert came_from(file, "256") == "N"
    assert came_from(file, "25") == "N"
    assert came_from(file, "256 * y") == "N * y"
    use = "CHECK(f(&p,  N * sizeof(int)))"
    assert came_from(file, "do {") == use
    assert came_from(file, "e = (f(") == use
    assert came_from(file, "f(&p, 256 * sizeof(int))") == "f(&p,  N * sizeof(int))"
    assert came_from(file, "256 * sizeof(int)") == "N * sizeof(int)"
    assert came_from(file, "&p") == "&p"
    assert came_from(file, "while (0);\nz =") == use + ";\nz ="
    assert came_from(file, "z = (u") == "z = SUM(u, CHECK)"
    assert came_from(file, "(u + CHECK)") == "SUM(u, CHECK)"
    assert came_from(file, "CHECK") == "CHECK"
    assert came_from(file, "(1 + q)") == "SUM(1, q)"
    assert came_from(file, "(1 + q) + r") == "SUM(SUM(1, q), r)"
    assert came_from(file, "q") == "q"


def test_an_argument_over_lines_keeps_its_lines() -> None:
    file = source("#define RUN(...) run([&] { __VA_ARGS__ })\nRUN(k<<<g, b>>>(x,\n  y);\n  sync();)\n")
    at = file.text.index(b"sync")
    assert file.span(at, at + 4)[1:5] == (4, 3, 4, 7)
    assert came_from(file, "k<<<g, b>>>(x,\n  y)") == "k<<<g, b>>>(x,\n  y)"


def test_knows_the_use_at_an_offset_and_the_macro_behind_it() -> None:
    file = source("// é\n#define SQ(x) ((x) * \\\n  (x))\n  a = SQ(b);\n")
    at = file.text.index(b"((b)")
    use = file.macro_use(at + 2)
    assert use is not None
    assert (use.name, file.raw[use.start : use.end]) == ("SQ", b"SQ(b)")
    assert use.body[:5] == ("/p/a.cu", 2, 1, 3, 7)
    assert use.macro.params == (b"x",)
    assert file.macro_use(at - 1) is None
    assert file.macro_use(at + len("((b) * (b))")) is None
    assert file.macro_use(len(file.text)) is None
    assert source("a").macro_use(0) is None


def test_every_copied_identifier_is_what_stands_at_its_origin() -> None:
    file = source(
        "#define A(x) x + x /* é */\n#define B(f, ...) f(A(__VA_ARGS__), f##1, #f)\n#define N B(n, m)\n"
        "é = B(ü, A(b)) + N * A(A(c)\n + d);\nB(A, e)(N, A(N, N))\n"
    )
    expansion = file.expansion
    found = 0
    for name in re.finditer(rb"[\w\x80-\xff]+", file.text):
        start, end = file.origin(*name.span())
        if expansion._same[sum(at <= name.start() for at in expansion._at) - 1]:
            assert file.raw[start:end] == name[0]
            found += 1
    assert found > 12
    for start in range(0, len(file.text), 3):
        for end in range(start, len(file.text), 7):
            low, high = file.origin(start, end)
            assert 0 <= low <= high <= len(file.raw)


def test_is_byte_identical_without_macros() -> None:
    text = '#include <x>\r\nint a;\t// x\r\n  #pragma unroll\r\n  for (;;) "s\\"" + \'c\';\r\n/* \n#if */ b\n'
    file = source(text)
    assert file.text.decode() == text.replace("#include <x>", " " * 12).replace("#pragma unroll", " " * 14)


def test_two_readings_only_where_they_differ() -> None:
    one = source("__device__ int f() { return 1; }\n// __CUDA_ARCH__\n")
    assert one.host is one
    two = source("#ifdef __CUDA_ARCH__\nint d = __CUDA_ARCH__;\n#else\nint h;\n#endif\n")
    assert two.text.split() == b"int d = 900;".split()
    assert two.host.text.split() == b"int h;".split()
    assert (two.reading, two.host.reading, two.host.host) == ("device", "host", two.host)
    assert two.host.raw is two.raw
    assert "__CUDA_ARCH__" not in two.macros


# What nobody writes


@pytest.mark.parametrize(
    "text",
    [
        "#define F(x) x\n" + "F(" * 3000 + "1" + ")" * 3000,
        "#define F(x) x\n" + "F(" * 20_000,
        "#define F(x) (x)\nF(" + "(" * 10_000 + ")" * 10_000 + ")",
        "#define F(x) F(x) F(x)\nF(F(F(F(F(F(F(F(F(F(F(F(1))))))))))))",
        "#define A0 x x x x x x x x x x\n"
        + "".join(f"#define A{i} {f'A{i - 1} ' * 10}\n" for i in range(1, 12))
        + "A11\n" * 9,
        "#define F(x) x x\n" + "F(" * 30 + "1" + ")" * 30,
        "<<<<<<< a\n" * 20_000,
        "#" * 100_000,
        "/" * 100_000 + "*" * 100_000,
        "'" * 100_001,
        "\"\\" * 50_000,
        "# /* \n" * 20_000,
        "#define N 1\n" + "N " * 100_000,
        "#if 1\n" * 20_000,
        "\\\n" * 50_000 + "#define A \\\n" * 50_000,
        "#define A(x, ...) x##__VA_ARGS__ #x __VA_OPT__(\n" + "A(1,2)" * 1000,
        "R\"" * 20_000,
        "#define F(a) a\nF(" + "/**/ " * 20_000 + ")",
    ],
    ids=range(18),
)  # fmt: skip
def test_survives(text: str) -> None:
    began = time.process_time()
    file = source(text)
    assert len(file.text) <= 9 * len(text) + (2 << 20)
    file.origin(0, len(file.text))
    assert time.process_time() - began < 6


def test_of_dispatches_in_one_another_that_are_too_many_one_arm_is_read() -> None:
    arms = " ".join(f"case {i}: {{ using T = t{i}; __VA_ARGS__ }} break;" for i in range(9))
    text = f"#define ANY(x, T, ...) switch (x) {{ {arms} }}\n"
    for i in range(6):
        text += f"ANY(x{i}, T{i}, {{ "
    file = source(text + "f(1); g(2);" + " })" * 6)
    assert not file.gaps
    assert file.text.count(b"f(1); g(2);") == 1
    assert file.text.count(b"switch") == 6
    assert file.text.count(b"{") == file.text.count(b"}")


def test_leaves_an_exploding_macro_alone_and_says_so() -> None:
    bombs = "".join(f"#define A{i} A{i + 1} A{i + 1} A{i + 1} A{i + 1}\n" for i in range(20))
    file = source(bombs + "#define N 3\nint a = A0;\nint b = N;\n")
    assert file.text.split() == b"int a = A0; int b = 3;".split()
    (gap,) = file.gaps
    assert file.raw[gap.start : gap.end] == b"A0"
    assert "expands to too much" in gap.why


# Is it CUDA?


@pytest.mark.parametrize(
    "head",
    [
        b"template <class T>\n__global__ void k();", b"static __device__ int x;", b"__shared__ float s[4];",
        b"void f() { k<<<1, 2>>>(x); }", b"k<T, 3><<<dim3(1), b, 0, s>>> (a,\n b);", b"#include <cuda_runtime.h>\n",
        b"  #  include \"cuda_runtime_api.h\"", b"#include <cooperative_groups.h>", b"#include <hip/hip_runtime.h>",
    ],
)  # fmt: skip
def test_is_cuda(head: bytes) -> None:
    assert holds_cuda(head)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"int main() { return 1 << 2 >> (3); }", b"std::cout << \"<<<\" << x >> (y);",
        b"// a __global__ kernel\n",
        b"<<<<<<< HEAD\nf(x);\n=======\ng(x);\n>>>>>>> (theirs)\n",
        b"/* k<<<1, 2>>>(x) */", b"char* s = \"__device__\";",
        b"// #include <cuda_runtime.h>\n", b"#include <vector>", b"int my__global__;", b"a <<< b; c >>> (d);",
        b"#include \"cudalint.h\"",
    ],
)  # fmt: skip
def test_is_not_cuda(head: bytes) -> None:
    assert not holds_cuda(head)
