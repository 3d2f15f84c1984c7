"""Launch contracts: what `cudalint contract` infers and takes from comments, and what it says of each launch."""

from __future__ import annotations

import json

import pytest

ONE = """\
__global__ void one(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
"""


def contracts(cudalint, text: str, write) -> list[dict]:
    write("k.cu", text)
    done = cudalint("contract", "--output-format", "json", "k.cu")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def contract(cudalint, text: str, write) -> dict:
    (found,) = contracts(cudalint, text, write)
    return found


def requires(found: dict) -> list[str]:
    return [each["text"] for each in found["requires"]]


def test_a_one_element_kernel_needs_a_thread_for_each_element(cudalint, write):
    host = """\
void whole(float *x, int n) { one<<<n / 256 + (n % 256 != 0), 256>>>(x, n); }
void some(float *x, int n) { one<<<160, 256>>>(x, n); }
void floored(float *x, int n) { one<<<n / 128, 128>>>(x, n); }
void passed(float *x, int n, int blocks) { one<<<blocks, 128>>>(x, n); }
void checked(float *x, int n, int blocks) { if (n > blocks * 128) return; one<<<blocks, 128>>>(x, n); }
"""
    found = contract(cudalint, ONE + host, write)
    cover = "gridDim.x * blockDim.x >= n"
    assert found["requires"] == [{"kind": "cover", "text": cover, "source": "inferred"}]
    assert (found["kernel"], found["file"], found["line"]) == ("one", "k.cu", 1)
    sides = [next(side for side in ("holds", "broken", "unknown") if each[side]) for each in found["launches"]]
    assert sides == ["holds", "broken", "broken", "unknown", "holds"]
    assert found["launches"][1] == {
        "file": "k.cu", "line": 6, "holds": [], "broken": [cover], "unknown": [], "sizes": {cover: {"n": 40961}},
    }  # fmt: skip


def test_the_text_says_the_same_and_the_exit_code_tells(cudalint, write):
    write("k.cu", ONE + "void some(float *x, int n) { one<<<160, 256>>>(x, n); }\n")
    done = cudalint("contract")
    assert done.returncode == 1
    assert done.stdout == (
        "k.cu:1: one\n  requires gridDim.x * blockDim.x >= n\n"
        "  launched at line 5: broken at n = 40,961: gridDim.x * blockDim.x >= n\n\n"
    )
    assert cudalint("contract", "--exit-zero").returncode == 0


