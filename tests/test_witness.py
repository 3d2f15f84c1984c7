"""The witness of each rule: computed from the source, and what hand calculation says it must be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Cudalint

KERNELS = """
#include <cstddef>
__global__ void step(float* x, size_t n) {
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] = 0.0f;
}
__global__ void wide(char* x, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 1;
}
__global__ void narrow(char* x, size_t n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 1;
}
__global__ void one(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 1.0f;
}
__global__ void stride(float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] = 1.0f;
}
__global__ void blockwise(float* sum, const float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x) atomicAdd(sum, x[i]);
}
__global__ void unguarded(float* x) {
    x[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
}
__global__ void lost(float* x, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] += 1.0f;
}
__global__ void image(float* x, int w, int h) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    int i = r * w + c;
    if (i < w * h) x[i] = 1.0f;
}
__global__ void column(float* x, int w, int h) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < h) x[r * w + c] = 1.0f;
}
__global__ void tile(const float* x, float* y, int n) {
    __shared__ float t[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    t[threadIdx.x] = x[i];
    __syncthreads();
    y[i] = t[255 - threadIdx.x];
}
"""
HOST = """
void run(float* x, char* c, int n, size_t m, int w, int h) {{
    {guard}
    dim3 grid(w / 16 + (w % 16 != 0), h / 16 + (h % 16 != 0)), block(16, 16);
    {launch};
}}
"""
GUARD = "if (n <= 0 || m == 0 || w <= 0 || h <= 0) return;"
UP = "<<<(unsigned)(m / 256 + (m % 256 != 0)), 256>>>"

CASES: list[tuple[str, str, dict[str, Any]]] = [
    # 2^24 blocks of 256 threads are the first 2^32.
    ("CL101", f"step{UP}(x, m)", {"grid": [1 << 24, 1, 1], "values": {"product in 32 bits": 0, "product meant": 1 << 32}}),
    ("CL102", f"wide{UP}(c, m)", {
        "sizes": {"m": (1 << 32) + 1}, "thread": {"block": [1 << 24, 0, 0], "thread": [0, 0, 0]},
        "values": {"index in 32 bits": 0, "index meant": 1 << 32}}),
    ("CL103", f"narrow{UP}(c, m)", {
        "sizes": {"m": (1 << 31) + 1}, "values": {"index in 32 bits": -(1 << 31), "index meant": 1 << 31}}),
    # 2^31 - 256 + 1: the sum is 2^31; -2^31 / 256.
    ("CL104", "one<<<(n + 255) / 256, 256>>>(x, n)", {"sizes": {"n": 2147483393}}),
    # T = 160 * 256 = 40,960 and n = 2^31 - T + 1: the thread at 2^31 - T steps to 2^31.
    ("CL108", "stride<<<160, 256>>>(x, n)", {
        "sizes": {"n": (1 << 31) - 40960 + 1},
        "values": {"index before the step": (1 << 31) - 40960, "index after it": -(1 << 31)}}),
    ("CL109", "one<<<(int)ceilf(n / 256.0f), 256>>>(x, n)", {
        "sizes": {"n": (1 << 24) + 1}, "values": {"blocks on x": 65536, "needed": 65537}}),
    ("CL201", "blockwise<<<2, 128>>>(x, x, n)", {"sizes": {"n": 129}, "grid": [2, 1, 1]}),
    ("CL202", "one<<<160, 256>>>(x, n)", {
        "sizes": {"n": 40961}, "values": {"first element without a thread": 40960, "elements without a thread": 1}}),
    ("CL203", "one<<<n / 256, 256>>>(x, n)", {
        "sizes": {"n": 257}, "values": {"first element without a thread": 256, "elements without a thread": 1}}),
    ("CL206", "one<<<n / 256 + (n % 256 != 0), 2048>>>(x, n)", {"block": [2048, 1, 1]}),
    ("CL211", "lost<<<4, 64>>>(x, n)", {
        "sizes": {"n": 65}, "thread": {"block": [1, 0, 0], "thread": [0, 0, 0]}}),
    # n = t + 1: one thread of the last block arrives, t - 1 do not.
    ("CL301", "tile<<<n / 256 + (n % 256 != 0), 256>>>(x, x, n)", {
        "sizes": {"n": 257},
        "values": {"threads of block 1 that arrive": 1, "threads of block 1 that do not": 255}}),
    ("CL501", "image<<<grid, block>>>(x, w, h)", {"sizes": {"w": 1, "h": 2}, "grid": [1, 1, 1], "block": [16, 16, 1]}),
    ("CL502", "column<<<grid, block>>>(x, w, h)", {
        "sizes": {"w": 1}, "thread": {"block": [0, 0, 0], "thread": [1, 0, 0]}}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "launch", "expected"), CASES, ids=[case[0] for case in CASES])
def test_witness(
    code: str, launch: str, expected: dict[str, Any], cudalint: Cudalint, write: Callable[..., Path]
) -> None:
    write("k.cu", KERNELS + HOST.format(guard=GUARD, launch=launch))
    (finding,) = [f for f in cudalint.json("--select", code, "k.cu") if f["code"] == code]
    witness = finding["witness"]
    for key, value in expected.items():
        if isinstance(value, dict):
            assert {k: witness[key][k] for k in value} == value
        else:
            assert witness[key] == value


def test_an_empty_launch_has_the_size_zero(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("k.cu", KERNELS + HOST.format(guard="", launch="one<<<n / 256 + (n % 256 != 0), 256>>>(x, n)"))
    (finding,) = cudalint.json("--select", "CL204", "k.cu")
    assert finding["level"] == "note"
    assert finding["witness"]["sizes"] == {"n": 0}


def test_nothing_lost_is_a_warning(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    kernel = KERNELS.replace("t[255 - threadIdx.x]", "t[threadIdx.x / 2]")
    write("k.cu", kernel + HOST.format(guard=GUARD, launch="tile<<<n / 256 + (n % 256 != 0), 256>>>(x, x, n)"))
    (finding,) = cudalint.json("--select", "CL301", "k.cu")
    assert finding["level"] == "warning"


def test_a_size_that_the_host_checks_drops_a_level(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    checked = GUARD.replace("n <= 0", "n <= 0 || n % 256")
    write("k.cu", KERNELS + HOST.format(guard=checked, launch="tile<<<n / 256, 256>>>(x, x, n)"))
    (finding,) = cudalint.json("--select", "CL301", "k.cu")
    assert finding["level"] == "warning"


def test_a_witness_has_the_launch_that_is_there(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("k.cu", KERNELS + HOST.format(guard=GUARD, launch="tile<<<3, 64>>>(x, x, 130)"))
    (finding,) = cudalint.json("--select", "CL301", "k.cu")
    assert finding["witness"]["grid"] == [3, 1, 1]
    assert finding["witness"]["block"] == [64, 1, 1]
    assert finding["witness"]["sizes"] == {"n": 130}
    # The last block has elements 128 and 129.
    assert finding["witness"]["values"] == {
        "threads of block 2 that arrive": 2,
        "threads of block 2 that do not": 62,
    }


def test_an_exact_launch_drops_a_level(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("k.cu", KERNELS + HOST.format(guard=GUARD, launch="tile<<<4, 256>>>(x, x, 1024)"))
    (finding,) = cudalint.json("--select", "CL301", "k.cu")
    assert finding["level"] == "warning"
    assert "multiple of the block" in finding["message"]


OPEN_BLOCK = """
#include <cstddef>
template <int THREADS>
__global__ void sums(float* y, const float* x, int n) {
    __shared__ float tile[THREADS];
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        tile[threadIdx.x] = x[i];
        __syncthreads();
        y[i] = tile[0];
    }
}
__global__ void copy(char* y, const char* x, std::size_t n) {
    std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
template <std::size_t N, std::size_t THREADS>
struct Copier {
    static constexpr std::size_t blocks = (N + THREADS - 1) / THREADS;
    char *from, *to;
    void run() { copy<<<blocks, THREADS>>>(to, from, N); }
};
"""


def test_a_template_parameter_that_is_the_block_has_its_size(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("open.cu", OPEN_BLOCK)
    found = {f["code"]: f["witness"] for f in cudalint.json("open.cu")}
    assert found["CL302"]["sizes"]["THREADS"] == found["CL302"]["block"][0] == 256
    assert found["CL302"]["sizes"]["n"] == 257
    wrapped = found["CL102"]
    assert wrapped["sizes"] == {"N": 2**32 + 1, "THREADS": 256}
    assert wrapped["block"] == [256, 1, 1]
    assert wrapped["grid"] == [2**24 + 1, 1, 1]


OCCUPANCY = """
__global__ void total(float* sum, const float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(sum, x[i]);
}
__global__ void pairs(float* y, const float* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
    y[i + 64] = x[i + 64];
}
void run(float* sum, float* y, const float* x, int n) {
    int sms, per_sm;
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, total, 256, 0);
    int wanted = n / 256 + (n % 256 != 0);
    total<<<sms * per_sm < wanted ? sms * per_sm : wanted, 256>>>(sum, x, n);
    if (n > 0) pairs<<<(n + 127) / 128, 64>>>(y, x);
}
"""


def test_an_occupancy_is_no_number_of_multiprocessors(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("occupancy.cu", OCCUPANCY)
    (finding,) = cudalint.json("--select", "CL204", "occupancy.cu")
    assert finding["witness"]["sizes"] == {"n": 0, "sms": 40, "per_sm": 4}


def test_the_index_out_of_range_is_the_threads_own(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("occupancy.cu", OCCUPANCY)
    (finding,) = cudalint.json("--select", "CL209", "occupancy.cu")
    assert finding["witness"]["values"] == {"index": 1, "elements": 1}


ROWS = """
__global__ void quads(float4* y, const float* x, int m, int k) {
    int row = blockIdx.x * 128 + threadIdx.x / 2;
    if (row >= m) return;
    for (int i = 0; i < 8; i++) y[8 * row + i] = *reinterpret_cast<const float4*>(x + (8 * row + i) * k);
}
void run(float4* y, const float* x, int m, int k) {
    if (m > 0) quads<<<m / 128 + (m % 128 != 0), 256>>>(y, x, m, k);
}
"""


def test_the_misaligned_offset_is_the_first_that_a_thread_comes_to(
    cudalint: Cudalint, write: Callable[..., Path]
) -> None:
    write("rows.cu", ROWS)
    (finding,) = cudalint.json("--select", "CL408", "rows.cu")
    assert finding["witness"]["thread"] == {"block": [0, 0, 0], "thread": [0, 0, 0]}
    assert finding["witness"]["values"] == {"offset": 257, "width": 4}


HEADS = """
__global__ void largest(float* out, const float* x, int rows) {
    int row = blockIdx.x * 128 + threadIdx.x / 2;
    if (row >= rows) return;
    float v = x[blockIdx.y * rows + row];
    out[blockIdx.y * rows + row] = fmaxf(v, __shfl_xor_sync(0xffffffff, v, 2, 4));
}
void run(float* out, const float* x, int batch, int heads, int rows) {
    largest<<<dim3(rows / 128 + (rows % 128 != 0), batch * heads), 256>>>(out, x, rows);
}
"""


def test_sizes_that_a_fault_does_not_need_are_one(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("heads.cu", HEADS)
    (finding,) = cudalint.json("--select", "CL303", "heads.cu")
    assert finding["witness"]["sizes"] == {"rows": 257, "batch": 1, "heads": 1}
    assert finding["witness"]["grid"] == [3, 1, 1]


CUT = """
__global__ void scale(float* x, size_t n) {
    const size_t wide = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int i = wide;
    if (i < n) x[i] *= 2.0f;
}
void run(float* x, size_t n) {
    if (n > 0) scale<<<(unsigned)(n / 256 + (n % 256 != 0)), 256>>>(x, n);
}
"""


def test_a_cut_offset_that_its_test_turns_away_is_no_witness(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("cut.cu", CUT)
    (finding,) = cudalint.json("--select", "CL111", "cut.cu")
    assert finding["witness"]["values"] == {"offset in 32 bits": 0, "offset meant": 1 << 32}


def test_a_coordinate_of_remainders_stays_among_them(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("chunks.cu", """
        __global__ void clear(float* x, const long long* lengths, size_t N, size_t P, size_t K) {
            const long long chunks = 1 + (P - 1) / blockDim.x;
            for (long long c = blockIdx.x; c < (long long)N * chunks; c += gridDim.x) {
                const long long n = c / chunks;
                const long long p = blockDim.x * (c % chunks) + threadIdx.x;
                if (p >= lengths[n]) continue;
                const int offset = n * P * K + p * K;
                x[offset] = 0.0f;
            }
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL111", "chunks.cu")
    sizes = finding["witness"]["sizes"]
    assert sizes["lengths[…]"] <= sizes["P"]
    assert finding["witness"]["values"]["offset meant"] > 1 << 31


def test_a_column_without_the_blocks_number_is_within_the_block(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("rows.cu", """
        __global__ void copy(float* y, const float* x, int w, int h) {
            int i = (blockIdx.x * blockDim.y + threadIdx.y) * w + threadIdx.x;
            if (i < w * h) y[i] = x[i];
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL501", "rows.cu")
    assert finding["witness"]["thread"] == {"block": [0, 0, 0], "thread": [15, 0, 0]}
    assert finding["witness"]["values"] == {"x of that thread": 15, "row it should not touch": 1}


def test_a_size_that_the_host_divides_by_before_is_not_zero(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("split.cu", """
        __global__ void scale(float* x, unsigned length) {
            unsigned row = blockIdx.x * gridDim.y + blockIdx.y;
            for (unsigned i = threadIdx.x; i < length; i += blockDim.x) x[row * length + i] *= 2.0f;
        }
        void run(float* x, unsigned rows, unsigned length, unsigned groups) {
            dim3 grid(groups, rows / groups);
            scale<<<grid, 256>>>(x, length);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL204", "split.cu")
    assert finding["witness"]["sizes"] == {"rows": 0, "groups": 1}
    assert finding["witness"]["values"] == {"grid y": 0}


def test_a_sum_overflows_where_the_branch_that_forms_it_is_taken(
    cudalint: Cudalint, write: Callable[..., Path]
) -> None:
    write("rows.cu", """
        __global__ void scale(float* x, int n) {
            for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] *= 2.0f;
        }
        template <typename T> void run(T* x, int rows, int length) {
            const int packs = length / (4 / sizeof(T));
            dim3 grid, block;
            if (packs <= 1024) {
                block.x = packs;
                grid.x = rows;
            } else {
                block.x = 1024;
                grid.x = (rows * length + 1023) / 1024;
            }
            scale<<<grid, block>>>(x, rows * length);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL104", "rows.cu")
    assert finding["witness"]["sizes"] == {"rows": 1, "length": 2147482625}


CUT_BELOW = """
__global__ void scale(float* x, int n, int most) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= most;
}
void run(float* x, long size, int width) {
    const int n = size, rank = width / 2;
    if (width <= 1 || n <= rank) return;
    scale<<<n / 256 + (n % 256 != 0), 256>>>(x, n, rank);
}
"""


def test_a_cut_count_passes_what_it_is_held_against(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("ranked.cu", CUT_BELOW)
    (finding,) = cudalint.json("--select", "CL106", "ranked.cu")
    assert finding["witness"]["values"] == {"count": (1 << 32) + 2, "count in 32 bits": 2}


INDEXED = """
#include <ATen/cuda/detail/IndexUtils.cuh>
__global__ void scale(float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
void run(const at::Tensor& t) {
    const int n = t.numel();
    TORCH_CHECK(at::cuda::detail::canUse32BitIndexMath(t));
    scale<<<(n + 2) / 3, 3>>>(t.data_ptr<float>(), n);
}
"""


def test_a_tensor_that_32_bits_can_index_has_fewer_elements(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("indexed.cu", INDEXED)
    (finding,) = cudalint.json("--select", "CL104,CL106", "indexed.cu")
    assert finding["code"] == "CL104"
    assert finding["witness"]["sizes"] == {"t.numel()": 2147483646}
    write("indexed.cu", INDEXED.replace("(n + 2) / 3, 3", "(n + 1) / 2, 2"))
    assert cudalint.json("--select", "CL104,CL106", "indexed.cu") == []


INSTANCES = """
#include <cassert>
template <int TILE>
__global__ void largest(float* out, const float* x, int rows) {
    int row = blockIdx.x * 64 + threadIdx.x / 2;
    if (row >= rows) return;
    out[row] = fmaxf(x[row], __shfl_xor_sync(0xffffffff, x[row], 2, 4));
}
template <int WIDTH>
void launch(float* out, const float* x, int rows) {
    constexpr int TILE = WIDTH < 128 ? 64 : 16;
    assert(rows % TILE == 0);
    largest<TILE><<<rows / 64 + (rows % 64 != 0), 128>>>(out, x, rows);
}
void run(float* out, const float* x, int rows, int width) {
    if (rows <= 0) return;
    if (width == 64) launch<64>(out, x, rows);
    if (width == 128) launch<128>(out, x, rows);
}
"""


def test_a_check_that_hangs_on_a_template_parameter_holds_for_each_instance(
    cudalint: Cudalint, write: Callable[..., Path]
) -> None:
    write("instances.cu", INSTANCES)
    (finding,) = cudalint.json("--select", "CL303", "instances.cu")
    assert finding["level"] == "warning"
    assert "no visible launch comes to it" in finding["message"]


def test_a_constant_that_nobody_sees_says_nothing_of_a_block(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write(
        "a.cu",
        '#include "elsewhere.h"\n__global__ void rope(float *x, int heads, int width) {\n'
        "    for (int h = threadIdx.y; h < heads; h += blockDim.y)\n"
        "        for (int c = threadIdx.x; c < width; c += blockDim.x) x[((long long)blockIdx.x * heads + h) * width + c] = 1;\n"
        "}\nvoid run(float *x, int rows, int heads, int width) {\n    if (rows <= 0) return;\n"
        "    rope<<<rows, dim3(LIB_WARP_SIZE, heads < 16 ? 4 : 8)>>>(x, heads, width);\n}\n",
    )
    assert cudalint.concise() == []


WARPS = """
template <int THREADS>
__global__ __launch_bounds__(THREADS) void scan(float* out, size_t nodes, unsigned targets) {
    constexpr int WARPS = THREADS / 32;
    auto i = threadIdx.x / 32 + WARPS * blockIdx.x;
    size_t n = nodes * targets;
    if (i >= n) return;
    out[i] = 1.0f;
}
template void scan<512>(float*, size_t, unsigned);
"""


def test_an_index_of_a_template_is_that_of_its_one_instance(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("warps.cu", WARPS)
    (finding,) = cudalint.json("--select", "CL103", "warps.cu")
    # 16 warps a block: block 2^28 has element 2^32, which wraps to 0 and passes `0 >= n` once more.
    assert finding["witness"]["block"] == [512, 1, 1]
    assert finding["witness"]["thread"]["block"] == [1 << 28, 0, 0]
    assert "gets element 0 again, and element 4,294,967,296 is left out" in finding["message"]


FACTOR = """
__global__ void tiles(char* p, size_t batches, unsigned each) {
    size_t i = blockIdx.x / each;
    if (i < batches) p[i * each + blockIdx.x % each] = 0;
}
void run(char* p, size_t batches, size_t length) {
    if (batches == 0 || length == 0) return;
    const unsigned each = (length - 1) / 32 + 1;
    tiles<<<(unsigned)batches * each, 1>>>(p, batches, each);
}
"""


def test_a_count_that_is_a_factor_of_the_grid_is_told_with_the_other(
    cudalint: Cudalint, write: Callable[..., Path]
) -> None:
    write("factor.cu", FACTOR)
    (finding,) = cudalint.json("--select", "CL106", "factor.cu")
    assert "it is a factor of the grid" in finding["message"]
    assert finding["witness"]["sizes"] == {"batches": 1 << 31, "length": 1}


TENSOR = "struct Tensor { long long size(int) const; int* data() const; };\n"
PLANES = (
    TENSOR
    + """
__global__ void last(int* p, unsigned planes) {
    unsigned i = threadIdx.x + blockIdx.z;
    if (i < planes) p[i] = 1;
}
void run(const Tensor& t) {
    unsigned planes = t.size(0);
    dim3 grid(1, 1, planes);
    last<<<grid, 1>>>(t.data(), planes);
}
"""
)


def test_a_cut_count_is_shown_at_a_size_that_is_launched(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("planes.cu", PLANES)
    (finding,) = cudalint.json("--select", "CL106", "planes.cu")
    # At 2^32 z is 0. The narrow `planes` holds no such number.
    assert finding["witness"]["sizes"] == {"t.size(0)": (1 << 32) + 1}
    assert finding["witness"]["values"]["count in 32 bits"] == 1
    # Up to 2^32 z is either beyond 65,535, which is CL205's, or 0.
    write("planes.cu", PLANES.replace("    dim3 grid", "    if (t.size(0) > 4294967296) return;\n    dim3 grid"))
    assert cudalint.json("--select", "CL106", "planes.cu") == []


ALIAS = (
    TENSOR
    + """
__global__ void fill(int* p, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) p[i] = 1;
}
bool same(const Tensor& t, const Tensor& other) {
    const int mine = t.size(2), its = other.size(2);
    return mine == its;
}
void run(const Tensor& t, const Tensor& other) {
    if (!same(t, other)) return;
    const int n = t.size(2);
    fill<<<n / 64 + (n % 64 != 0), 64>>>(t.data(), n);
}
"""
)


def test_a_cut_count_has_no_name_of_another_functions_variable(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("alias.cu", ALIAS)
    (finding,) = cudalint.json("--select", "CL106", "alias.cu")
    assert finding["witness"]["sizes"] == {"t.size(2)": 1 << 31}


LEVELS = """
__global__ void levels(float* p, int n, int count, int points) {
    __shared__ float s[256];
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        for (int l = 0; l < count; ++l)
            for (int q = 0; q < points; ++q) {
                s[threadIdx.x] = p[i];
                __syncthreads();
                p[i] = s[255 - threadIdx.x];
            }
}
"""


def test_sizes_of_loops_around_a_barrier_stay_small(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("levels.cu", LEVELS)
    (finding,) = cudalint.json("--select", "CL302", "levels.cu")
    assert finding["witness"]["sizes"] == {"n": 257, "count": 1, "points": 1}


EMPTY = """
__global__ void scale(float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] *= 2.0f;
}
"""


def test_no_element_is_lost_where_the_kernel_counts_to_none(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("voxels.cu", EMPTY + """
        void run(float* x, unsigned rows, unsigned columns) {
            const int n = (rows - 1) * (columns - 1);
            scale<<<(n + 127) / 128, 128>>>(x, n);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL204", "voxels.cu")
    assert finding["level"] == "error"
    assert finding["message"].endswith("at rows = 1, columns = 1: the driver refuses the launch")


def test_an_axis_without_blocks_at_sizes_above_zero_is_told_first(
    cudalint: Cudalint, write: Callable[..., Path]
) -> None:
    write("windows.cu", """
        __global__ void slide(float* x, int rows) {
            const int k = blockIdx.y * blockDim.y + threadIdx.y;
            if (k < rows) x[(blockIdx.x * rows + k) * blockDim.x + threadIdx.x] *= 2.0f;
        }
        void run(float* x, int batch, int height, int window) {
            const int rows = height - window + 1;
            dim3 block(32, 4), grid(batch, (rows + 3) / 4);
            slide<<<grid, block>>>(x, rows);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL204", "windows.cu")
    assert finding["level"] == "error"
    assert "has no blocks on y at height = 1, window = 2: " in finding["message"]


def test_an_empty_span_is_a_size_of_zero(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("span.cu", EMPTY + """
        void run(float* x, int begin, int end) {
            scale<<<(end - begin + 127) / 128, 128>>>(x + begin, end - begin);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL204", "span.cu")
    assert finding["level"] == "note"
    assert finding["message"].endswith("at begin = 1, end = 1: the driver refuses the launch")


def test_rows_that_are_taken_from_the_end_are_counted_and_not_named(
    cudalint: Cudalint, write: Callable[..., Path]
) -> None:
    write("rows.cu", """
        __global__ void clear(float* x, int rows) {
            const int row = rows - 1 - (blockIdx.x * blockDim.x + threadIdx.x);
            if (row < 0) return;
            x[row] = 0.0f;
        }
        void run(float* x, int rows) {
            clear<<<rows / 128, 128>>>(x, rows);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL203", "rows.cu")
    assert "come to 128 of 129 elements, and 1 element has no thread" in finding["message"]
    assert finding["witness"]["values"] == {"elements without a thread": 1}


def test_a_difference_of_pointers_has_the_name_of_what_holds_it(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("span.cu", EMPTY + """
        void run(float* first, float* last) {
            int n = last - first;
            if (n > 0 && first != nullptr) scale<<<(n + 127) / 128, 128>>>(first, n);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL104", "span.cu")
    assert finding["witness"]["sizes"] == {"n": 2147483521}


def test_sizes_at_which_elements_are_lost_are_told_first(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("packs.cu", EMPTY + """
        void run(float* x, int groups, int length) {
            if (groups == 0) return;
            scale<<<groups / 4, 128>>>(x, groups * length / 8);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL204", "packs.cu")
    assert finding["level"] == "error"
    assert finding["witness"]["sizes"] == {"groups": 1, "length": 8}


def test_as_few_sizes_as_will_do_are_zero(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("heads.cu", EMPTY + """
        void run(float* x, int batch, int heads, int channels) {
            const int t = channels > 512 ? 512 : channels, n = batch * heads * channels;
            if (channels > 512) scale<<<(n + t - 1) / t, t>>>(x, n);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL204", "heads.cu")
    assert finding["witness"]["sizes"] == {"batch": 0, "heads": 1, "channels": 513}


def test_a_flag_at_zero_is_no_size_of_zero(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("flag.cu", EMPTY + """
        void run(float* x, int n, bool single) {
            scale<<<(n + 31) / 32 / (single ? 1 : 2), 32>>>(x, n);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL204", "flag.cu")
    assert finding["level"] == "error"
    assert finding["witness"]["sizes"] == {"n": 1, "single": 0}
    assert "at n = 1, single = 0: " in finding["message"]


def test_the_block_of_an_empty_grid_is_one_there_may_be(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("sides.cu", """
        __global__ void scale(float* x, int width, int height) {
            const int i = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y * blockDim.y + threadIdx.y;
            if (i < width && k < height) x[k * width + i] *= 2.0f;
        }
        void run(float* x, int width, int height, int across, int down) {
            if (height <= 0) return;
            dim3 block(across, down), grid((width + across - 1) / across, (height + down - 1) / down);
            scale<<<grid, block>>>(x, width, height);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL204", "sides.cu")
    assert finding["witness"]["sizes"] == {"width": 0, "across": 16, "down": 16}


def test_an_open_type_has_the_usual_width(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("typed.cu", EMPTY + """
        template <typename T> void run(float* x, const T* y, int rows, int n) {
            const int packs = n / 4 / (4 / sizeof(T));
            dim3 block(packs <= 1024 ? packs : 1024), grid(packs <= 1024 ? rows : rows * n / 1024 + 1);
            scale<<<grid, block>>>(x, n);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL213", "typed.cu")
    assert finding["witness"]["sizes"]["sizeof(T)"] == 4


def test_a_specialisation_is_launched_where_its_template_is(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("half.cu", """
        #include <cuda_fp16.h>
        template <typename T> __global__ void add(T* x, int rows, int n, bool twice = false) {}
        template <> __global__ void add(half* x, int rows, int n, bool twice) {
            half2* pairs = (half2*)x;
            for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * n; i += blockDim.x * gridDim.x)
                pairs[i] = __hadd2(pairs[i], pairs[i]);
        }
        template <typename T> void run(T* x, int rows, int n) {
            const int lanes = 4 / sizeof(T);
            add<<<rows, 128>>>(x, rows, n / lanes);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL108", "half.cu")
    assert finding["witness"]["block"] == [128, 1, 1]
    sizes, step = finding["witness"]["sizes"], 128 * finding["witness"]["grid"][0]
    assert sizes["rows"] == finding["witness"]["grid"][0]
    assert sizes["rows"] * (sizes["n"] // 2) > 2**31 - step
    assert [x["line"] for x in finding["related"]] == [11]


def test_a_tensor_of_the_cut_count_exists(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("points.cu", """
        __global__ void mark(float* out, int n) {
            size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) out[i] = 1.0f;
        }
        void run(const at::Tensor& points) {
            int n = points.size(0);
            auto out = at::zeros({n, 3});
            if (n == 0) return;
            mark<<<(n - 1) / 256 + 1, 256>>>(out.data_ptr<float>(), n);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL106", "points.cu")
    assert finding["witness"]["sizes"] == {"points.size(0)": 2**32 + 1}  # at 2^31 the tensor has a negative extent


def test_a_divisor_that_is_chosen_has_the_size_at_which_it_adds(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("rows.cu", KERNELS + """
        void run(float* x, int rows, int length) {
            if (rows <= 0) return;
            const int most = length <= 128 ? 256 : 1;
            const int held = rows < most ? rows : most;
            one<<<(held + rows - 1) / held, held>>>(x, rows);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL104", "rows.cu")
    sizes = finding["witness"]["sizes"]
    assert sizes["length"] <= 128
    assert sizes["rows"] == 2**31 - 255


def test_what_callers_check_holds_in_the_witness(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("called.cu", KERNELS + """
        void run(float* x, int n) { one<<<n / 512, 512>>>(x, n); }
        int main(int argc, char** argv) {
            int n = atoi(argv[1]);
            if (n < 512 || n % 8 != 0) return 1;
            float* x;
            cudaMalloc(&x, n * sizeof(float));
            run(x, n);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL203", "called.cu")
    n = finding["witness"]["sizes"]["n"]
    assert n > 512
    assert n % 8 == 0


def test_a_loop_leaves_the_other_axes_of_a_grid(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("halved.cu", KERNELS + """
        void run(float* x, int n, int most) {
            dim3 grid;
            grid.x = n / 256 + 1;
            while (grid.x > most) grid.x >>= 1;
            stride<<<grid, 256>>>(x, n);
        }""")  # fmt: skip
    (finding,) = [x for x in cudalint.json("--select", "CL108", "halved.cu") if x["related"]]
    assert finding["witness"]["grid"][1:] == [1, 1]


def test_a_size_is_named_as_it_is_asked_for(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("lists.cu", """
        #include <vector>
        __global__ void clear(float* rows) { rows[(size_t)blockIdx.x * 256 + threadIdx.x] = 0.0f; }
        void run(std::vector<std::vector<float*>> lists) {
            float* first = lists[0][0];
            int many = lists[0].size();
            clear<<<many, 256>>>(first);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL106", "lists.cu")
    assert list(finding["witness"]["sizes"]) == ["lists[0].size()"]


def test_what_all_threads_add_to_a_start_counts(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("start.cu", """
        __global__ void zero(float* x, int n) {
            for (size_t i = threadIdx.x + blockDim.x + blockIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) x[i] = 0.0f;
        }
        void run(float* x) { zero<<<128, 64>>>(x, 1 << 20); }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL211", "start.cu")
    assert finding["witness"]["values"]["element handled twice"] == 65
    assert finding["witness"]["values"]["element never handled"] == 0


def test_zero_is_the_least_of_what_is_never_negative(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("largest.cu", """
        __global__ void largest(float* out, const float* in, const float* from, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            float v = i < n ? in[i] - from[i] : 0.0f;
            float size = 0.0f;
            if (i < n) v = v * v;
            if (i < n) size = fabsf(in[i]);
            for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
            for (int d = 16; d > 0; d /= 2) size = fmaxf(size, __shfl_xor_sync(0xffffffffu, size, d));
            if (threadIdx.x % 32 == 0) out[i / 32] = v + size;
        }""")  # fmt: skip
    assert not cudalint.json("--select", "CL401", "largest.cu")


def test_what_a_launch_passes_is_of_that_launch(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("groups.cu", """
        #include <cstdint>
        struct Rows { float* x; int64_t columns; int each; };
        __global__ void zero(Rows rows) {
            int i = blockIdx.x * rows.each + threadIdx.x * 2;
            if (i < rows.columns) rows.x[i] = 0.0f;
        }
        void run(const Rows& rows) {
            dim3 grid(rows.columns / rows.each);
            if (rows.each == 320) zero<<<grid, 160>>>(rows);
            else if (rows.each == 256) zero<<<grid, 128>>>(rows);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL103", "groups.cu")
    witness = finding["witness"]
    (block, _, _), (thread, _, _) = witness["thread"]["block"], witness["thread"]["thread"]
    assert (witness["block"], witness["sizes"]["rows.each"]) == ([160, 1, 1], 320)
    assert block * 320 + thread * 2 == 1 << 31


def test_a_parameter_is_as_large_as_the_host_rounds_it(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("rounded.cu", """
        __global__ void copy(float* out, const float* in, int pitch) {
            int row = blockIdx.x * (pitch / 4);
            out[(size_t)blockIdx.x * 32 + threadIdx.x] = in[(size_t)(row * 4) + threadIdx.x];
        }
        void run(float* out, const float* in, size_t rows, size_t width) {
            copy<<<rows, 32>>>(out, in, (width + 127) / 128 * 128);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL102", "rounded.cu")
    assert finding["witness"]["thread"]["block"] == [1 << 24, 0, 0]


def test_a_published_division_rounds_up(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("divided.cu", """
        #include <ATen/ATen.h>
        __global__ void one(int n, float* x) {
            for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] = 1.0f;
        }
        void fill(const at::Tensor& x) {
            const int n = x.size(0);
            one<<<std::min(at::ceil_div(n, 512), 4096), 512>>>(n, x.data_ptr<float>());
            one<<<std::min(at::cuda::ATenCeilDiv(n, 512), 2048), 512>>>(n, x.data_ptr<float>());
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL108", "divided.cu")
    assert list(finding["witness"]["sizes"].values()) == [(1 << 31) - 4096 * 512 + 1]
    assert finding["witness"]["grid"] == [4096, 1, 1]


def test_an_array_has_no_more_elements_than_the_kernel_is_told(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("scored.cu", """
        struct Batch { int items, depth, height; int size() const { return depth * height; } };
        __global__ void zero(float* sums, int items) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            sums[i] = 0.0f;
        }
        struct Loss {
            float* sums = nullptr;
            void allocate(int n) { if (!sums) cudaMalloc(&sums, n * sizeof(float)); }
            void run(const Batch& batch) {
                int items = batch.items;
                allocate(items);
                zero<<<(batch.size() + 511) / 512, 512>>>(sums, items);
            }
        };""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL209", "scored.cu")
    assert finding["witness"]["sizes"]["batch.items"] == 1


def test_a_class_template_s_instance_tells_the_specialisation(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("record.cu", """
        template <typename A, typename B> struct Work { B* in; A* out; unsigned m, n; };
        template <typename A, typename B> __global__ void halve(Work<A, B> work) {}
        template <> __global__ void halve(Work<char, float> work) {
            for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < work.m * (work.n / 2); i += blockDim.x * gridDim.x)
                work.out[i] = work.in[i] / 2;
        }
        template <typename A, typename B> void run(Work<A, B> work) {
            if (work.n / 8 > 1024) return;
            halve<<<work.m, work.n / 8>>>(work);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL108", "record.cu")
    sizes, grid, block = (finding["witness"][x] for x in ("sizes", "grid", "block"))
    m, n = sizes["work.m"], sizes["work.n"]
    assert (grid[0], block[0]) == (m, n // 8)
    assert m * (n // 2) > 2**31 - grid[0] * block[0]
    assert [x["line"] for x in finding["related"]] == [10]


def test_a_member_that_one_number_is_written_to_has_it(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("members.cu", """
        __global__ void zero(float* x, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[i] = 0.0f;
        }
        struct Filter {
            int fixed, tuned, read;
            Filter() { fixed = 64; tuned = 64; read = 64; }
            void tune() { tuned *= 2; }
            void from(void (*file)(int&)) { file(read); }
            void one(float* x, int n) { zero<<<n / fixed, fixed>>>(x, n); }
            void two(float* x, int n) { zero<<<n / tuned, tuned>>>(x, n); }
            void three(float* x, int n) { zero<<<n / read, read>>>(x, n); }
        };""")  # fmt: skip
    found = [list(x["witness"]["sizes"]) for x in cudalint.json("--select", "CL203", "members.cu")]
    assert found == [["n"], ["n", "tuned"], ["n", "read"]]


def test_a_thread_gets_to_the_cut_offset(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("steps.cu", """
        __global__ void score(float* out, const int* lengths, size_t longest, size_t batch, bool rows) {
            int step = blockIdx.y, item = blockIdx.x;
            if (item < batch && step < lengths[item] - 1) {
                int at = rows ? step + item * (longest - 1) : step * batch + item;
                out[at] = 1.0f;
            }
        }
        void run(float* out, const int* lengths, size_t longest, size_t batch, bool rows) {
            score<<<dim3(batch, rows ? longest - 1 : longest), 128>>>(out, lengths, longest, batch, rows);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL111", "steps.cu")
    sizes = finding["witness"]["sizes"]
    assert sizes["rows"] == 1
    assert sizes["longest"] >= 2
    step = sizes["lengths[…]"] - 2
    assert step >= 0
    assert finding["witness"]["values"]["offset meant"] == step + (sizes["batch"] - 1) * (sizes["longest"] - 1)


def test_a_row_has_what_is_read_of_it(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("moments.cu", """
        #include "threads.h"
        __global__ void means(float* out, const float* moments, int pitch, int columns) {
            for (int c = threadIdx.x; c < columns; c += blockDim.x)
                out[blockIdx.x * columns + c] = reinterpret_cast<const float2*>(&moments[blockIdx.x * pitch])[c].x;
        }
        void run(float* out, const float* moments, int pitch, int rows, int columns) {
            means<<<rows, (columns + WARP - 1) / WARP * WARP>>>(out, moments, pitch, columns);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL408", "moments.cu")
    witness = finding["witness"]
    assert witness["sizes"]["pitch"] >= 2 * witness["sizes"]["columns"]
    assert (witness["grid"], witness["block"]) == (None, None)  # a header is missing


def test_a_count_is_cut_where_it_goes_into_what_is_passed(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("turned.cu", """
        #include <vector>
        __global__ void zero(float* x, int rows, int columns) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < rows * columns) x[i] = 0.0f;
        }
        void run(float* x, const std::vector<size_t>& shape, bool turned) {
            int rows = 0, columns = 0;
            if (turned) {
                rows = shape[1];
                columns = shape[0];
            } else {
                rows = shape[0];
                columns = shape[1];
            }
            if (rows > 0 && columns > 0) zero<<<1024, 256>>>(x, rows, columns);
        }""")  # fmt: skip
    found = {x["line"]: x["message"] for x in cudalint.json("--select", "CL106", "turned.cu")}
    assert {line: "`rows`" in message for line, message in found.items()} == {10: True, 11: False, 13: True, 14: False}


def test_an_open_parameter_leaves_arrays_their_elements(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("ranks.cu", """
        template <int RANKS> __global__ void collect(float* const* parts, int count, int own) {
            int first = threadIdx.x + blockDim.x * RANKS * blockIdx.x;
            for (int i = first; i < count; i += blockDim.x * gridDim.x * RANKS) {
                float held[RANKS - 1];
                for (int k = 0; k < RANKS - 1; k++) held[k] = parts[k][i];
                for (int k = 0; k < RANKS - 1; k++) parts[own][i] += held[k];
            }
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL108", "ranks.cu")
    assert finding["witness"]["sizes"]["RANKS"] == 2


def test_a_pack_side_by_side_is_counted_in_scalars(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("packs.cu", """
        __global__ void turn(const float* x, float* y, int rows, int columns) {
            int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
            if (c * 4 + 3 < columns && r < rows) {
                float4 v = reinterpret_cast<const float4*>(x)[r * columns / 4 + c];
                y[(c * 4) * rows + r] = v.x;
                y[(c * 4 + 1) * rows + r] = v.y;
                y[(c * 4 + 2) * rows + r] = v.z;
                y[(c * 4 + 3) * rows + r] = v.w;
            }
        }
        void run(const float* x, float* y, int rows, int columns) {
            turn<<<dim3((columns + 15) / 64, (rows + 15) / 16), dim3(16, 16)>>>(x, y, rows, columns);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL203", "packs.cu")
    assert finding["witness"]["sizes"]["columns"] == finding["witness"]["values"]["elements without a thread"] == 4


def test_an_index_without_a_sign_wraps(cudalint, write):
    """What lies before the first element is element 4,294,967,295 where the index is unsigned, and -1 where not."""
    write(
        "before.cu",
        """\
__global__ void change(const float *a, float *d, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) d[i] = a[i] - a[i - 1];
}
__global__ void turned(const float *a, float *d, unsigned n) {
    __shared__ float s[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? a[i] : 0.0f;
    __syncthreads();
    if (i < n) d[i] = s[126 - threadIdx.x] + a[i - 1];
}
void run(const float *a, float *d, unsigned n) {
    if (n == 0 || n > 1000000) return;
    change<<<(n + 127) / 128, 128>>>(a, d, n);
    turned<<<(n + 127) / 128, 128>>>(a, d, n);
}
""",
    )
    found = cudalint.json("--select", "CL402,CL404", "before.cu")
    assert [(x["code"], x["witness"]["values"]["index"]) for x in found] == [
        ("CL402", 4294967295), ("CL404", 4294967295), ("CL402", -1),
    ]  # fmt: skip
    assert "comes to element 4,294,967,295" in found[0]["message"]
    done = cudalint("confirm", "before.cu", "--select", "CL402,CL404", "--output-format", "json")
    evidence = [x["evidence"] for x in json.loads(done.stdout)]
    assert [(x["verdict"], x["prediction"]["held"]) for x in evidence] == [("confirmed", True)] * 3


def test_a_product_that_a_loop_makes_is_a_size(cudalint, write):
    """The witness names what the launch passes, be it a product of the loop's or a power of two."""
    write(
        "product.cu",
        """\
__global__ void halve(float *a, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    float4 v = *(float4 *)&a[i];
    if (i + 3 < n) *(float4 *)&a[i] = v;
}
__global__ void both(float *a, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i < n) *(float4 *)&a[i] = *(float4 *)&a[i];
}
__global__ void count(unsigned char *a) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] += 1;
}
void run(float *a, unsigned char *b, const long long *extents, int rank, int log) {
    int n = 1;
    for (int k = 0; k < rank; ++k) n *= extents[k];
    if (n <= 0 || n > 1 << 20 || log < 8) return;
    halve<<<(n + 511) / 512, 128>>>(a, n);
    both<<<(n + 511) / 512, 128>>>(a, n);
    count<<<(1UL << log) / 256, 256>>>(b);
}
""",
    )
    found = cudalint.json("--select", "CL102,CL209,CL402", "product.cu")
    assert [(x["code"], x["witness"]["sizes"]) for x in found] == [
        ("CL209", {"n": 1}), ("CL402", {"n": 1}), ("CL102", {"log": 33}),
    ]  # fmt: skip


def test_the_launch_that_is_there_parts_warps_of_a_grid_stride_loop(cudalint, write):
    """Rows that are a product and a grid of the device's size: the finding is of the launch, and has its level."""
    write(
        "rows.cu",
        """\
extern cudaDeviceProp device;
__global__ void sums(const float *m, float *s, int batch, int length, int cols) {
    extern __shared__ float parts[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int row = blockIdx.x * warps + warp; row < batch * length; row += gridDim.x * warps) {
        for (int c = lane; c < cols; c += 32) parts[threadIdx.x] = m[row * cols + c];
        __syncthreads();
        if (warp == 0) s[lane] = parts[lane];
    }
}
void run(const float *m, float *s, int batch, int length, int cols) {
    sums<<<2 * device.multiProcessorCount, 512, 2048>>>(m, s, batch, length, cols);
}
""",
    )
    (found,) = cudalint.json("--select", "CL302", "rows.cu")
    assert found["level"] == "error"
    assert found["witness"]["sizes"]["length"] == 1


def test_blocks_that_lie_between_the_elements_of_a_thread(cudalint, write):
    """`threadIdx.x * blockDim.x + blockIdx.x`: one block comes to element 0, 256 and so on."""
    write(
        "swapped.cu",
        """\
__global__ void fill(float *x, int n) {
    int i = threadIdx.x * blockDim.x + blockIdx.x;
    if (i < n) x[i] = 1.0f;
}
void run(float *x, int n) {
    if (n > 0) fill<<<(n + 255) / 256, 256>>>(x, n);
}
""",
    )
    (found,) = cudalint.json("--select", "CL202", "swapped.cu")
    assert found["witness"]["sizes"] == {"n": 2}
    assert found["witness"]["values"]["first element without a thread"] == 1


def test_the_grid_of_a_witness_is_the_launchs_own_on_every_axis(cudalint, write):
    """What is another axis of the grid is no number to be pinned: one part will do, and the grid has one there."""
    write(
        "parts.cu",
        """\
#include <cstddef>
__global__ void fill(char *x, int m, size_t stride) {
    char *own = x + blockIdx.z * stride;
    size_t i = blockIdx.x * 128 * m + threadIdx.x;
    own[i] = 1;
}
void run(char *x, size_t total, size_t parts, unsigned rows) {
    if (parts == 0 || parts > 1000) return;
    const size_t each = total / parts;
    if (each == 0 || each % 128) return;
    dim3 grid(each / 128, (rows + 15) / 16, parts);
    fill<<<grid, 128>>>(x, 32, each * 32);
}
""",
    )
    (found,) = cudalint.json("--select", "CL102", "parts.cu")
    sizes = found["witness"]["sizes"]
    each = sizes["total"] // sizes["parts"]
    assert found["witness"]["grid"] == [each // 128, (sizes["rows"] + 15) // 16, sizes["parts"]]
    assert sizes["parts"] == 1


def test_the_bound_of_a_witness_is_of_what_is_tested(cudalint, write):
    """A number of tiles that is tested against is the product divided, as the tile's number is."""
    write(
        "tiles.cu",
        """\
#include <cstddef>
__global__ void __launch_bounds__(256) mark(float *x, size_t tiles) {
    const size_t tile = blockIdx.x * blockDim.x / (size_t)32 + threadIdx.x / 32;
    if (tile >= tiles) return;
    if (threadIdx.x % 32 == 0) x[tile] = 1.0f;
}
""",
    )
    (found,) = cudalint.json("--select", "CL102", "tiles.cu")
    assert found["witness"]["sizes"] == {"tiles": (1 << 27) + 1}
    assert found["witness"]["values"] == {"value in 32 bits": 0, "value meant": 1 << 32}
    assert "value 4,294,967,296 becomes 0" in found["message"]


def test_sizes_of_a_witness_are_those_that_the_launch_hangs_on(cudalint, write):
    """Of a local that a branch may set again, what the branch not taken would have set is no size of the case."""
    write(
        "picked.cu",
        """\
#include <cstddef>
struct Config { size_t width, blocks; };
bool enabled();
Config pick(size_t rows);
__global__ void fill(char *x, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 1;
}
void run(char *x, size_t n) {
    if (n == 0) return;
    const bool tuned = n % 32 == 0 && enabled();
    size_t width = 4, blocks;
    if (tuned) {
        const Config config = pick(n);
        width = config.width;
        blocks = config.blocks;
    }
    const size_t items = (n + width - 1) / width;
    if (!tuned) blocks = (items + 255) / 256;
    if (!tuned) fill<<<blocks, 256>>>(x, items);
}
""",
    )
    (found,) = cudalint.json("--select", "CL102", "picked.cu")
    assert list(found["witness"]["sizes"]) == ["n"]
    assert found["witness"]["grid"][0] == (1 << 24) + 1


def test_a_call_in_a_lambda_is_told_where_it_is_written(cudalint, write):
    """A dispatch that runs the lambda it is given is no call of its own to a reader; `f()` is one."""
    write(
        "dispatch.cu",
        """\
#include <cstddef>
#define SWITCH(COND, NAME, ...) [&] { \\
    if (COND) { constexpr bool NAME = true; return __VA_ARGS__(); } \\
    else { constexpr bool NAME = false; return __VA_ARGS__(); } }()
template <bool SET> __device__ void put(char *x, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = SET;
}
__global__ void fill(char *x, size_t n, bool flag) {
    SWITCH(flag, FLAG, [&] {
        if (n > 7) {
            put<FLAG>(x, n);
        }
    });
}
__global__ void clear(char *x, size_t n) {
    auto f = [&] {
        put<false>(x, n);
    };
    f();
}
""",
    )
    found = cudalint.json("--select", "CL102", "dispatch.cu")
    called = {(x["line"], x["message"]) for f in found for x in f["related"]}
    assert called == {(12, "called here from fill"), (18, "called here from clear"), (20, "called here from clear")}


@pytest.mark.parametrize(
    ("reads", "level"),
    [
        ("y[i] = total(t, 256);", "error"),  # a pointer to const: it reads
        ("put(t, 256);", "warning"),  # it may only write
        ("wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> f; wmma::load_matrix_sync(f, t, 16);", "error"),
        ("memcpy(y + i, t + 255 - threadIdx.x, 2);", "error"),
        ("memcpy(y + i, t + threadIdx.x, 2);", "warning"),  # its own
    ],
)  # fmt: skip
def test_a_tile_handed_to_a_function_that_reads_it_is_read(cudalint, write, reads, level):
    write(
        "handed.cu",
        f"""\
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
__device__ half total(const half *row, int count);
__device__ void put(half *row, int count);
__global__ void k(const half *x, half *y, int n) {{
    __shared__ half t[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    t[threadIdx.x] = x[i];
    __syncthreads();
    {reads}
}}
""",
    )
    (found,) = cudalint.json("--select", "CL301", "handed.cu")
    assert found["level"] == level
    assert ("line 12 reads positions of `t`" in found["message"]) is (level == "error")


def test_a_size_that_a_helper_reads_has_its_variables_name(cudalint, write):
    """A helper looks through the arguments: what it finds is the size, whether it found it is none."""
    write(
        "options.cu",
        """\
#include <cstdlib>
static bool given(int argc, char **argv, char key) {
    bool found = false;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == key) found = true;
    return found;
}
static int option(int argc, char **argv, char key) {
    bool found = false;
    int value = -1;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == key) {
            value = atoi(argv[i] + 1);
            found = true;
        }
    }
    if (found) return value;
    return 0;
}
__global__ void sum(float *x, int n) {
    float total = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) total += x[i];
    x[threadIdx.x] = total;
}
int main(int argc, char **argv) {
    int streams = 32;
    if (given(argc, argv, 's')) streams = option(argc, argv, 's');
    float *x;
    cudaMalloc(&x, 2 * streams * sizeof(float));
    sum<<<1, 32>>>(x, 2 * streams);
    return 0;
}
""",
    )
    (found,) = cudalint.json("--select", "CL108", "options.cu")
    assert list(found["witness"]["sizes"]) == ["streams"]
    assert f"at streams = {found['witness']['sizes']['streams']:,} a thread" in found["message"]


def test_a_size_that_is_brought_into_its_range_stays_there(cudalint, write):
    """What a loop over the arguments found is chosen from by what it is: no side of that is a default."""
    write(
        "clamped.cu",
        """\
#include <cstdlib>
#include <cstring>
__global__ void sum(float *x, int n) {
    float total = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) total += x[i];
    x[threadIdx.x] = total;
}
int main(int argc, char **argv) {
    int rows = 16;
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "-r")) rows = atoi(argv[i + 1]);
    int count;
    if (rows < 1000) count = rows;
    else count = 1000;
    float *x;
    cudaMalloc(&x, 1000 * sizeof(float));
    sum<<<1, 32>>>(x, count);
    return 0;
}
""",
    )
    assert cudalint.json("--select", "CL108", "clamped.cu") == []


def test_what_a_method_made_of_its_arguments_is_no_size_of_its_own(cudalint, write):
    write(
        "rows.cu",
        """\
struct Matrix {
    float *data;
    int rows, columns, stride;
    void resize(int r, int c, int pad) { rows = r; columns = c; stride = c + pad; }
    int pitch() const { return stride; }
};
__global__ void squares(int length, const float *rows, int pitch, float *out) {
    const float *row = rows + blockIdx.x * pitch;
    for (int i = threadIdx.x; i < length / 2; i += 256) {
        float2 pair = reinterpret_cast<const float2 *>(row)[i];
        out[blockIdx.x * (length / 2) + i] = pair.x * pair.x + pair.y * pair.y;
    }
}
class Spectrum {
    Matrix window_;
    int length_;
    void run(int frames, float *out) {
        window_.resize(frames, length_, 2);
        if (frames <= 0) return;
        squares<<<frames, 256>>>(length_, window_.data, window_.pitch(), out);
    }
};
""",
    )
    (found,) = cudalint.json("--select", "CL408", "rows.cu")
    sizes = found["witness"]["sizes"]
    assert set(sizes) == {"length_", "frames"}
    assert found["witness"]["values"]["offset"] == sizes["length_"] + 2


def test_names_that_are_not_ascii(cudalint, write):
    """A function, a template's parameter and a size are told as they are written, and found from other functions."""
    write(
        "größe.cu",
        """\
template <int maß> __global__ void größe(float *x, int länge) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= länge) x[i] = maß;
}
void launch(float *x, int länge) { größe<3><<<(länge + 255) / 256, 256>>>(x, länge); }
void caller(float *x, int n) { if (n > 0) launch(x, n); }
""",
    )
    (found,) = cudalint.json("--select", "CL214,CL204", "größe.cu")
    assert (found["code"], found["function"]) == ("CL214", "größe")
    assert found["witness"]["sizes"] == {"länge": 1}
    assert "größe is launched here" in [x["message"] for x in found["related"]]


def test_what_is_cut_back_to_32_bits_is_not_widened(cudalint, write):
    """The offset stays an int, and so does what its bytes are counted with: no cast of the product would help."""
    write(
        "back.cu",
        """\
#include <cstddef>
__global__ void mark(char *x, int m, size_t rest) {
    const int offset = blockIdx.x * 128 * m + threadIdx.x;
    const int byte = offset * sizeof(int) + 1;
    if (byte % m >= rest) x[offset] = 1;
}
void run(char *x, size_t n, int m, size_t rest) {
    if (n == 0 || m <= 0) return;
    mark<<<n / 128 + (n % 128 != 0), 128>>>(x, m, rest);
}
""",
    )
    assert cudalint.json("--select", "CL102", "back.cu") == []


def test_a_product_that_no_pass_multiplies_is_what_it_was_before(cudalint, write):
    """A loop from the third extent on leaves the product at 1 where there are two: it is 0 with three."""
    write(
        "extents.cu",
        """\
#include <vector>
__global__ void halve(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] /= 2;
}
void run(float *x, const std::vector<int> &extents) {
    int product = 1;
    for (int i = 2; i < (int)extents.size(); ++i) product *= extents[i];
    int n = extents.size() > 1 ? product : 1;
    halve<<<(n + 127) / 128, 128>>>(x, n);
}
""",
    )
    (found,) = cudalint.json("--select", "CL204", "extents.cu")
    assert found["witness"]["sizes"] == {"extents.size()": 3, "product": 0}


def test_bytes_are_held_against_another_call_where_nothing_is_launched(
    cudalint: Cudalint, write: Callable[..., Path]
) -> None:
    """One call passes so many elements' bytes, the other the number alone."""
    write(
        "upload.cu",
        """\
double *upload(const double *from, int n) {
    double *to;
    if (n < 1) return nullptr;
    cudaMalloc(&to, n * sizeof(double));
    cudaMemcpy(to, from, n, cudaMemcpyHostToDevice);
    cudaMemset(to, 0, n * sizeof(double));
    return to;
}
""",
    )
    (found,) = cudalint.json("upload.cu")
    assert (found["code"], found["line"]) == ("CL217", 5)


def test_tiles_that_are_not_surely_unfilled(cudalint, write):
    """What is read and not used, and what the caller's block may fill: nothing is known, and nothing said."""
    write(
        "half.cu",
        """\
__global__ void chosen(const float *in, float *out) {
    __shared__ float tile[257];
    tile[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    float next = tile[threadIdx.x + 1];
    out[blockIdx.x * 256 + threadIdx.x] = threadIdx.x < 255 ? next : 0.0f;
}

// The block is the caller's: one of 64 threads reads what it has stored.
__global__ void free_block(float *x) {
    __shared__ float tile[1024];
    if (threadIdx.x < 64) tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x ^ 1];
}

// So is its height: one of 16 rows fills the tile in two passes.
__global__ void strips(const float *in, float *out) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x;
    for (int j = 0; j < 32; j += 16) tile[threadIdx.y + j][threadIdx.x] = in[(threadIdx.y + j) * 4096 + x];
    __syncthreads();
    for (int j = 0; j < 32; j += 16) out[(threadIdx.y + j) * 4096 + x] = tile[threadIdx.x][threadIdx.y + j];
}
void run(const float *in, float *out) { chosen<<<16, 256>>>(in, out); }
""",
    )
    assert cudalint.json("--select", "CL405,CL307", "half.cu") == []


def test_a_sum_overflows_where_what_is_cut_before_fits(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("cut.cu", """
        #include <vector>
        __global__ void twice(float* x, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[i] *= 2;
        }
        void rotate(float* x, const std::vector<float>& row, const std::vector<int>& starts) {
            int rows = starts.size();
            int length = row.size();
            int quarters = (int)(length / 4);
            twice<<<(rows * quarters + 255) / 256, 256>>>(x, rows * quarters);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL104", "cut.cu")
    assert all(size < 1 << 31 for size in finding["witness"]["sizes"].values())


def test_what_two_variables_are_given_has_the_name_of_neither(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("shape.cu", """
        #include <vector>
        __global__ void fill(float* x, int heads, int length) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < length) x[blockIdx.y * length + i] = heads;
        }
        void run(float* x, const std::vector<size_t>& shape, bool packed) {
            int heads, length;
            if (packed) { heads = shape[0]; length = shape[1]; }
            else { heads = shape[1]; length = shape[2]; }
            unsigned rows = heads;
            dim3 grid(1, rows);
            if (packed) fill<<<grid, 256>>>(x, heads, length);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL205", "shape.cu")
    assert "`(packed ? heads : shape[1])`" in finding["message"]


def test_a_count_of_which_nothing_is_left_launches_nothing(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    """2^32 elements come out as none, and the host launches only where there are blocks: one more element shows it."""
    write("shares.cu", """
        #include <cuda/cmath>
        #include <cstdint>
        #include <vector>
        int devices();
        __global__ void scale(float* x, int64_t offset, unsigned n) {
            int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[offset + i] *= 2;
        }
        void scaled(float* x, const std::vector<float>& of, int64_t repeats) {
            unsigned n = of.size();
            unsigned blocks = ::cuda::ceil_div<int64_t>(repeats * n, 256);
            if (blocks > 0) scale<<<blocks, 256>>>(x, 0, n);
        }
        void shared(float* x, const std::vector<float>& of) {
            unsigned n = of.size() / 4;
            for (int k = 0; k < devices(); k++) {
                int64_t share = (n + devices() - 1) / devices();
                if (k * share >= n) break;
                unsigned blocks = ::cuda::ceil_div<int64_t>(n - k * share, 256);
                if (blocks > 0) scale<<<blocks, 256>>>(x, k * share, n);
            }
        }""")  # fmt: skip
    found = cudalint.json("--select", "CL106", "shares.cu")
    assert [x["witness"]["values"] for x in found] == [{"count": (1 << 32) + 1, "count in 32 bits": 1}] * 2


def test_iterators_are_no_sizes(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    """What lies between two positions is one number, whatever the positions are."""
    write("unique.cu", """
        #include <thrust/device_ptr.h>
        #include <thrust/unique.h>
        __global__ void fill(int* x, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[i] = i;
        }
        void run(int* keys, int* x, int n) {
            auto first = thrust::device_pointer_cast(keys);
            auto last = thrust::unique(first, first + n);
            int found = last - first;
            if (found > 0) fill<<<(found + 255) / 256, 256>>>(x, found);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL104", "unique.cu")
    assert finding["witness"]["sizes"] == {"found": (1 << 31) - 255}


def test_a_count_is_not_called_by_what_cannot_hold_it(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    """The number of rays is more than the int of the host that the blocks are counted from can hold."""
    write("rays.cu", """
        #include <cstdint>
        #include <vector>
        __global__ void trace(float* x, int64_t rays) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < rays) x[i] *= 2;
        }
        void run(float* x, const std::vector<float>& rays) {
            int count = rays.size();
            if (count > 0) trace<<<(count - 1) / 256u + 1, 256>>>(x, rays.size());
        }
        void fill(float* x, const std::vector<float>& rays) {
            int64_t count = rays.size();
            if (count > 0) trace<<<(count - 1) / 256u + 1, 256>>>(x, count);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL103", "rays.cu")
    assert finding["witness"]["sizes"] == {"rays.size()": (1 << 31) + 1}
