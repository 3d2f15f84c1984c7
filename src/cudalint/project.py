"""The project: its files, what their ``#include`` lines mean, and which files belong together.

No file outside of the root is read or asked for, but for one that the user names.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from cudalint.frontend import preprocess
from cudalint.frontend.assumed import DEFINE, Wishes, shape, switches, taken
from cudalint.frontend.macros import predefined
from cudalint.frontend.source import MAX_HOST, MAX_SOURCE, SourceFile, holds_cuda, host_of, is_host, read
from cudalint.lazy import pattern
from cudalint.walk import CUDA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cudalint.compdb import Flags
    from cudalint.config import Settings
    from cudalint.frontend.assumed import Switches
    from cudalint.frontend.macros import Table
    from cudalint.frontend.source import Reading

MAX_FILES = 200_000
"""Files of a root that are looked at; in a larger one, the first in the order of their paths a folder at a time."""
MAX_SCANNED = 4 << 20
"""Bytes; a larger file is taken to include nothing when it is asked who includes whom."""

SOURCES = (
    ".cu", ".cuh", ".hip", ".h", ".hh", ".hpp", ".hxx", ".h++", ".inl", ".inc", ".ipp", ".tpp",
    ".c", ".cc", ".cpp", ".cxx", ".c++",
)  # fmt: skip
_KERNEL = re.compile(rb"__global__\b[^;{}#]*?\b(?!__launch_bounds__|__cluster_dims__|__attribute__)([A-Za-z_]\w*)\s*\(")
INCLUDE = pattern(rb"""#[ \t]*include(?:_next)?[ \t]*(["<])([^">\n]+)[">]""")
_MAX_LINKS = 40
_MAX_BESIDE = 16
"""Files that a header may take a name from where it is included."""

_STANDARD_NAMES = """
    algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes ciso646
    climits clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg
    cstdbool cstddef cstdint cstdio cstdlib cstring ctgmath ctime cuchar cwchar cwctype deque exception execution
    expected filesystem format forward_list fstream functional future initializer_list iomanip ios iosfwd iostream
    istream iterator latch limits list locale map memory memory_resource mutex new numbers numeric optional ostream
    print queue random ranges ratio regex scoped_allocator semaphore set shared_mutex source_location span sstream
    stack stdexcept stop_token streambuf string string_view strstream syncstream system_error thread tuple
    type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector version
    assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h locale.h math.h setjmp.h signal.h
    stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h stdnoreturn.h string.h tgmath.h
    threads.h time.h uchar.h wchar.h wctype.h malloc.h memory.h alloca.h unistd.h dirent.h dlfcn.h fcntl.h getopt.h
    glob.h libgen.h netdb.h poll.h pthread.h pwd.h sched.h semaphore.h strings.h syslog.h termios.h utime.h
    windows.h winsock2.h direct.h io.h process.h intrin.h conio.h omp.h mpi.h immintrin.h xmmintrin.h emmintrin.h
    pmmintrin.h smmintrin.h x86intrin.h arm_neon.h
    cuda.h cuda_runtime.h cuda_runtime_api.h cuda_device_runtime_api.h device_launch_parameters.h driver_types.h
    driver_functions.h vector_types.h vector_functions.h builtin_types.h channel_descriptor.h host_defines.h
    host_config.h device_types.h device_functions.h device_atomic_functions.h device_double_functions.h
    sm_20_intrinsics.h sm_30_intrinsics.h sm_35_intrinsics.h sm_60_atomic_functions.h sm_61_intrinsics.h
    math_constants.h math_functions.h math_functions.hpp surface_functions.h surface_types.h texture_types.h
    texture_fetch_functions.h texture_indirect_functions.h library_types.h crt/host_defines.h
    cuda_fp16.h cuda_fp16.hpp cuda_bf16.h cuda_bf16.hpp cuda_fp8.h cuda_fp6.h cuda_fp4.h cuComplex.h mma.h
    cooperative_groups.h cuda_pipeline.h cuda_awbarrier.h cuda_occupancy.h cuda_profiler_api.h cudaProfiler.h
    cuda_gl_interop.h cuda_egl_interop.h cuda_d3d9_interop.h cuda_d3d10_interop.h cuda_d3d11_interop.h cudaGL.h
    cudaEGL.h cudaTypedefs.h cublas.h cublas_v2.h cublas_api.h cublasLt.h cublasXt.h cufft.h cufftw.h cufftXt.h
    curand.h curand_kernel.h curand_mtgp32_host.h curand_mtgp32dc_p_11213.h cusparse.h cusparse_v2.h cusparseLt.h
    cusolver_common.h cusolverDn.h cusolverSp.h cusolverRf.h cusolverMg.h cudnn.h cudnn_frontend.h cutensor.h nccl.h
    nvrtc.h nvToolsExt.h nvtx3.hpp nvml.h npp.h nppi.h nvjpeg.h nvgraph.h cupti.h NvInfer.h NvInferRuntime.h
    NvOnnxParser.h nvshmem.h nvshmemx.h
    hip_runtime.h hipblas.h hipfft.h hiprand.h hipsparse.h rocblas.h
"""
_STANDARD = frozenset(_STANDARD_NAMES.split())
_TOOLKIT = (
    "thrust/", "cub/", "cuda/", "cooperative_groups/", "nvtx3/", "nv/", "crt/", "hip/", "hipcub/", "rocprim/", "sys/",
    "arpa/", "netinet/", "linux/", "bits/", "ext/", "experimental/", "boost/", "Eigen/", "gtest/", "opencv2/", "torch/",
    "ATen/", "c10/", "pybind11/", "tensorflow/", "google/", "GL/", "mpi/",
)  # fmt: skip
"""Folders of well-known libraries: looked for beside the file and on the include paths, but not all over the root."""