@pytest.mark.parametrize(
    ("body", "needs"),
    [
        ("for (long long i = blockIdx.x * 1ll * blockDim.x + threadIdx.x; i < n; i += 1ll * gridDim.x * blockDim.x)"
         " x[i] = 0;", []),
        ("for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = 0;",
         ["n <= 2147483648 - gridDim.x * blockDim.x"]),
        ("int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4; if (i + 3 < n) x[i] = x[i + 3];",
         ["4 * gridDim.x * blockDim.x >= n - 3"]),
        ("if (threadIdx.x < n) x[blockIdx.x * n + threadIdx.x] = 0;", ["blockDim.x >= n"]),
        ("__shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[0];",
         ["blockDim.x <= 64"]),
        ("x[blockIdx.x * 128 + threadIdx.x] = n;",
         ["128 * gridDim.x <= elements of x", "128 * gridDim.x >= elements of x", "blockDim.x == 128"]),
        ("int i = blockIdx.x * blockDim.x + threadIdx.x; if (x[i + 2] > 0) x[i + n] = 0;",
         ["gridDim.x * blockDim.x + 2 <= elements of x"]),
        ("for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] += 1;", ["gridDim.x == 1"]),
        ("for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = 2 * x[i];", ["gridDim.x == 1"]),
        ("for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(x, 1.0f);", ["gridDim.x == 1"]),
        ("for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = n;", []),
        ("for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = x[i] > 0 ? x[i] : 0;", []),
        ("for (int i = threadIdx.x; i < n; i += blockDim.x) x[blockIdx.x * n + i] += 1;", []),
        ("if (blockIdx.x == 0) for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] += 1;", []),
        ("__shared__ float s[64]; s[threadIdx.x] = n; __syncthreads(); x[threadIdx.x] = s[63 - threadIdx.x];",
         ["blockDim.x == 64"]),
        ("__shared__ float s[64]; s[threadIdx.x] = n; __syncthreads(); for (int k = 0; k < 48; ++k) x[k] = s[k];",
         ["blockDim.x >= 48", "blockDim.x <= 64"]),
        ("__shared__ float s[64]; s[threadIdx.x] = n; __syncthreads(); for (int k = 0; k < 64 && k < n; ++k) x[k] = s[k];",
         ["blockDim.x <= 64"]),
        ("cooperative_groups::this_grid().sync(); if (n > 3) x[blockIdx.x] = n;", ["a cooperative launch"]),
        ("int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n * n) x[i] = 0;",
         ["gridDim.x * blockDim.x >= n * n", "n * n <= 2147483647"]),
        ("int i = blockIdx.x * blockDim.x + threadIdx.x; if (i <= n) x[i] = 0;", ["gridDim.x * blockDim.x >= n"]),
        ("int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 5000) x[i] = 0;", ["gridDim.x * blockDim.x >= 5000"]),
        ("int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; for (int j = i; j < n; ++j)"
         " for (int k = 0; k <= j; ++k) x[j] += x[k];", ["gridDim.x * blockDim.x >= n"]),
        ("int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y; x[r * n + c] = 0;",
         [f"gridDim.x * blockDim.x + gridDim.y * blockDim.y * n - n {sign} elements of x" for sign in ("<=", ">=")]),
        ("x[n + blockIdx.x * blockDim.x + threadIdx.x] = 0;", ["n + gridDim.x * blockDim.x <= elements of x"]),
        ("if (threadIdx.x == 0) x[blockIdx.x] = n;", ["gridDim.x <= elements of x"]),
        ("if (n > 3) x[blockIdx.x] = n;", []),
        ("x[0] += n;", ["gridDim.x * blockDim.x == 1"]),
        ("atomicAdd(x, 1.0f);", []),
        ("__shared__ int s[48]; if (threadIdx.x < 48) s[threadIdx.x] = 0; __syncthreads(); atomicAdd(&s[n], 1);",
         ["blockDim.x >= 48"]),
        ("for (int i = threadIdx.x; i < n; i += 96) x[i] = n;", ["blockDim.x == 96"]),
        ("if (threadIdx.x < 32) for (int i = threadIdx.x; i < n; i += 32) x[i] = n;", []),
        ("__shared__ float s[4][32][8]; s[0][threadIdx.z][threadIdx.y] = n; __syncthreads(); atomicAdd(x, s[0][n][n]);",
         ["blockDim.y <= 8", "blockDim.z <= 32"]),
        ("atomicAdd(x, __shfl_up_sync(~0u, x[n], 1, 8));", ["blockDim.x % 8 == 0"]),
        ("atomicAdd(x, __shfl_xor_sync(~0u, x[n], 1, 8));", ["blockDim.x % 2 == 0"]),
        ("atomicAdd(x, __shfl_xor_sync(~0u, x[0], n, 8));", []),
        ("extern __shared__ float s[]; s[threadIdx.y * blockDim.x + threadIdx.x] = n; __syncthreads(); atomicAdd(x, s[n]);",
         ["4 * blockDim.y * blockDim.x bytes of dynamic shared memory"]),
    ],
)  # fmt: skip
def test_what_is_inferred(cudalint, write, body, needs):
    text = f"#include <cooperative_groups.h>\n__global__ void k(float *x, int n) {{\n    {body}\n}}\n"
    assert requires(contract(cudalint, text, write)) == needs


def test_a_tree_needs_a_power_of_two(cudalint, write):
    text = """\
__global__ void sum(const float *x, float *out) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
void run(const float *x, float *out, int n) {
    sum<<<n, 96, 96 * sizeof(float)>>>(x, out);
    sum<<<n, 128, 128 * sizeof(float)>>>(x, out);
}
"""
    found = contract(cudalint, text, write)
    assert "blockDim.x is a power of two" in requires(found)
    assert ["blockDim.x is a power of two" in each["broken"] for each in found["launches"]] == [True, False]


def test_what_is_stated_is_checked_at_each_launch(cudalint, write):
    text = (
        "#define LIMIT 1000\n// cudalint: requires(n <= LIMIT && blockDim.x == 256): the table\n"
        + ONE
        + "void run(float"
        " *x, int n) {\n    if (n > 0 && n <= 900) one<<<n, 256>>>(x, n);\n    one<<<(n + 127) / 128, 128>>>(x, n);\n}\n"
    )
    found = contract(cudalint, text, write)
    stated = [each for each in found["requires"] if each["source"] == "stated"]
    assert stated == [{"kind": "stated", "text": "n <= 1000 && blockDim.x == 256", "source": "stated"}]
    assert [stated[0]["text"] in each["broken"] for each in found["launches"]] == [False, True]
    assert stated[0]["text"] in found["launches"][0]["holds"]


