"""What cudalint knows of functions it cannot see: CUDA's, the C++ standard library's, common check macros."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudalint.ir.nodes import Call

#: Device functions that hold up the whole block until all of its threads arrive.
BLOCK_BARRIERS = frozenset(
    {"__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or", "__barrier_sync"}
)

#: Warp collectives by name, with the position of the value that other lanes receive (None: no value).
WARP_COLLECTIVES: dict[str, int | None] = {
    "__shfl_sync": 1, "__shfl_up_sync": 1, "__shfl_down_sync": 1, "__shfl_xor_sync": 1,
    "__ballot_sync": 1, "__any_sync": 1, "__all_sync": 1, "__match_any_sync": 1, "__match_all_sync": 1,
    "__reduce_add_sync": 1, "__reduce_min_sync": 1, "__reduce_max_sync": 1, "__reduce_and_sync": 1,
    "__reduce_or_sync": 1, "__reduce_xor_sync": 1, "__syncwarp": None,
}  # fmt: skip

#: Collectives whose result is the same in every lane of the warp.
WARP_UNIFORM_RESULTS = frozenset(
    {"__ballot_sync", "__any_sync", "__all_sync", "__match_all_sync"}
    | {f"__reduce_{op}_sync" for op in ("add", "min", "max", "and", "or", "xor")}
)

#: Legacy shuffles and votes without a mask.
LEGACY_COLLECTIVES = frozenset({"__shfl", "__shfl_up", "__shfl_down", "__shfl_xor", "__ballot", "__any", "__all"})

#: Methods by which threads wait for each other or for copies: ``cuda::barrier``, ``cuda::pipeline``.
WAITS = frozenset({"arrive_and_wait", "arrive_and_drop", "consumer_wait", "producer_acquire", "wait"})

#: Device functions that read from a pointer on, with its place among the pointers that they get.
READERS = {
    "load_matrix_sync": 0, "memcpy": 1, "memmove": 1, "memcpy_async": 1, "__pipeline_memcpy_async": 1,
    "cudaMemcpy": 1, "cudaMemcpyAsync": 1, "hipMemcpy": 1, "hipMemcpyAsync": 1,
}  # fmt: skip

#: Results that differ from thread to thread by their nature.
THREAD_RESULTS = frozenset({"__activemask", "clock", "clock64", "__clock", "coalesced_threads", "__match_any_sync"})

#: Calls that do not come back (on the host), so what follows them is not reached.
NO_RETURN = frozenset(
    {"exit", "abort", "_exit", "quick_exit", "terminate", "__trap", "__builtin_trap", "__builtin_unreachable",
     "AT_ERROR", "PD_THROW", "PADDLE_THROW"}
)  # fmt: skip

#: Numbers that the standard library reads from a text: of any value, with no more known of them.
PARSERS = frozenset(
    {"atoi", "atol", "atoll", "atof", "strtol", "strtoll", "strtoul", "strtoull", "strtod", "strtof", "stoi", "stol",
     "stoll", "stoul", "stoull", "stof", "stod"}
)  # fmt: skip

_MATH = [
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "pow",
    "sqrt",
    "rsqrt",
    "cbrt",
    "rcbrt",
    "hypot",
    "norm",
    "fabs",
    "abs",
    "labs",
    "llabs",
    "fmod",
    "remainder",
    "floor",
    "ceil",
    "trunc",
    "round",
    "rint",
    "nearbyint",
    "lrint",
    "llrint",
    "lround",
    "llround",
    "erf",
    "erfc",
    "erfinv",
    "tgamma",
    "lgamma",
    "fma",
    "fdim",
    "copysign",
    "ldexp",
    "scalbn",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
    "sincos",
    "sinpi",
    "cospi",
    "saturate",
    "fdividef",
    "clamp",
    "lerp",
]
#: Functions of their arguments alone.
PURE = frozenset(
    {name + suffix for name in _MATH for suffix in ("", "f", "l")}
    | {"__sinf", "__cosf", "__tanf", "__expf", "__exp10f", "__logf", "__log2f", "__log10f", "__powf", "__fdividef",
       "__saturatef", "__clz", "__clzll", "__popc", "__popcll", "__ffs", "__ffsll", "__brev", "__brevll",
       "__byte_perm", "__mulhi", "__umulhi", "__mul64hi", "__umul64hi", "__sad", "__usad", "__hadd", "__rhadd",
       "__uhadd", "__urhadd", "__fmaf_rn", "__frcp_rn", "__fsqrt_rn", "__float2half", "__half2float",
       "__float2half_rn", "__int2float_rn", "__float2int_rn", "__float2int_rd", "__float2int_rz", "__float2int_ru",
       "__float_as_int", "__int_as_float", "__float_as_uint", "__uint_as_float", "__hmul", "__hsub", "__hfma",
       "__hmul2", "__hadd2", "__hfma2", "__dp4a", "__fadd_rn", "__fmul_rn", "__fsub_rn", "__ddiv_rn", "__funnelshift_l",
       "__funnelshift_r", "__float22half2_rn", "__floats2half2_rn", "__half22float2", "__low2float", "__high2float",
       "__bfloat162float", "__float2bfloat16", "bit_cast", "gcd", "isgreater", "sizeof"}
)  # fmt: skip

#: Functions rounded up to the integer operators that :func:`cudalint.facts.terms.evaluate` computes.
ROUNDING = {
    name + suffix: operator
    for operator, names in {
        **{x: (x,) for x in ("ceil", "floor", "trunc", "sqrt", "fabs", "log2", "logb", "pow", "exp2")},
        "rint": ("rint", "lrint", "llrint", "nearbyint"),
        "round": ("round", "lround", "llround"),
    }.items()
    for name in names
    for suffix in ("", "f")
}

ATOMICS = frozenset(
    f"atomic{op}{scope}"
    for op in ("Add", "Sub", "Exch", "Min", "Max", "Inc", "Dec", "CAS", "And", "Or", "Xor")
    for scope in ("", "_block", "_system")
)

#: Host calls that answer whether the driver took the launches before.
LAUNCH_ERRORS = frozenset({"cudaGetLastError", "cudaPeekAtLastError", "hipGetLastError", "hipPeekAtLastError"})

#: Host calls that ask the device: what they return depends on the machine, not on the data.
DEVICE_QUERIES = frozenset(
    {
        "cudaGetDeviceProperties", "cudaGetDeviceProperties_v2", "cudaDeviceGetAttribute",
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaOccupancyMaxPotentialBlockSize",
        "cudaOccupancyMaxPotentialBlockSizeVariableSMem", "cudaOccupancyMaxPotentialBlockSizeWithFlags",
        "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cudaOccupancyMaxPotentialClusterSize",
        "hipGetDeviceProperties", "hipDeviceGetAttribute", "cuDeviceGetAttribute",
    }
)  # fmt: skip

#: Host calls that answer how much of what they were asked for was there, and which argument says how much that was.
AT_MOST = {"fread": 2, "fwrite": 2, "strnlen": 1}

#: Host calls of the form ``f(&pointer, bytes, …)``.
ALLOCATIONS = frozenset(
    {"cudaMalloc", "cudaMallocManaged", "cudaMallocAsync", "cudaMallocHost", "cudaHostAlloc", "hipMalloc",
     "hipMallocManaged", "hipMallocAsync", "hipHostMalloc"}
)  # fmt: skip

#: Members of ``cudaDeviceProp`` that size launches, by which it is known where its type is not
#: (``at::cuda::getCurrentDeviceProperties()->multiProcessorCount``).
DEVICE_MEMBERS = frozenset(
    {"multiProcessorCount", "maxThreadsPerBlock", "maxThreadsPerMultiProcessor", "maxGridSize", "maxThreadsDim",
     "maxBlocksPerMultiProcessor", "sharedMemPerBlock", "sharedMemPerMultiprocessor", "sharedMemPerBlockOptin"}
)  # fmt: skip

_ASSERTIONS = ("assert", "check", "require", "enforce", "expect", "ensure", "verify")


def parses(call: Call) -> bool:
    """Whether a call reads a number from a text."""
    return call.name.rsplit("::", 1)[-1] in PARSERS


def is_assertion(name: str) -> bool:
    """Whether a call of this name states its first argument: ``assert``, ``TORCH_CHECK``, ``GGML_ASSERT``.

    Macros and functions from headers nobody here can see have only their name to go by.
    """
    lowered = name.rsplit("::", 1)[-1].lower()
    return any(word in lowered for word in _ASSERTIONS)


#: ``TORCH_CHECK_EQ(a, b)`` and its like: the comparison their names end in.
ASSERTION_OPERATORS = {"_eq": "==", "_ne": "!=", "_lt": "<", "_le": "<=", "_gt": ">", "_ge": ">="}