class Project(preprocess.Environment):
    """A root folder and its files.

    ``settings`` gives the include paths and defines; ``overlay`` the content of files by absolute
    path, in place of what is on disk; ``compile_commands`` a compilation database. UsageError if that
    cannot be read.
    """

    def __init__(
        self, root: str, settings: Settings | None = None, *, overlay: Mapping[str, bytes] | None = None,
        compile_commands: str | None = None,
    ) -> None:  # fmt: skip
        self.root = os.path.abspath(root)
        self._under = self.root.rstrip(os.sep) + os.sep
        self.overlay = {os.path.abspath(path): data for path, data in (overlay or {}).items()}
        self._include_paths: tuple[str, ...] = ()
        self._defines: tuple[tuple[str, str], ...] = ()
        if settings is not None:
            config = settings.config
            paths = (os.path.normpath(os.path.join(config.base, path)) for path in config.include_paths)
            self._include_paths = tuple(path for path in paths if self.holds(path))
            self._defines = config.defines
        self._flags: dict[str, Flags] = {}
        if compile_commands is not None:
            from cudalint import compdb

            self._flags = {path: flags.inside(self.root) for path, flags in compdb.read(compile_commands).items()}
        self._any_include_paths = tuple(dict.fromkeys(p for f in self._flags.values() for p in f.include_paths))
        self._files: dict[str, SourceFile] = {}
        self.held = 0
        """Bytes of the files that are held."""
        self._folders: dict[str, str | None] = {self.root: self.root}
        self._resolved: dict[tuple[str, str, bool], str | None] = {}
        self._predefined: dict[tuple[object, ...], Table] = {}
        self._paths: list[str] | None = None
        self._by_name: dict[str, list[str]] | None = None
        self._includers: dict[str, list[str]] | None = None
        self._included: dict[str, list[str]] = {}
        """What each file includes, by its text alone; made with the includers."""
        self._switches: dict[str, Switches | None] = {}
        self._defined: dict[str, frozenset[bytes]] = {}
        self._assumed: dict[str, Table] = {}
        self._kernels: dict[str, dict[str, list[str]]] = {}
        self._beside: dict[str, list[str]] = {}
        self._asked: dict[str, set[str]] = {}
        """What headers were seen to leave to the files that include them."""
        self._cuda: dict[str, bool] = {}

    def holds(self, path: str) -> bool:
        """Whether an absolute, normal path is the root or lies under it (by its spelling alone)."""
        return path == self.root or path.startswith(self._under)

    # Files

    def file(self, path: str) -> SourceFile:
        """The file, read once. Never raises for a bad one: that has ``error`` set."""
        found = self._files.get(path)
        if found is None:
            absolute = os.path.abspath(path)
            found = self._files.get(absolute)
            if found is None:
                found = self._files[absolute] = self._read(absolute)
                self.held += len(found.raw)
            self._files[path] = found
        return found

    def _read(self, path: str) -> SourceFile:
        host = host_of(path)
        if host is not None:
            text = self.texts(host).get(path)
            return SourceFile(path, b"", self, error=f"is not in {host} any more") if text is None else text
        data, error = self.overlay.get(path), None
        if data is None:
            data, error = read(path, MAX_HOST if is_host(path) else MAX_SOURCE)
        if is_host(path):
            from cudalint.frontend.embedded import Host

            return Host(path, data, self, error)
        return SourceFile(path, data, self, error=error)

    def texts(self, path: str) -> Mapping[str, SourceFile]:
        """The CUDA texts in a notebook or a Python file, by the paths that they have here; none in any other file."""
        if not is_host(path):
            return {}
        from cudalint.frontend.embedded import Host

        file = self.file(path)
        return file.sources if isinstance(file, Host) else {}

    def replace(self, overlay: Mapping[str, bytes]) -> set[str]:
        """Takes these contents for what is on disk, in place of those that it had; what does not depend on the
        difference stays. Returns the paths whose content differs."""
        old, self.overlay = self.overlay, dict(overlay)
        changed = {path for path in old.keys() | overlay.keys() if old.get(path) != overlay.get(path)}
        if self._includers is None or self._paths is None:
            self._files.clear()
        else:
            stale = changed | self._lacking(changed, old)
            for path in stale.union(*map(self.including, stale)):
                self._files.pop(path, None)
        self._beside.clear()
        for path in [path for path in self._files if host_of(path) is not None or path in changed]:
            del self._files[path]  # the texts in other files see files that do not know of them
        self._kernels = {folder: kernels for folder, kernels in self._kernels.items() if not _inside_host(folder)}
        known = set(self._paths or ())
        changed_sources = [path for path in changed if not is_host(path)]
        if any(
            (path in overlay or os.path.isfile(path)) != (path in known) for path in changed_sources if self.holds(path)
        ):
            # A file came or went: what an include means may be another.
            self._paths = self._by_name = self._includers = None
            for memory in (self._resolved, self._kernels, self._files, self._included):
                memory.clear()
        for path in changed_sources:
            self._cuda.pop(path, None)
            if self._includers is not None:
                for users in self._includers.values():
                    if path in users:
                        users.remove(path)
                self._included.pop(path, None)
                self._note_includes(self._includers, path)
            kernels = self._kernels.get(os.path.dirname(path))
            if kernels is not None:
                for places in kernels.values():
                    if path in places:
                        places.remove(path)
                _note_kernels(kernels, path, self.content(path))
        self._ask_again({path: old[path] if path in old else _on_disk(path) for path in changed_sources})
        return changed

    def _lacking(self, changed: set[str], old: Mapping[str, bytes]) -> set[str]:
        """The headers that may take something else from the files beside them than they did."""
        found = set()
        for path in changed if self._asked else ():
            both = [texts[path] if path in texts else _on_disk(path) for texts in (old, self.overlay)]
            if INCLUDE.findall(both[0]) != INCLUDE.findall(both[1]):
                return set(self._asked)
            for header, names in self._asked.items():
                if path in self._beside.get(header, ()) and any(_lends(text, x) for text in both for x in names):
                    found.add(header)
        return found

    def _ask_again(self, before: Mapping[str, bytes]) -> None:
        """What is taken as defined depends on all files that include one another: on their directives, and on what is
        between those."""
        if not self._assumed or all(shape(text) == shape(self.content(path)) for path, text in before.items()):
            return
        assumed, self._assumed = self._assumed, {}
        for path in before:
            self._switches.pop(path, None)
            self._defined.pop(path, None)
        if any(self.assumed(path) != table for path, table in assumed.items()):
            self._files.clear()

    def trim(self) -> None:
        """Lets go of all files; they are read again when asked for."""
        self._files.clear()
        self.held = 0

    def unit(self, path: str) -> list[SourceFile]:
        """A file and the project files that it includes, however indirectly, each once and in the order met."""
        seen: dict[str, SourceFile] = {}
        stack = [self.file(path)]
        while stack:
            file = stack.pop()
            if file.path not in seen:
                seen[file.path] = file
                stack.extend(reversed(file.includes))
        return list(seen.values())

    # What preprocessing asks

    def predefined(self, path: str, reading: Reading) -> Table:
        flags = self._flags.get(path)
        defines = self._defines if flags is None else (*flags.defines, *self._defines)
        standard = flags and flags.standard
        key = (reading, defines, standard)
        if key not in self._predefined:
            year = _STANDARDS.get(standard[-2:], "") if standard else ""
            extra = (("__cplusplus", year),) if year else ()
            self._predefined[key] = predefined(reading, (*extra, *defines))
        return self._predefined[key]

    def assumed(self, path: str) -> Table:
        """Files that include one another, in whatever direction, have these macros in common. None where a database
        tells what the build defines."""
        if self._flags:
            return {}
        known = self._assumed.get(path)
        if known is None:
            together = self._together(path) if host_of(path) is None else {path}
            wishes = Wishes()
            for each in sorted(together):
                found = self._switches_of(each)
                if found is not None:
                    wishes.add(found.groups, self.predefined(each, "device"), self._undefined(each, found))
            known = taken(wishes)
            self._assumed.update(dict.fromkeys(together, known))
        return known

    def _together(self, path: str) -> set[str]:
        found = {path}
        stack = [path]
        while stack:
            each = stack.pop()
            for other in (*self.includers(each), *self._included.get(each, ())):
                if other not in found:
                    found.add(other)
                    stack.append(other)
        return found

    def _switches_of(self, path: str) -> Switches | None:
        if path not in self._switches:
            self._switches[path] = switches(self.content(path))
        return self._switches[path]

    def _undefined(self, path: str, found: Switches) -> Callable[[bytes, int], bool]:
        """Whether nothing that a file is compiled with defines a name before an offset: neither the file, nor what it
        has included up to there, nor what the files have in sight that include it."""
        around: set[str] | None = None

        def undefined(name: bytes, offset: int) -> bool:
            nonlocal around
            if found.defined.get(name, offset) < offset:
                return False
            if around is None:
                around = self._reached(self.including(path)) - self._reached([path])
            included = (self.resolve(path, what, angled) for at, what, angled in found.includes if at < offset)
            before = self._reached(each for each in included if each is not None)
            return not any(name in self._macros_of(each) for each in (*around, *before))

        return undefined

    def _macros_of(self, path: str) -> frozenset[bytes]:
        """The macros that a file defines or undefines, by its text alone."""
        if path not in self._defined:
            self._defined[path] = frozenset(DEFINE.findall(self.content(path)))
        return self._defined[path]

    def _reached(self, paths: Iterable[str]) -> set[str]:
        """Files and what they include, however indirectly."""
        stack = list(paths)
        found = set(stack)
        while stack:
            for other in self._included.get(stack.pop(), ()):
                if other not in found:
                    found.add(other)
                    stack.append(other)
        return found

    def forced(self, path: str) -> list[str]:
        flags = self._flags.get(path)
        found = (self._locate(included) for included in flags.includes) if flags is not None else ()
        return [included for included in found if included is not None and included != path]

    def standard(self, path: str) -> str | None:
        flags = self._flags.get(path)
        return flags.standard if flags is not None else None

    def resolve(self, path: str, name: str, angled: bool) -> str | None:
        """The file that ``#include`` of ``name`` in ``path`` means: beside it, on the include paths, or of those
        under the root whose path ends so the one that has most folders in common with it. None where several have,
        for what lies outside, and for what does not exist."""
        if (angled and name in _STANDARD) or not name:
            return None
        folder = os.path.dirname(path)
        key = (folder if path not in self._flags else path, name, angled)
        if key not in self._resolved:
            self._resolved[key] = self._search(path, folder, name.replace("\\", "/"), angled)
        return self._resolved[key]

    def _search(self, path: str, folder: str, name: str, angled: bool) -> str | None:
        flags = self._flags.get(path)
        listed = self._any_include_paths if flags is None else flags.include_paths
        host = host_of(path)
        own = (folder,) if host is None else (folder, host, os.path.dirname(host))
        for base in (*own, *listed, *self._include_paths):
            found = self._locate(os.path.normpath(os.path.join(base, name)))
            if found is not None:
                return found
        if os.path.isabs(name) or name in _STANDARD or (angled and name.startswith(_TOOLKIT)):
            return None
        parts = [part for part in name.split("/") if part not in ("", ".")]
        while parts and parts[0] == "..":
            del parts[0]
        if not parts or ".." in parts:
            return None
        ending = os.sep + os.path.join(*parts)
        near = [(_shared(each, folder), each) for each in self._named(parts[-1]) if each.endswith(ending)]
        nearest = max(near, default=(0, ""))[0]
        candidates = [each for distance, each in near if distance == nearest]
        return self._locate(candidates[0]) if len(candidates) == 1 else None

    def _locate(self, path: str) -> str | None:
        """The file that an absolute, normal path names, links followed as long as they stay inside the root."""
        host = host_of(path)
        if host is not None:
            return path if path in self.texts(host) else None
        return path if path in self.overlay else self._follow(path, 0)

    def _follow(self, path: str, links: int) -> str | None:
        if not path.startswith(self._under) or links > _MAX_LINKS:
            return None
        folder, name = os.path.split(path)
        real = self._folder(folder, links)
        if real is None:
            return None
        path = os.path.join(real, name)
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                return self._follow(os.path.normpath(os.path.join(real, os.readlink(path))), links + 1)
        except (OSError, ValueError):
            return None
        return path if stat.S_ISREG(mode) else None

    def _folder(self, folder: str, links: int) -> str | None:
        """The folder itself behind a path, if it is inside the root."""
        if folder in self._folders:
            return self._folders[folder]
        found = None
        if folder.startswith(self._under) and links <= _MAX_LINKS:
            above, name = os.path.split(folder)
            real = self._folder(above, links)
            if real is not None:
                found = os.path.join(real, name)
                try:
                    mode = os.lstat(found).st_mode
                    if stat.S_ISLNK(mode):
                        target = os.path.normpath(os.path.join(real, os.readlink(found)))
                        found = self._folder(target, links + 1)
                    elif not stat.S_ISDIR(mode):
                        found = None
                except (OSError, ValueError):
                    found = None
        if not links:
            self._folders[folder] = found
        return found

    # The files of the root

    def paths(self) -> list[str]:
        """The sources and headers under the root, sorted; hidden folders and links are left out."""
        if self._paths is None:
            found = {path for path in self.overlay if self.holds(path) and not is_host(path)}
            stack = [self.root]
            seen = 0
            while stack and seen < MAX_FILES:
                try:
                    with os.scandir(stack.pop()) as listing:
                        entries = sorted(listing, key=_name)
                except OSError:
                    continue
                folders = []
                for entry in entries:
                    name = entry.name
                    if name.startswith("."):
                        continue
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        if name not in _LEFT_OUT:
                            folders.append(entry.path)
                    elif name.lower().endswith(SOURCES) and entry.is_file(follow_symlinks=False):
                        found.add(entry.path)
                stack.extend(reversed(folders))
            self._paths = sorted(found)
        return self._paths

    def _named(self, name: str) -> list[str]:
        if self._by_name is None:
            self._by_name = {}
            for path in self.paths():
                self._by_name.setdefault(os.path.basename(path), []).append(path)
        return self._by_name.get(name, [])

    # Which files belong together

    def linked(self, path: str) -> list[str]:
        """The other files whose launches may be of the kernels of ``path``, sorted: the files that include it,
        however indirectly, and the files of its folder."""
        path = os.path.abspath(path)
        found = set(self.including(path))
        folder = os.path.dirname(path)
        if self.holds(folder):
            found.update(self.siblings(folder))
        found.discard(path)
        return sorted(found)

    def including(self, path: str) -> list[str]:
        """The files that include ``path``, however indirectly, sorted."""
        found: set[str] = set()
        stack = [os.path.abspath(path)]
        while stack:
            for includer in self.includers(stack.pop()):
                if includer not in found:
                    found.add(includer)
                    stack.append(includer)
        return sorted(found)

    def lending(self, path: str, name: str) -> list[str]:
        """Of the files that are beside a header in its units (they include it, or are included there), those whose
        text defines a function or a macro of this name. What many files include looks after itself."""
        beside = self._beside.get(path)
        if beside is None:
            including = self.including(path)
            found = self._reached(including) - self._reached([path]) if len(including) <= _MAX_BESIDE else ()
            beside = self._beside[path] = sorted(found) if len(found) <= _MAX_BESIDE else []
        if beside:
            self._asked.setdefault(path, set()).add(name)
        return [each for each in beside if _lends(self.file(each).raw, name)]

    def cuda_including(self, path: str) -> list[str]:
        """Of the files that include ``path``, those that are CUDA themselves, as :mod:`cudalint.walk` means it: no
        other one has a kernel."""
        return [each for each in self.including(path) if self._is_cuda(each)]

    def _is_cuda(self, path: str) -> bool:
        if path not in self._cuda:
            self._cuda[path] = path.lower().endswith(CUDA) or holds_cuda(self.content(path))
        return self._cuda[path]

    def siblings(self, folder: str) -> list[str]:
        host = _inside_host(folder)
        if host is not None:
            return [path for path in self.texts(host) if os.path.dirname(path) == folder]
        found = [path for path in self.overlay if os.path.dirname(path) == folder and not is_host(path)]
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.lower().endswith(SOURCES) and entry.is_file(follow_symlinks=False):
                        found.append(entry.path)
        except OSError:
            pass
        return found

    def defining(self, folder: str, name: str) -> list[str]:
        """The files of a folder whose text defines or declares a kernel called ``name``, sorted."""
        kernels = self._kernels.get(folder)
        if kernels is None:
            kernels = self._kernels[folder] = {}
            for path in set(self.siblings(folder)):
                _note_kernels(kernels, path, self.content(path))
        return sorted(kernels.get(name, ()))

    def includers(self, path: str) -> list[str]:
        """The files under the root with an ``#include`` of ``path``, by their text alone."""
        host = host_of(path)
        if host is not None:
            return [text for text, file in self.texts(host).items() if path in file.scan.includes]
        if self._includers is None:
            self._includers = {}
            for includer in self.paths():
                self._note_includes(self._includers, includer)
        return self._includers.get(path, [])

    def _note_includes(self, includers: dict[str, list[str]], includer: str) -> None:
        text = self.content(includer)
        if b"include" in text:
            for quote, name in dict.fromkeys(INCLUDE.findall(text)):
                target = self.resolve(includer, name.decode(errors="replace").strip(), quote == b"<")
                if target is not None and target != includer:
                    includers.setdefault(target, []).append(includer)
                    self._included.setdefault(includer, []).append(target)

    def content(self, path: str) -> bytes:
        """A file's bytes for a search in its text; empty for one that is too large or cannot be read."""
        if path in self.overlay:
            return self.overlay[path]
        if path in self._files or host_of(path) is not None:
            return self.file(path).raw
        return _on_disk(path)