@pytest.mark.parametrize("condition", ["nosuch > 3", "table(n) > 2"])
def test_what_cannot_be_evaluated_cannot_be_told(cudalint, write, condition):
    text = f"// cudalint: requires({condition})\n{ONE}void run(float *x, int n) {{ one<<<n, 256>>>(x, n); }}\n"
    (launch,) = contract(cudalint, text, write)["launches"]
    assert launch["unknown"] == [condition]


def test_two_sizes_that_the_grid_confuses_break_it(cudalint, write):
    text = """\
__global__ void fill(float *x, int w, int h) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < w && j < h) x[j * w + i] = 0;
}
void run(float *x, int w, int h) { fill<<<dim3((h + 15) / 16, (w + 15) / 16), dim3(16, 16)>>>(x, w, h); }
"""
    (launch,) = contract(cudalint, text, write)["launches"]
    assert launch["broken"] == ["gridDim.x * blockDim.x >= w", "gridDim.y * blockDim.y >= h"]


def test_loops_over_neighbours_ask_for_no_more_threads(cudalint, write):
    text = """\
__global__ void pairs(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int j = i + 1; j < n; ++j) x[i] += x[j];
}
void run(float *x, int n) { pairs<<<(n + 255) / 256, 256>>>(x, n); }
__global__ void smooth(float *y, const float *x, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, first = i - m / 2;
    float sum = 0;
    for (int k = 0; k < m; ++k)
        if (first + k >= 0 && first + k < n) sum += x[first + k];
    y[i] = sum;
}
void go(float *y, const float *x, int m) { smooth<<<4, 256>>>(y, x, 1024, m); }
"""
    pairs, smooth = contracts(cudalint, text, write)
    assert "gridDim.x * blockDim.x >= n" in requires(pairs)
    assert requires(smooth) == ["gridDim.x * blockDim.x <= elements of y", "gridDim.x * blockDim.x >= elements of y"]
    assert not any(launch["broken"] for each in (pairs, smooth) for launch in each["launches"])


def test_a_template_is_told_once_where_its_instances_ask_for_the_same(cudalint, write):
    text = ONE.replace("__global__", "template <typename T>\n__global__").replace("float *x", "T *x") + (
        "void run(float *x, double *y, int n) {\n    one<<<n, 1>>>(x, n);\n    one<<<n, 2>>>(y, n);\n}\n"
    )
    found = contract(cudalint, text, write)
    assert [each["line"] for each in found["launches"]] == [7, 8]


def test_bad_input_is_one_line(cudalint, write):
    write("k.cu", b"\x00\x01")
    for arguments, code in ((["missing.cu"], 2), (["k.cu"], 2), (["--output-format", "xml"], 2)):
        done = cudalint("contract", *arguments)
        assert done.returncode == code
        assert done.stderr.count("\n") == 1


def test_guards_of_two_accesses_ask_for_both_and_of_one_for_the_lesser(cudalint, write):
    write(
        "a.cu",
        "__global__ void two(float *a, float *b, int n, int m) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) a[i] = 1;\n    if (i < m) b[i] = 1;\n}\n"
        "__global__ void both(float *a, int n, int m) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n && i < m) a[i] = 1;\n}\n"
        "void run(float *a, float *b, int n, int m) {\n    if (n <= 0 || m <= 0) return;\n"
        "    two<<<(n - 1) / 256 + 1, 256>>>(a, b, n, m);\n    both<<<(n - 1) / 256 + 1, 256>>>(a, n, m);\n}\n",
    )
    lines = [line.strip() for line in cudalint("contract", "a.cu").stdout.splitlines()]
    assert [line for line in lines if line.startswith("requires")] == [
        "requires gridDim.x * blockDim.x >= n",
        "requires gridDim.x * blockDim.x >= m",
        "requires gridDim.x * blockDim.x >= m || gridDim.x * blockDim.x >= n",
    ]
    assert "launched at line 12: broken at n = 1, m = 257: gridDim.x * blockDim.x >= m" in lines
    assert "launched at line 13: keeps to it" in lines


