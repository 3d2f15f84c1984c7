"""What Python libraries take as CUDA: whole texts, and the parts of kernels of which they write the rest.

An ElementwiseKernel or ReductionKernel is a body that the library puts into a loop over all elements. So do we, and
read that as a kernel: what is not in the strings is written around them. An array is a pointer from somewhere, since
its size is not the loop's: whoever calls the kernel chooses both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.frontend.source import BODIES, ENTRIES
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Mapping

    Text = list[ast.Constant | bytes]
    """Literals, and what stands between them and is written nowhere."""
    Given = Mapping[str, list[ast.Constant | bytes]]

NAME = "name"
_START = "identity", "neutral"
"""What a reduction begins with: CuPy's word for it, and PyCUDA's."""
OPTIONAL = (NAME, *_START)
"""Arguments that may be unknown: the name of a kernel, which matters to nobody, and a number of which nothing is said
then."""


class Form(NamedTuple):
    """A call that takes CUDA. ``arguments`` by place; ``parts`` are those that ``write`` makes a text of, if there is
    anything in one of the ``bodies``."""

    arguments: tuple[str, ...]
    bodies: tuple[str, ...]
    parts: tuple[str, ...]
    write: Callable[[Given], Text]

    @property
    def whole(self) -> bool:
        """It takes a text that is compiled as it is."""
        return self.write is _as_it_is

    def text(self, given: Given) -> Text | None:
        """What is compiled; None where nothing is given."""
        return self.write(given) if any(_value(given[x]).strip() for x in self.bodies) else None


def _whole(*arguments: str) -> Form:
    return Form(arguments, arguments[-1:], arguments[-1:], _as_it_is)


def _as_it_is(given: Given) -> Text:
    [text] = given.values()
    return text


class _Parameters(NamedTuple):
    """``declared`` in the kernel's head, ``before`` the loop and ``inside`` it; ``result`` is the type of what the
    first output, or each array, has, None where that is not known."""

    declared: list[str]
    before: str
    inside: str
    result: str | None


_TYPES = {
    "bool": "bool", "bool_": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
    "uint16": "unsigned short", "int32": "int", "uint32": "unsigned int", "int64": "long long", "int": "long long",
    "uint64": "unsigned long long", "float32": "float", "float64": "double", "float": "double",
    "complex64": "complex<float>", "complex128": "complex<double>",
}  # fmt: skip
"""NumPy's types. Another is one that the caller chooses (``T``), or that nothing here knows: an open type."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CUPY_PARAMETER = re.compile(r"\s*((?:\w+\s+)*)(\w+)\s+([A-Za-z_]\w*)\s*")
_C_PARAMETER = re.compile(r"\s*([^,()\[\]]*[\s*])([A-Za-z_]\w*)\s*(\[\s*\])?\s*")
_CUPY_LOOP = """for (ptrdiff_t {i} = static_cast<ptrdiff_t>(blockIdx.x) * blockDim.x + threadIdx.x; {i} < _size;
    {i} += static_cast<ptrdiff_t>(blockDim.x) * gridDim.x) {{
"""
_PYCUDA_HEAD = """size_t tid = threadIdx.x;
size_t total_threads = static_cast<size_t>(gridDim.x) * blockDim.x;
size_t cta_start = static_cast<size_t>(blockDim.x) * blockIdx.x;
size_t i;
"""
_PYCUDA_LOOP = "for (i = cta_start + tid; i < n; i += total_threads) {\n"


def _value(text: Text) -> str:
    values = (x if isinstance(x, bytes) else x.value for x in text)
    return "".join(x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x) for x in values)


def _cupy_parameters(given: Given, element: str = "_ind.get()") -> _Parameters:
    """``T x, raw int32 y``: an element of an array (or a number that all share), and an array. ``element`` is that of
    the inputs."""
    declared, before, inside, result = [], "", "", None
    for part, const in (("in_params", "const "), ("out_params", "")):
        for each in _value(given[part]).split(","):
            match = _CUPY_PARAMETER.fullmatch(each)
            if match is None:
                continue
            words, kind, name = match[1].split(), _TYPES.get(match[2], match[2]), match[3]
            declared.append(f"CArray<{kind}> _raw_{name}")
            constant = "" if "_non_const" in words else const
            if "raw" in words:
                before += f"{constant}{kind} *{name} = _raw_{name}.data();\n"
            else:
                inside += f"{constant}{kind} &{name} = _raw_{name}[{element if const else '_ind.get()'}];\n"
            if not const and result is None:
                result = _TYPES.get(match[2], "")
    return _Parameters([*declared, "CIndexer _ind", "ptrdiff_t _size"], before, inside, result or None)


def _c_parameters(given: Given) -> _Parameters:
    """``float *x, float a``."""
    declared, before, elements = [], "", set()
    for each in _value(given["arguments"]).split(","):
        match = _C_PARAMETER.fullmatch(each)
        if match is None:
            continue
        kind, name = match[1] + ("*" if match[3] else ""), match[2]
        if "*" in kind:
            declared.append(f"CArray _raw_{name}")
            before += f"{kind}{name} = _raw_{name}.data();\n"
            elements.add(" ".join(x for x in kind.replace("*", " ").split() if x != "const"))
        else:
            declared.append(kind + name)
    return _Parameters([*declared, "size_t n"], before, "", elements.pop() if len(elements) == 1 else None)


