"""What CUDA, C and C++ declare: named constants and the return types of functions.

Only types are said here; what a function does is for the analyses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.frontend.fold import fold
from cudalint.frontend.typing import arguments_of, library_class
from cudalint.ir.nodes import Construct
from cudalint.ir.types import (
    BF16,
    BOOL,
    DIM3,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U16,
    U32,
    U64,
    VECTORS,
    VOID,
    Array,
    Float,
    Int,
    Ptr,
    Struct,
    Type,
    Unknown,
    common,
    promote,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.ir.nodes import Expr

    Rule = Callable[[list["Expr"], list["Type | Expr"]], Type]

AXES = frozenset("xyzw")
SPECIALS = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
#: HIP's older spellings of them, macros of its own headers: ``hipBlockIdx_x``.
HIP_SPECIALS = {f"hip{name[0].upper()}{name[1:]}_{axis}": (name, axis) for name in SPECIALS for axis in "xyz"}

#: Macros and enumerators of the standard and CUDA headers.
CONSTANTS: dict[str, tuple[Type, int | float | None]] = {
    "CHAR_BIT": (I32, 8), "CHAR_MAX": (I32, 127), "CHAR_MIN": (I32, -128), "UCHAR_MAX": (I32, 255),
    "SCHAR_MAX": (I32, 127), "SCHAR_MIN": (I32, -128),
    "SHRT_MAX": (I32, 32767), "SHRT_MIN": (I32, -32768), "USHRT_MAX": (I32, 65535),
    "INT_MAX": (I32, I32.hi), "INT_MIN": (I32, I32.lo), "UINT_MAX": (U32, U32.hi),
    "LONG_MAX": (I64, I64.hi), "LONG_MIN": (I64, I64.lo), "ULONG_MAX": (U64, U64.hi),
    "LLONG_MAX": (I64, I64.hi), "LLONG_MIN": (I64, I64.lo), "ULLONG_MAX": (U64, U64.hi),
    "INT8_MAX": (I32, 127), "INT8_MIN": (I32, -128), "UINT8_MAX": (I32, 255),
    "INT16_MAX": (I32, 32767), "INT16_MIN": (I32, -32768), "UINT16_MAX": (I32, 65535),
    "INT32_MAX": (I32, I32.hi), "INT32_MIN": (I32, I32.lo), "UINT32_MAX": (U32, U32.hi),
    "INT64_MAX": (I64, I64.hi), "INT64_MIN": (I64, I64.lo), "UINT64_MAX": (U64, U64.hi),
    "SIZE_MAX": (U64, U64.hi), "PTRDIFF_MAX": (I64, I64.hi), "RAND_MAX": (I32, I32.hi),
    "FLT_MAX": (F32, 3.4028234663852886e38), "FLT_MIN": (F32, 1.1754943508222875e-38),
    "FLT_EPSILON": (F32, 1.1920928955078125e-07), "DBL_MAX": (F64, 1.7976931348623157e308),
    "DBL_MIN": (F64, 2.2250738585072014e-308), "DBL_EPSILON": (F64, 2.220446049250313e-16),
    "INFINITY": (F32, float("inf")), "HUGE_VALF": (F32, float("inf")), "HUGE_VAL": (F64, float("inf")),
    "NAN": (F32, float("nan")), "CUDART_INF_F": (F32, float("inf")), "CUDART_INF": (F64, float("inf")),
    "CUDART_NAN_F": (F32, float("nan")), "CUDART_NAN": (F64, float("nan")),
    "CUDART_MAX_NORMAL_F": (F32, 3.4028234663852886e38), "CUDART_PI_F": (F32, 3.141592653589793),
    "M_PI": (F64, 3.141592653589793), "M_E": (F64, 2.718281828459045), "M_SQRT2": (F64, 1.4142135623730951),
    "M_PI_2": (F64, 1.5707963267948966), "M_LOG2E": (F64, 1.4426950408889634), "M_LN2": (F64, 0.6931471805599453),
    "NULL": (Ptr(VOID), 0), "cudaSuccess": (I32, 0), "hipSuccess": (I32, 0), "EXIT_SUCCESS": (I32, 0),
    "EXIT_FAILURE": (I32, 1),
    "cudaMemcpyHostToHost": (I32, 0), "cudaMemcpyHostToDevice": (I32, 1), "cudaMemcpyDeviceToHost": (I32, 2),
    "cudaMemcpyDeviceToDevice": (I32, 3), "cudaMemcpyDefault": (I32, 4), "hipMemcpyHostToHost": (I32, 0),
    "hipMemcpyHostToDevice": (I32, 1), "hipMemcpyDeviceToHost": (I32, 2), "hipMemcpyDeviceToDevice": (I32, 3),
    "hipMemcpyDefault": (I32, 4), "cudaErrorInvalidValue": (I32, 1), "cudaErrorMemoryAllocation": (I32, 2),
}  # fmt: skip

#: ``numeric_limits<T>`` of the floating types: max, min, lowest, epsilon.
FLOAT_LIMITS: dict[int, tuple[float, float, float]] = {
    16: (65504.0, 6.103515625e-05, 0.0009765625),
    32: (3.4028234663852886e38, 1.1754943508222875e-38, 1.1920928955078125e-07),
    64: (1.7976931348623157e308, 2.2250738585072014e-308, 2.220446049250313e-16),
}


def _type(args: list[Expr], index: int = 0) -> Type:
    if index >= len(args):
        return Unknown("a call without the argument that its type comes from")
    type_ = args[index].type
    return Ptr(type_.element) if isinstance(type_, Array) else type_


def _value(index: int = 0) -> Rule:
    """The type of the argument at ``index``."""
    return lambda args, targs: targs[0] if targs and isinstance(targs[0], Type) else _type(args, index)


def _pointee(args: list[Expr], _targs: list[Type | Expr]) -> Type:
    type_ = _type(args)
    if isinstance(type_, Ptr):
        return type_.element
    return type_ if isinstance(type_, Unknown) else Unknown("what a value that is no pointer points to")


def _extreme(args: list[Expr], targs: list[Type | Expr]) -> Type:
    """``min`` and ``max`` of CUDA, ``std::gcd``: of the common type, so (int, unsigned) is unsigned."""
    if targs and isinstance(targs[0], Type):
        return targs[0]
    a, b = _type(args), _type(args, 1)
    if a is b:
        return a
    return common(a, b)


def _of_two_types(args: list[Expr], targs: list[Type | Expr]) -> Type:
    """``cuda::ceil_div``: of the common type of two numbers, each of its own type."""
    given = [x for x in targs if isinstance(x, Type)]
    a, b = (given[k] if k < len(given) else _type(args, k) for k in (0, 1))
    return a if a is b else common(a, b)


def _std_extreme(args: list[Expr], targs: list[Type | Expr]) -> Type:
    if targs and isinstance(targs[0], Type):
        return targs[0]
    if isinstance(args[0], Construct) and args[0].args:
        # std::min({a, b}): an initializer_list of one type.
        return args[0].args[0].type
    return _type(args)


def _real(args: list[Expr], _targs: list[Type | Expr]) -> Type:
    """An overloaded function of <cmath>: float of float, double of double and of integers."""
    result: Type = F32
    for arg in args:
        type_ = arg.type
        if isinstance(type_, Int):
            result = F64
        elif isinstance(type_, Float):
            if type_.bits == 64:
                result = F64
            elif type_.bits == 16 and len(args) == 1:
                return type_
        else:
            return type_
    return result


def _abs(args: list[Expr], _targs: list[Type | Expr]) -> Type:
    type_ = _type(args)
    return promote(type_) if isinstance(type_, Int) else type_


def _texel(args: list[Expr], targs: list[Type | Expr]) -> Type:
    given = arguments_of.get(args[0].type) if args and isinstance(args[0].type, Struct) else None
    if given and isinstance(given[0], Type):
        return given[0]
    return _first_targ(args, targs)


def _first_targ(_args: list[Expr], targs: list[Type | Expr]) -> Type:
    return (
        targs[0] if targs and isinstance(targs[0], Type) else Unknown("a call whose type its template argument gives")
    )


def _owner(name: str) -> Rule:
    """``std::make_unique<T>(...)``: a smart pointer to what the template argument says."""

    def made(args: list[Expr], targs: list[Type | Expr]) -> Type:
        inner = _first_targ(args, targs)
        if isinstance(inner, Unknown):
            return inner
        result = Struct(f"{name}<{inner}>")
        arguments_of[result] = (inner,)
        return result

    return made


def _product(name: str) -> Rule:
    """``std::make_pair(a, b)``: a class with a member for each argument."""
    return lambda args, targs: library_class(name, tuple(_type(args, index) for index in range(len(args))))


def _member(args: list[Expr], targs: list[Type | Expr]) -> Type:
    """``std::get<1>(t)``"""
    whole, which = _type(args), fold(targs[0]) if targs and not isinstance(targs[0], Type) else None
    members = list(whole.fields.values()) if isinstance(whole, Struct) and whole.fields else []
    return members[which] if which is not None and 0 <= which < len(members) else Unknown("a member of a tuple")


def _element(args: list[Expr], targs: list[Type | Expr]) -> Type:
    return targs[0] if targs and isinstance(targs[0], Type) else _pointee(args, targs)


RETURNS: dict[str, Type | Rule] = {
    "__syncthreads": VOID, "__syncwarp": VOID, "__threadfence": VOID, "__threadfence_block": VOID,
    "__threadfence_system": VOID, "__trap": VOID, "__nanosleep": VOID, "__brkpt": VOID,
    "__syncthreads_count": I32, "__syncthreads_and": I32, "__syncthreads_or": I32,
    "__ballot_sync": U32, "__ballot": U32, "__activemask": U32, "__any_sync": I32, "__all_sync": I32, "__any": I32,
    "__all": I32, "__uni_sync": I32, "__match_any_sync": U32, "__match_all_sync": U32,
    "__mul24": I32, "__umul24": U32, "__mulhi": I32, "__umulhi": U32, "__mul64hi": I64, "__umul64hi": U64,
    "__sad": U32, "__usad": U32, "__hadd": _value(), "__uhadd": U32, "__rhadd": I32, "__urhadd": U32,
    "__popc": I32, "__popcll": I32, "__clz": I32, "__clzll": I32, "__ffs": I32, "__ffsll": I32, "__brev": U32,
    "__brevll": U64, "__byte_perm": U32, "__funnelshift_l": U32, "__funnelshift_r": U32, "__funnelshift_lc": U32,
    "__funnelshift_rc": U32, "__fns": U32, "__dp4a": _value(2), "__laneid": U32, "__lane_id": U32,
    "__reduce_add_sync": _value(1), "__reduce_min_sync": _value(1), "__reduce_max_sync": _value(1),
    "__reduce_and_sync": U32, "__reduce_or_sync": U32, "__reduce_xor_sync": U32,
    "__cvta_generic_to_shared": U64, "__isShared": U32, "__isGlobal": U32,
    "clock": I64, "clock64": I64, "__clock": I32, "__clock64": I64, "globaltimer": U64,
    "printf": I32, "fprintf": I32, "sprintf": I32, "snprintf": I32, "puts": I32, "putchar": I32, "scanf": I32,
    "sscanf": I32, "fscanf": I32, "atoi": I32, "atol": I64, "atoll": I64, "atof": F64, "strtol": I64, "strtoul": U64,
    "strtoll": I64, "strtoull": U64, "strtod": F64, "strtof": F32, "stoi": I32, "stol": I64, "stoul": U64,
    "stoull": U64, "stof": F32, "stod": F64, "strlen": U64, "strcmp": I32, "strncmp": I32, "memcmp": I32, "rand": I32,
    "random": I64, "srand": VOID, "time": I64, "exit": VOID, "abort": VOID, "assert": VOID, "free": VOID,
    "memset": Ptr(VOID), "memcpy": Ptr(VOID), "memmove": Ptr(VOID), "malloc": Ptr(VOID), "calloc": Ptr(VOID),
    "realloc": Ptr(VOID), "aligned_alloc": Ptr(VOID), "fabs": _real, "abs": _abs, "labs": I64, "llabs": I64,
    "getopt": I32, "fread": U64, "fwrite": U64, "fclose": I32, "fseek": I32, "ftell": I64, "getenv": Ptr(I8),
    "strnlen": U64,
    "min": _extreme, "max": _extreme, "gcd": _extreme, "umin": U32, "umax": U32, "llmin": I64, "llmax": I64,
    "ullmin": U64, "ullmax": U64, "std::make_unique": _owner("std::unique_ptr"),
    "std::make_shared": _owner("std::shared_ptr"), "std::make_pair": _product("std::pair"),
    "std::make_tuple": _product("std::tuple"), "std::tie": _product("std::tuple"), "std::get": _member,
    "std::min": _std_extreme, "std::max": _std_extreme, "std::clamp": _value(), "clamp": _value(),
    "__ldg": _element, "__ldcg": _element, "__ldca": _element, "__ldcs": _element, "__ldlu": _element,
    "__ldcv": _element,
    "__stcg": VOID, "__stcs": VOID, "__stwb": VOID, "__stwt": VOID,
    "__pipeline_memcpy_async": VOID, "__pipeline_commit": VOID, "__pipeline_wait_prior": VOID,
    "lround": I64, "lroundf": I64, "lrint": I64, "lrintf": I64, "llround": I64, "llroundf": I64, "llrint": I64,
    "llrintf": I64, "isnan": BOOL, "isinf": BOOL, "isfinite": BOOL, "signbit": BOOL, "__isnanf": I32, "ilogb": I32,
    "__float2half": F16, "__float2half_rn": F16, "__half2float": F32, "__float2bfloat16": BF16,
    "__float2bfloat16_rn": BF16, "__bfloat162float": F32, "__double2half": F16, "__int2half_rn": F16,
    "__ushort_as_half": F16, "__short_as_half": F16, "__half_as_short": I16, "__half_as_ushort": U16,
    "__low2float": F32, "__high2float": F32, "__half22float2": VECTORS["float2"],
    "__float22half2_rn": VECTORS["half2"], "__float2half2_rn": VECTORS["half2"], "__floats2half2_rn": VECTORS["half2"],
    "__half2half2": VECTORS["half2"], "__halves2half2": VECTORS["half2"],
    "__bfloat1622float2": VECTORS["float2"], "__float22bfloat162_rn": VECTORS["nv_bfloat162"],
    "__float2bfloat162_rn": VECTORS["nv_bfloat162"], "__low2half": F16, "__high2half": F16,
    "__int_as_float": F32, "__uint_as_float": F32, "__float_as_int": I32, "__float_as_uint": U32,
    "__longlong_as_double": F64, "__double_as_longlong": I64, "__double2hiint": I32, "__double2loint": I32,
    "__hiloint2double": F64, "__float2int_rd": I32, "__float2int_rn": I32, "__float2int_ru": I32, "__float2int_rz": I32,
    "__float2uint_rd": U32, "__float2uint_rn": U32, "__float2uint_ru": U32, "__float2uint_rz": U32,
    "__double2int_rd": I32, "__double2int_rn": I32, "__double2int_rz": I32, "__int2float_rn": F32,
    "__int2float_rz": F32, "__uint2float_rn": F32, "__uint2float_rz": F32, "__int2double_rn": F64, "__ll2float_rn": F32,
    "__ull2float_rn": F32, "__saturatef": F32, "__fdividef": F32, "norm3df": F32, "rnorm3df": F32,
    "curand": U32, "curand_uniform": F32, "curand_normal": F32, "curand_uniform_double": F64,
    "curand_normal_double": F64, "curand_init": VOID, "tex1Dfetch": _texel, "tex1D": _texel,
    "tex2D": _texel, "tex3D": _texel, "surf2Dread": _first_targ, "surf2Dwrite": VOID,
    "bit_cast": _first_targ, "declval": _first_targ, "forward": _value(), "move": _value(), "swap": VOID,
    "ref": _value(),
    "omp_get_max_threads": I32, "omp_get_thread_num": I32, "omp_get_num_threads": I32, "omp_get_wtime": F64,
    "MPI_Wtime": F64, "sizeof...": U64, "__builtin_expect": I64, "cudaGetErrorString": Ptr(I8),
    "cudaGetErrorName": Ptr(I8),
    "hipGetErrorString": Ptr(I8), "__builtin_assume_aligned": Ptr(VOID), "__nvvm_get_smem_pointer": U32,
    "this_thread_block": Struct("cooperative_groups::thread_block"),
    "this_grid": Struct("cooperative_groups::grid_group"),
    "this_cluster": Struct("cooperative_groups::cluster_group"),
    "cooperative_groups::reduce": _value(1), "cooperative_groups::inclusive_scan": _value(1),
    "cooperative_groups::exclusive_scan": _value(1), "cooperative_groups::sync": VOID, "cooperative_groups::wait": VOID,
    "cooperative_groups::wait_prior": VOID, "cooperative_groups::memcpy_async": VOID,
    "coalesced_threads": Struct("cooperative_groups::coalesced_group"),
    "this_multi_grid": Struct("cooperative_groups::multi_grid_group"),
    "cuda::ceil_div": _of_two_types,
    "isaligned": BOOL, "accumulate": _value(2), "distance": I64, "count": I64, "count_if": I64,
    "is_same_v": BOOL, "is_same": BOOL, "thread_rank": U32, "get_extent": U64,
}  # fmt: skip

for _name in ("Add", "Sub", "Exch", "Min", "Max", "Inc", "Dec", "CAS", "And", "Or", "Xor"):
    for _suffix in ("", "_block", "_system"):
        RETURNS[f"atomic{_name}{_suffix}"] = _pointee
for _name in ("__shfl", "__shfl_up", "__shfl_down", "__shfl_xor"):
    RETURNS[f"{_name}_sync"] = _value(1)
    RETURNS[_name] = _value(0)
for _name in (
    "sqrt", "rsqrt", "cbrt", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
    "asin",
    "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "pow", "fmod", "remainder", "hypot",
    "ceil",
    "floor", "trunc", "round", "rint", "nearbyint", "fma", "fdim", "fmax", "fmin", "erf", "erfc", "tgamma", "lgamma",
    "copysign", "ldexp", "scalbn", "frexp", "modf", "sincos", "normcdf", "rhypot", "sinpi", "cospi", "logb",
):  # fmt: skip
    RETURNS[_name] = _real
    RETURNS[f"{_name}f"] = F32
    RETURNS[f"__{_name}f"] = F32
for _name in ("ldexp", "scalbn", "frexp"):
    RETURNS[_name] = lambda args, targs: _real(args[:1], targs)
RETURNS["sincos"] = RETURNS["sincosf"] = RETURNS["__sincosf"] = VOID
for _mode in ("rn", "rz", "ru", "rd"):
    for _name in ("add", "sub", "mul", "div", "fma", "maf", "sqrt", "rcp"):
        RETURNS[f"__f{_name}_{_mode}"] = F32
        RETURNS[f"__d{_name}_{_mode}"] = F64
    RETURNS[f"__fmaf_{_mode}"] = RETURNS[f"__frsqrt_{_mode}"] = F32
    RETURNS[f"__fma_{_mode}"] = F64
for _name in (
    "hadd", "hsub", "hmul", "hdiv", "hfma", "hneg", "habs", "hmax", "hmin", "hadd2", "hsub2", "hmul2", "hfma2", "h2div",
    "hmax2", "hmin2", "hneg2", "habs2", "hadd_sat", "hmul_sat", "hfma_relu",
):  # fmt: skip
    RETURNS[f"__{_name}"] = _value()
for _name in ("heq", "hne", "hlt", "hle", "hgt", "hge", "hisnan", "hisinf"):
    RETURNS[f"__{_name}"] = BOOL
for _name in (
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tanh",
    "exp2",
    "log2",
    "rcp",
    "ceil",
    "floor",
    "trunc",
    "rint",
):
    RETURNS[f"h{_name}"] = RETURNS[f"h2{_name}"] = _value()
for _name, _vector in VECTORS.items():
    RETURNS[f"make_{_name}"] = _vector
for _source, _from in (("float", "float"), ("double", "double"), ("half", "half")):
    for _target, _to in (("int", I32), ("uint", U32), ("ll", I64), ("ull", U64), ("short", I16), ("ushort", U16)):
        for _mode in ("rn", "rz", "ru", "rd"):
            RETURNS[f"__{_source}2{_target}_{_mode}"] = _to
RETURNS["__vadd4"] = RETURNS["__vsub4"] = RETURNS["__vabsdiffu4"] = U32

#: Methods of cooperative groups whose type depends on the group: ``grid_group`` counts in 64 bits.
_RANKS = frozenset({"thread_rank", "size", "num_threads", "block_rank", "num_blocks"})
_UINT3 = VECTORS["uint3"]
_GROUP_METHODS: dict[str, Type] = {
    "sync": VOID, "thread_index": _UINT3, "group_index": DIM3, "block_index": DIM3, "group_dim": DIM3,
    "dim_threads": DIM3,
    "dim_blocks": DIM3, "grid_dim": DIM3, "is_valid": BOOL, "meta_group_rank": U32, "meta_group_size": U32, "any": I32,
    "all": I32, "ballot": U32, "match_any": U32, "match_all": U32, "barrier_wait": VOID, "arrive_and_wait": VOID,
}  # fmt: skip
_CONTAINER_METHODS: dict[str, Type] = {
    "size": U64, "length": U64, "capacity": U64, "max_size": U64, "count": U64, "empty": BOOL,
    "push_back": VOID, "resize": VOID, "reserve": VOID, "clear": VOID, "assign": VOID, "emplace_back": VOID,
    "pop_back": VOID,
}  # fmt: skip
_TENSOR_METHODS: dict[str, Type] = {
    "size": I64, "numel": I64, "dim": I64, "stride": I64, "ndimension": I64, "is_contiguous": BOOL, "is_cuda": BOOL,
    "element_size": I64, "nbytes": U64, "defined": BOOL,
}  # fmt: skip
_CONTAINERS = (
    "std::vector", "std::array", "std::string", "std::span", "std::map", "std::set", "std::list", "std::deque",
    "std::unordered",
    "thrust::device_vector", "thrust::host_vector", "std::queue", "std::stack", "std::string_view", "std::bitset",
    "thrust::universal_vector",
)  # fmt: skip


def method_type(
    name: str, method: str, first: Type | int | None, args: list[Expr], targs: list[Type | Expr]
) -> Type | None:
    """The type of ``object.method(args)`` for an external class ``name``; ``first`` is its first template argument."""
    if name.startswith("cooperative_groups::"):
        if method in _RANKS:
            return U64 if name.endswith(("::grid_group", "multi_grid_group")) and "block" not in method else U32
        if method in ("shfl", "shfl_up", "shfl_down", "shfl_xor"):
            return _type(args)
        if method == "map_shared_rank":
            return _type(args)
        return _GROUP_METHODS.get(method)
    if name.startswith(_CONTAINERS):
        if (
            method in ("data", "begin", "end", "cbegin", "cend")
            and isinstance(first, Type)
            and not name.startswith("thrust::")
        ):
            return Ptr(first)
        if method in ("front", "back", "at") and isinstance(first, Type) and "map<" not in name.partition(",")[0]:
            return first
        if name == "std::string" and method in ("c_str", "data"):
            return Ptr(I8)
        if name == "std::string" and method in ("find", "rfind"):
            return U64
        return _CONTAINER_METHODS.get(method)
    if name.startswith(("std::unique_ptr", "std::shared_ptr")) and method == "get" and isinstance(first, Type):
        return Ptr(first.element if isinstance(first, Array) else first)
    if name in ("at::Tensor", "torch::Tensor"):
        if method in ("data_ptr", "mutable_data_ptr", "const_data_ptr", "data"):
            return Ptr(targs[0]) if targs and isinstance(targs[0], Type) else Ptr(VOID)
        if method in ("contiguous", "view", "reshape", "to", "clone", "detach", "transpose", "t"):
            return Struct(name)
        return _TENSOR_METHODS.get(method)
    if name.startswith("cub::"):
        return (
            _type(args) if method in ("Sum", "Reduce") and args else VOID if method not in ("Sum", "Reduce") else None
        )
    return None


#: Members of ``cudaDeviceProp`` that are no ``int``.
_DEVICE_SIZES = frozenset({
    "totalGlobalMem", "sharedMemPerBlock", "sharedMemPerMultiprocessor", "sharedMemPerBlockOptin", "totalConstMem",
    "memPitch", "textureAlignment", "texturePitchAlignment", "surfaceAlignment", "reservedSharedMemPerBlock",
})  # fmt: skip


def member_type(name: str, member: str) -> Type | None:
    """The type of ``object.member`` for an object of a CUDA class ``name`` whose fields are not listed."""
    if name != "cudaDeviceProp":
        return None
    if member in _DEVICE_SIZES:
        return U64
    if member in ("maxThreadsDim", "maxGridSize"):
        return Array(I32, 3)
    return Array(I8, 256) if member == "name" else I32


_INDEXED = (
    "std::vector", "std::array", "std::span", "std::deque", "thrust::", "std::unique_ptr", "std::shared_ptr",
    "std::valarray",
)  # fmt: skip


def element_type(name: str, first: Type | int | None) -> Type | None:
    """The type of ``object[i]`` for an object of an external class."""
    if name == "std::string":
        return I8
    if isinstance(first, Type) and name.startswith(_INDEXED):
        return first.element if isinstance(first, Array) else first
    return None