def test_threads_that_no_test_stops_are_held_against_the_memory_that_is_allocated(cudalint, write):
    text = """\
__global__ void fill(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
void run(float *given, int n) {
    float *x, *table;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&table, 1024 * sizeof(float));
    fill<<<(n + 255) / 256, 256>>>(x);
    fill<<<n / 256, 256>>>(x);
    if (n % 256 == 0) fill<<<n / 256, 256>>>(x);
    fill<<<4, 256>>>(table);
    fill<<<5, 256>>>(table);
    fill<<<3, 256>>>(table);
    fill<<<4, 256>>>(given);
}
"""
    found = contract(cudalint, text, write)
    room, cover = (f"gridDim.x * blockDim.x {sign} elements of x" for sign in ("<=", ">="))
    assert requires(found) == [room, cover]
    assert [(each["holds"], each["broken"]) for each in found["launches"]] == [
        ([cover], [room]), ([room], [cover]), ([room, cover], []), ([room, cover], []), ([cover], [room]),
        ([room], []),  # a table may be longer than what one launch fills
        ([], []),
    ]  # fmt: skip
    assert found["launches"][0]["sizes"] == {room: {"n": 1}}


def test_what_is_stated_of_a_size_alone_is_for_the_host_to_make_sure_of(cudalint, write):
    text = "// cudalint: requires(n <= 1000)\n" + ONE
    calls = ["{}", "if (n <= 900) {}", "if (n > 1000) {}", "if (n >= 2000) {}", "if (n > 900) {}"]
    calls = [each.format("one<<<n, 256>>>(x, n);") for each in calls]
    calls += ["one<<<9, 256>>>(x, 1000);", "one<<<9, 256>>>(x, 1001);"]
    body = "".join(f"    {each}\n" for each in calls)
    launches = contract(cudalint, f"{text}void run(float *x, int n) {{\n{body}}}\n", write)["launches"]
    sides = [next(side for side in ("holds", "broken", "unknown") if "n <= 1000" in each[side]) for each in launches]
    assert sides == ["unknown", "holds", "broken", "broken", "unknown", "holds", "broken"]


def test_a_tree_of_a_given_extent_needs_that_to_be_a_power_of_two(cudalint, write):
    text = """\
__global__ void sum(const float *x, float *out, int width) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    for (int k = width / 2; k > 0; k /= 2) {
        __syncthreads();
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
void run(const float *x, float *out) { sum<<<1, 96, 96 * sizeof(float)>>>(x, out, 96); }
"""
    found = contract(cudalint, text, write)
    assert "width is a power of two" in requires(found)
    assert found["launches"][0]["broken"] == ["width is a power of two"]


def test_the_bytes_of_dynamic_shared_memory_are_compared(cudalint, write):
    text = """\
__global__ void turn(float *x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
void run(float *x, int threads) {
    turn<<<1, 128, 512>>>(x);
    turn<<<1, 128, 128>>>(x);
    turn<<<1, 128>>>(x);
    turn<<<1, threads, threads * sizeof(float)>>>(x);
}
"""
    found = contract(cudalint, text, write)
    assert requires(found) == ["4 * blockDim.x bytes of dynamic shared memory"]
    sides = [next(side for side in ("holds", "broken", "unknown") if each[side]) for each in found["launches"]]
    assert sides == ["holds", "broken", "broken", "holds"]


def test_a_size_that_wraps_at_the_host_is_not_what_the_kernel_is_asked_for(cudalint, write):
    text = """\
__global__ void fill(int count, float *x) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += blockDim.x * gridDim.x) x[i] = 0;
}
void run(float *x, int w, int h) {
    if (w <= 0 || h <= 0) return;
    int count = w * h;
    if (count > 0) fill<<<min(65535, count / 1024 + 1), 1024>>>(count, x);
}
"""
    (launch,) = contract(cudalint, text, write)["launches"]
    assert launch["holds"] == ["count <= 4294967296 - gridDim.x * blockDim.x"]


def test_a_block_that_a_caller_chooses_is_not_known_to_be_whole_warps(cudalint, write):
    text = """\
__global__ void sums(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0;
    for (int k = 16; k > 0; k /= 2) v += __shfl_down_sync(0xffffffffu, v, k);
    if (threadIdx.x % 32 == 0) atomicAdd(out, v);
}
void run(const float *x, float *out, int n, int threads) {
    sums<<<(n + threads - 1) / threads, threads>>>(x, out, n);
    int blocks = (n + threads - 1) / threads;
    sums<<<1, threads>>>(out, out, blocks);
}
void main() {
    int sides[] = {32, 96, 256};
    for (int k = 0; k < 3; ++k) run(nullptr, nullptr, 1000, sides[k]);
}
"""
    found = contract(cudalint, text, write)
    assert ["blockDim.x % 32 == 0" in each["unknown"] for each in found["launches"]] == [True, True]
