"""What comments state: assume(…) and requires(…) count as the assertions they are, and nonsense is told."""

from __future__ import annotations

import pytest

KERNEL = """\
#define LIMIT (1 << 20)
{above}
template <typename T>
__global__ void scale(T *x, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;{inside}
    if (i < n) x[i] *= 2;
}}
void run(float *x, int n) {{
    int m = n;{host}
    scale<<<(m + 255) / 256, 256>>>(x, m);
}}
"""


def kernel(above="", inside="", host="") -> str:
    return KERNEL.format(above=above, inside=inside, host=host)


def codes(cudalint, text: str) -> list[str]:
    return [f["code"] for f in cudalint.json("--stdin-filename", "k.cu", stdin=text)]


def test_a_host_assumption_counts_like_a_check(cudalint):
    assert codes(cudalint, kernel()) == ["CL204", "CL104"]
    assert codes(cudalint, kernel(host="  // cudalint: assume(n > 0)")) == ["CL104"]
    assert codes(cudalint, kernel(host="  // cudalint: assume(0 < m && m <= LIMIT): the reader stops there")) == []
    assert codes(cudalint, kernel(host="\n    /* cudalint: assume(m >= 1)\n */")) == ["CL104"]


def wide(text: str) -> str:
    return text.replace("int n", "long long n").replace("int m", "long long m")


@pytest.mark.parametrize("place", ["above", "inside"])
def test_a_kernel_requirement_is_known_in_the_kernel(cudalint, place):
    assert "CL103" in codes(cudalint, wide(kernel()))
    assert "CL103" not in codes(cudalint, wide(kernel(**{place: "\n// cudalint: requires(n <= LIMIT)"})))


@pytest.mark.parametrize("word", ["requires", "assume"])
def test_each_part_of_a_conjunction_counts_for_itself(cudalint, word):
    """What it asks of the launch is the launch's to keep; what it says of the sizes is known all the same."""
    text = """\
__global__ void copy(const float4 *a, float4 *c, int n) {{
    {comment}
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) c[i] = a[i];
}}
void run(const float *a, float *c, int n) {{
    if (n > 0) copy<<<n / 1024 + 1, 256>>>((const float4 *)a, (float4 *)c, n);
}}
"""
    assert codes(cudalint, text.format(comment="")) == ["CL212"]
    stated = f"// cudalint: {word}(gridDim.x * blockDim.x >= n / 4 && n % 4 == 0)"
    assert codes(cudalint, text.format(comment=stated)) == []


def test_what_a_string_or_another_comment_holds_states_nothing(cudalint):
    quoted = kernel(host='\n    const char *s = "// cudalint: assume(n > 0)";')
    assert codes(cudalint, quoted) == ["CL204", "CL104"]
    other = kernel(host="\n    // see cudalint: assume(n > 0)")
    assert codes(cudalint, other) == ["CL204", "CL104"]


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        ("// cudalint: assume(n >)", "'n >' is no condition"),
        ("// cudalint: assume(n > 0; m)", "is no condition"),
        ("// cudalint: assume()", "states nothing"),
        ("// cudalint: assume(n = 5)", "is no condition"),
        ("// cudalint: assume(n++ > 3)", "is no condition"),
        ("// cudalint: assume(n > 0), requires(m > 0)", "is no condition"),
        ("// cudalint: assume(n / 0)", "'n / 0' is undefined"),
        ("// cudalint: assume(n > 0 && n % (2 - 2) == 0)", "'n % (2 - 2)' is undefined"),
        ("// cudalint: assume(n < 1 << 64)", "'1 << 64' is undefined"),
        ('// cudalint: assume(n > 0 && "a size")', "is no condition"),
        ("// cudalint: requires(false)", "says nothing of a size"),
        ("// cudalint: assume n > 0", "needs a condition in parentheses"),
        ("// cudalint: requires(n > 0) often", "needs a condition in parentheses"),
        ("// cudalint: asume(n > 0)", "unknown word 'asume' after 'cudalint:'"),
    ],
)
def test_nonsense_is_told(cudalint, comment, says):
    found = cudalint.json("--stdin-filename", "k.cu", "--select", "CL002", stdin=kernel(host=f"\n    {comment}"))
    assert [(f["code"], f["line"]) for f in found] == [("CL002", 10)]
    assert says in found[0]["message"]


@pytest.mark.parametrize(
    ("place", "comment", "line", "says"),
    [
        ("above", "// cudalint: requires(nn > 0 && n % 4 == 0)", 2, "'nn', which nothing in the project declares"),
        ("above", "// cudalint: requires(width >= 1)", 2, "declares: scale has x, n, gridDim, blockDim"),
        ("inside", "\n// cudalint: assume(i2 < LIMIT && i2 > 2)", 6, "'i2'"),
        ("host", "\n    // cudalint: assume(m_ > 0)", 10, "declares: run has x, n"),
        ("above", "// cudalint: requires(blockDin.x == 64)", 2, "did you mean 'blockDim'?"),
    ],
)
def test_a_name_that_nothing_declares_is_told(cudalint, place, comment, line, says):
    found = cudalint.json("--stdin-filename", "k.cu", "--select", "CL002", stdin=kernel(**{place: comment}))
    assert [(f["code"], f["line"]) for f in found] == [("CL002", line)]
    assert says in found[0]["message"]


def test_names_of_the_language_and_of_the_project_are_known(cudalint):
    text = kernel(above="// cudalint: requires(n <= LIMIT && n < INT_MAX && sizeof(T) == 4 && gridDim.x > 1)")
    assert cudalint.json("--stdin-filename", "k.cu", "--select", "CL002", stdin=text) == []


def test_a_condition_inside_an_expression_is_told_and_breaks_nothing(cudalint):
    text = kernel().replace("(x, m)", "(x, // cudalint: assume(m > 0)\n m)")
    found = cudalint.json("--stdin-filename", "k.cu", stdin=text)
    assert {f["code"] for f in found} == {"CL002", "CL104", "CL204"}
    assert "must stand where a statement may" in next(f["message"] for f in found if f["code"] == "CL002")


def test_what_is_stated_stops_no_experiment(cudalint, write):
    """The launch that breaks a requirement is run as the code has it, and shows what comes of it."""
    write(
        "k.cu",
        "// cudalint: requires(gridDim.x * blockDim.x >= n)\n"
        "__global__ void copy(const float *x, float *y, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = x[i];\n}\n"
        "void run(const float *x, float *y, int n) { copy<<<1, 256>>>(x, y, n); }\n",
    )
    done = cudalint("confirm", "--backend", "sim", "--select", "CL202", "k.cu")
    assert "n = 257   wrong@256" in done.stdout
    assert "at n = 257: held" in done.stdout