def _kernel(given: Given, parameters: _Parameters, *body: str | Text) -> Text:
    """A kernel. A text in the body has lines of its own: a comment may end it."""
    text: Text = [*given["preamble"], b"\n__global__ void "]
    name = given.get(NAME, [])
    text += name if _NAME.fullmatch(_value(name)) else [b"kernel"]
    text.append(f"({', '.join(parameters.declared)}) {{\n{parameters.before}".encode())
    for each in body:
        text += [each.encode()] if isinstance(each, str) else [b"\n", *each, b"\n"]
    return [*text, b"}\n"]


def _elementwise(given: Given, parameters: _Parameters, before: str, loop: str) -> Text:
    loop += parameters.inside
    prepared, after = given["loop_prep"], given["after_loop"]
    return _kernel(given, parameters, before, prepared, ";", loop, given["operation"], ";}", after, ";")


def _cupy_elementwise(given: Given) -> Text:
    return _elementwise(given, _cupy_parameters(given), "", _CUPY_LOOP.format(i="i"))


def _pycuda_elementwise(given: Given) -> Text:
    return _elementwise(given, _c_parameters(given), _PYCUDA_HEAD, _PYCUDA_LOOP)


def _reduction(given: Given, parameters: _Parameters, head: str, loop: str) -> Text:
    """The expressions of a reduction, which are arguments of macros there: what one thread of it does."""
    loop += parameters.inside
    start = next((given[x] for x in _START if given.get(x)), None)
    mapped, reduced = given["map_expr"] or [b"0"], given.get("reduce_expr")
    body: list[str | Text]
    if start and reduced and parameters.result:
        head += f"typedef {parameters.result} _type_reduce;\n_type_reduce a = ("
        body = [head, start, f");\n{loop}_type_reduce b = (", mapped, ");\na = (", reduced, ");\n"]
    else:  # of an open type nobody knows what is least or greatest
        body = [f"{head}{loop}_type_reduce a = (", mapped, "), b = a;\n"]
        body += ["(", reduced, ");\n"] if reduced else []
    if given.get("post_map_expr"):
        body += ["(", given["post_map_expr"], ");\n"]
    return _kernel(given, parameters, *body, "}")


def _cupy_reduction(given: Given) -> Text:
    return _reduction(given, _cupy_parameters(given, "_j"), "", _CUPY_LOOP.format(i="_j"))


def _pycuda_reduction(given: Given) -> Text:
    return _reduction(given, _c_parameters(given), _PYCUDA_HEAD, _PYCUDA_LOOP)


_PARAMS, _AROUND = ("in_params", "out_params"), ("preamble", "loop_prep", "after_loop")
_REDUCTION = ("map_expr", "reduce_expr", "post_map_expr")
TAKES = {
    "cupy.RawKernel": _whole("code"),
    "cupy.RawModule": _whole("code"),
    "pycuda.compiler.SourceModule": _whole("source"),
    "pycuda.compiler.DynamicSourceModule": _whole("source"),
    "torch.utils.cpp_extension.load_inline": _whole(NAME, "cpp_sources", "cuda_sources"),
    "cuda.core.Program": _whole("code"),
    "cuda.core.experimental.Program": _whole("code"),
    "cuda.bindings.nvrtc.nvrtcCreateProgram": _whole("src"),
    "cuda.nvrtc.nvrtcCreateProgram": _whole("src"),
    "cupy.ElementwiseKernel": Form(
        (*_PARAMS, "operation", NAME, "reduce_dims", "preamble"), ("operation", *_AROUND),
        (*_PARAMS, "operation", *_AROUND), _cupy_elementwise,
    ),
    "cupy.ReductionKernel": Form(
        (*_PARAMS, *_REDUCTION, "identity", NAME, "reduce_type", "reduce_dims", "preamble"),
        (*_REDUCTION, "preamble"), (*_PARAMS, *_REDUCTION, "preamble"), _cupy_reduction,
    ),
    "pycuda.elementwise.ElementwiseKernel": Form(
        ("arguments", "operation", NAME, "keep", "options", "preamble", "loop_prep", "after_loop"),
        ("operation", *_AROUND), ("arguments", "operation", *_AROUND), _pycuda_elementwise,
    ),
    "pycuda.reduction.ReductionKernel": Form(
        ("dtype_out", "neutral", "reduce_expr", "map_expr", "arguments", NAME, "keep", "options", "preamble"),
        ("reduce_expr", "map_expr", "preamble"), ("arguments", "reduce_expr", "map_expr", "preamble"),
        _pycuda_reduction,
    ),
}  # fmt: skip
"""By full name."""
assert all(
    name.rpartition(".")[2].removeprefix("Dynamic") in (ENTRIES if x.whole else BODIES) for name, x in TAKES.items()
)