def _on_disk(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            text = stream.read(MAX_SCANNED + 1)
    except OSError:
        return b""
    return text if len(text) <= MAX_SCANNED else b""


_STANDARDS = {"98": "199711L", "03": "199711L", "11": "201103L", "14": "201402L", "17": "201703L", "20": "202002L"}
_LEFT_OUT = frozenset(("node_modules", "__pycache__"))


def _inside_host(folder: str) -> str | None:
    """The notebook or Python file that a folder is one of, or in."""
    return host_of(os.path.join(folder, ""))


def _note_kernels(kernels: dict[str, list[str]], path: str, text: bytes) -> None:
    if b"__global__" in text:
        for name in set(_KERNEL.findall(text)):
            kernels.setdefault(name.decode(), []).append(path)


def _lends(text: bytes, name: str) -> bool:
    word = name.encode()
    if word not in text:
        return False
    word = re.escape(word)
    return re.search(rb"\b%s\s*\([^;{}]*\)[\s\w]*\{|#[ \t]*define[ \t]+%s\b" % (word, word), text) is not None


def _shared(path: str, folder: str) -> int:
    """How many folders from the top a file and another folder have in common."""
    count = 0
    for one, other in zip(path.split(os.sep)[:-1], folder.split(os.sep), strict=False):
        if one != other:
            break
        count += 1
    return count


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
