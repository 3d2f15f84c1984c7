"""What an #include means, what is read, and which files belong together."""

from __future__ import annotations

import itertools
import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from cudalint.config import Configs
from cudalint.errors import UsageError
from cudalint.project import Project
from cudalint.select import Layer

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def text_of(project: Project, name: str) -> str:
    return " ".join(project.file(os.path.join(project.root, name)).text.decode().split())


def inside(project: Project, paths: list[str]) -> list[str]:
    return [os.path.relpath(path, project.root).replace(os.sep, "/") for path in paths]


def includes(project: Project, name: str) -> list[str]:
    return inside(project, [file.path for file in project.file(os.path.join(project.root, name)).includes])


def configured(root: Path, toml: str) -> Project:
    (root / "cudalint.toml").write_text(toml)
    settings = Configs(Layer("the command line")).of(str(root), str(root))
    return Project(settings.root, settings)


# Includes


def test_finds_includes_beside_the_file_on_the_paths_and_by_a_unique_ending(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "src/a.cu": '#include "b.h"\n#include <b.h>\n#include "inc/c.h"\n#include <lib/d.h>\n#include "../e.h"\n'
            '#include "twice.h"\n#include "f\\g.h"\n#include MACRO\n#define H "h.h"\n#include H\n#include "absent.h"\n',
            "src/b.h": "",
            "other/b.h": "",
            "paths/inc/c.h": "",
            "deep/inc/c.h": "",
            "x/y/lib/d.h": "",
            "e.h": "",
            "one/twice.h": "",
            "two/twice.h": "",
            "src/f/g.h": "",
            "z/h.h": "",
        },
    )
    outside = tmp_path.with_name(f"{tmp_path.name}-outside")
    outside.mkdir()
    project = configured(tmp_path, f'include-paths = ["paths", "../{outside.name}"]')
    assert includes(project, "src/a.cu") == ["src/b.h", "paths/inc/c.h", "x/y/lib/d.h", "e.h", "src/f/g.h", "z/h.h"]


def test_of_several_endings_the_nearest_one_is_meant(tmp_path: Path) -> None:
    files = {
        "attention/mma/basic/k.cu": '#include "utils.h"\n#include <common/types.h>\n',
        "attention/utils/utils.h": "",
        "gemm/utils/utils.h": "",
        "attention/common/types.h": "",
        "attention/mma/common/types.h": "",
        "attention/mma/old/common/types.h": "",
    }
    write(tmp_path, files)
    assert includes(configured(tmp_path, ""), "attention/mma/basic/k.cu") == ["attention/utils/utils.h"]


def test_does_not_take_a_project_file_for_a_standard_header(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"a.cu": "#include <vector>\n#include <math.h>\n#include <cub/cub.cuh>\n#include \"math.h\"\n#include <my.h>\n",
         "x/vector": "", "x/math.h": "", "x/cub/cub.cuh": "", "x/my.h": ""},
    )  # fmt: skip
    project = Project(str(tmp_path))
    assert includes(project, "a.cu") == ["x/my.h"]
    (tmp_path / "math.h").write_text("")
    assert includes(Project(str(tmp_path)), "a.cu") == ["math.h", "x/my.h"]


def test_a_quoted_include_may_lie_in_a_folder_that_is_called_like_the_toolkits(tmp_path: Path) -> None:
    write(tmp_path, {"src/ops/a.cu": '#include "cuda/limits.h"\n#include <cuda/atomic>\n', "src/cuda/limits.h": "",
                     "src/cuda/atomic": ""})  # fmt: skip
    assert includes(Project(str(tmp_path)), "src/ops/a.cu") == ["src/cuda/limits.h"]


def test_touches_nothing_outside_of_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"secret.h": "#define SECRET 1\n", "out/dir/s.h": "#define SECRET 2\n"})
    root = write(
        tmp_path / "root",
        {
            "src/a.cu": f'#include "../../secret.h"\n#include "{tmp_path}/secret.h"\n#include "link.h"\n'
            '#include "d/s.h"\n'
            '#include "/etc/passwd"\n#include "../../../../../../etc/passwd"\n#include "ok.h"\n'
            '#if __has_include("../../secret.h")\nSECRET\n#endif\nint a = SECRET + OK;\n',
            "real/ok.h": "#define OK 3\n",
        },
    )
    (root / "src/link.h").symlink_to(tmp_path / "secret.h")
    (root / "src/d").symlink_to(tmp_path / "out/dir")
    (root / "src/ok.h").symlink_to("../real/ok.h")
    project = Project(str(root))
    touched: list[str] = []

    def watched(name: str) -> None:
        actual = getattr(os, name)

        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            touched.append(os.path.normpath(os.fspath(path)))
            return actual(path, *args, **kwargs)

        monkeypatch.setattr(os, name, call)

    for name in ("lstat", "stat", "scandir", "readlink", "open"):
        watched(name)
    assert text_of(project, "src/a.cu") == "int a = SECRET + 3;"
    assert includes(project, "src/a.cu") == ["real/ok.h"]
    project.linked(str(root / "src/a.cu"))
    assert touched
    assert [path for path in touched if path != str(root) and not path.startswith(str(root) + os.sep)] == []


def test_survives_links_in_circles_folders_with_file_names_and_odd_files(tmp_path: Path) -> None:
    write(tmp_path, {"a.cu": '#include "loop.h"\n#include "x.h"\n#include "up/a.cu"\n#include "pipe.h"\n'
                     '#include "n\0.h"\n'
                     f'#include "{"long" * 200}.h"\n#include ""\n#include "."\n#include ".."\nint a;\n'})  # fmt: skip
    (tmp_path / "loop.h").symlink_to("loop2.h")
    (tmp_path / "loop2.h").symlink_to("loop.h")
    (tmp_path / "up").symlink_to(".")
    (tmp_path / "x.h").mkdir()
    (tmp_path / "x.cu").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.h")
    (tmp_path / "a.cu").write_bytes((tmp_path / "a.cu").read_bytes().replace(b"\0", b"?"))
    project = Project(str(tmp_path))
    assert text_of(project, "a.cu") == "int a;"
    assert includes(project, "a.cu") == ["a.cu"]
    assert inside(project, project.paths()) == ["a.cu"]
    assert project.file(str(tmp_path / "x.cu")).error == "cannot be read: Is a directory"
    assert project.linked(str(tmp_path / "a.cu")) == []


# Macros over files


def test_macros_come_from_headers_and_stop_at_undef(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.cu": 'N\n#include "a.h"\nN SQ(M)\n#undef N\nN\n#include "b.h"\nN\n',
            "a.h": '#pragma once\n#define N 1\n#include "deep/m.h"\n',
            "deep/m.h": "#ifndef M\n#define M 5\n#endif\n#define SQ(x) x*x\n",
            "b.h": '#include "a.h"\n#undef N\n#define N 2\n',
        },
    )
    project = Project(str(tmp_path))
    assert text_of(project, "a.cu") == "N 1 5*5 N 2"
    file = project.file(str(tmp_path / "a.cu"))
    use = file.macro_use(file.text.index(b"5*5"))
    assert use is not None
    assert use.body is not None and use.body[:5] == (str(tmp_path / "deep/m.h"), 4, 1, 4, 18)
    assert [unit.path for unit in project.unit(file.path)] == [
        str(tmp_path / name) for name in ("a.cu", "a.h", "deep/m.h", "b.h")
    ]


def test_an_include_cycle_reads_the_same_from_every_entrance(tmp_path: Path) -> None:
    names = ["a.h", "b.h", "c.h", "d.cu"]
    write(
        tmp_path,
        {
            "a.h": '#pragma once\n#define A 1\n#include "b.h"\nA B C\n#define LATE_A 1\n',
            "b.h": '#pragma once\n#include "c.h"\n#define B 2\nA B C LATE_A\n',
            "c.h": '#pragma once\n#include "a.h"\n#include "c.h"\n#define C 3\nA B C\n',
            "d.cu": '#include "c.h"\n#include "b.h"\nA B C LATE_A\n',
        },
    )
    texts = set()
    for order in itertools.permutations(names):
        project = Project(str(tmp_path))
        for name in order:
            text_of(project, name)
        texts.add(tuple(text_of(project, name) for name in names))
    (once,) = texts
    assert once == ("1 2 3", "1 2 3 1", "1 2 3", "1 2 3 1")
    assert includes(project, "c.h") == ["a.h", "c.h"]
    assert len(project.unit(str(tmp_path / "d.cu"))) == 4


def test_survives_an_endless_chain_and_a_clique_of_includes(tmp_path: Path) -> None:
    chain = {f"h{i}.h": f'#include "h{i + 1}.h"\n#define H{i} {i}\n' for i in range(500)}
    clique = {f"k{i}.h": "".join(f'#include "k{j}.h"\n' for j in range(40)) + f"#define K{i} {i}\n" for i in range(40)}
    write(tmp_path, chain | clique | {"a.cu": '#include "h0.h"\n#include "k0.h"\nH0 H20 K0 K39\n'})
    began = time.process_time()
    project = Project(str(tmp_path))
    assert text_of(project, "a.cu") == "0 20 0 39"
    assert len(project.unit(str(tmp_path / "a.cu"))) == 541
    assert text_of(project, "k7.h") == ""
    assert time.process_time() - began < 20


def test_a_header_that_asks_for_the_architecture_gives_its_includers_two_readings(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.cu": '#include "m.h"\nWHERE\n',
            "b.cu": '#include "m.h"\nBOTH\n',
            "m.h": "#ifdef __CUDA_ARCH__\n#define WHERE device\n#else\n#define WHERE host\n#endif\n#define BOTH 1\n",
        },
    )
    project = Project(str(tmp_path))
    file = project.file(str(tmp_path / "a.cu"))
    assert (file.text.split(), file.host.text.split()) == ([b"device"], [b"host"])
    assert [included.reading for included in file.host.includes] == ["device"]
    other = project.file(str(tmp_path / "b.cu"))
    assert other.host is other


def test_defines_of_the_configuration_apply(tmp_path: Path) -> None:
    write(tmp_path, {"a.cu": '#include "b.h"\n#if FAST\nTILE\n#endif\n', "b.h": "#ifdef FAST\nfast TILE\n#endif\n"})
    project = configured(tmp_path, 'defines = ["FAST", "TILE=32"]')
    assert text_of(project, "a.cu") == "32"
    assert text_of(project, "b.h") == "fast 32"
    file = project.file(str(tmp_path / "a.cu"))
    use = file.macro_use(file.text.index(b"32"))
    assert use is not None
    assert use.body is None
    assert list(file.macros) == ["FAST", "TILE"]


def test_has_include_sees_the_project(tmp_path: Path) -> None:
    write(tmp_path, {"a.cu": '#if __has_include("b.h") && !__has_include(<nope.h>)\nyes\n#endif\n', "b.h": ""})
    assert text_of(Project(str(tmp_path)), "a.cu") == "yes"


KERNEL = "__global__ void k(float* x) { x[0] = 1; }"


def assumed(tmp_path: Path, files: dict[str, str], name: str = "a.cu") -> list[str]:
    project = Project(str(write(tmp_path, files)))
    return [macro.decode() for macro in project.assumed(str(tmp_path / name))]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("#ifdef ON\n#K\n#endif\n", ["ON"]),
        ("#if ON\nvoid go() { k<<<1, 1>>>(); }\n#endif\n", ["ON"]),
        ("#if defined(ON) && !defined(OFF)\n#K\n#endif\n", ["ON"]),
        ("#if defined(ON) && defined(TOO)\n#K\n#endif\n", ["ON", "TOO"]),
        ("#if ON == 1 && defined(__CUDACC__)\n#K\n#endif\n", ["ON"]),
        ("#ifndef ON\n#error\n#else\n#K\n#endif\n", ["ON"]),
        ("#if defined(ONE) || defined(OTHER)\n#K\n#endif\n", ["ONE"]),
        ("#if defined(ONE) || defined(OTHER)\n#K\n#endif\n#ifdef OTHER\n#K\n#endif\n", ["OTHER"]),
        ("#ifdef FIRST\n#K\n#elif defined(SECOND)\n#K\n#endif\n", ["FIRST"]),
        ("#ifdef ON\n#ifdef INNER\n#K\n#endif\n#endif\n", ["ON", "INNER"]),
        ("#ifndef ON\n#define __device__\n#endif\n#ifdef ON\n#K\n#endif\n", ["ON"]),
        # What is no switch, or is one already.
        ("#ifdef ON\nint n;\n#endif\n#K\n", []),
        ('#ifdef ON\n// #K\nconst char* s = "<<<";\n#endif\n', []),
        ("#ifndef GUARD\n#define GUARD\n#K\n#endif\n", []),
        ("#if defined(_WIN32) || defined(NDEBUG) || defined(USE_ROCM) || defined(__clang__)\n#K\n#endif\n", []),
        ("#if VERSION < 9 && defined(VERSION)\n#K\n#endif\n", []),
        ("#if MODE == 2\n#K\n#endif\n", []),
        ("#define ON 0\n#if ON\n#K\n#endif\n", []),
        ("#ifndef ON\n#define ON 0\n#endif\n#if ON\n#K\n#endif\n", []),
        ("// #define ON\n#ifdef ON\n#K\n#endif\n", []),
        ("#if 0\n#ifdef ON\n#K\n#endif\n#endif\n", []),
        ("#ifdef ON\n#K\n#else\n#K\n#endif\n", []),
        ("#ifdef ON\n#K\n#endif\n#ifndef ON\n#K\n#endif\n", []),
        ("#ifdef _WIN32\n#ifdef ON\n#K\n#endif\n#endif\n", []),
        ("#ifdef ON\n#K\n", []),
    ],
)
def test_what_kernels_wait_for_is_taken_as_defined(tmp_path: Path, text: str, taken: list[str]) -> None:
    assert sorted(assumed(tmp_path, {"a.cu": text.replace("#K", KERNEL)})) == sorted(taken)


def test_files_that_include_one_another_take_the_same_as_defined(tmp_path: Path) -> None:
    files = {
        "a.cu": f'#include "a.h"\n#ifdef ON\n{KERNEL}\n#endif\nN\n', "b.cpp": '#include "a.h"\nN\n',
        "a.h": "#ifdef ON\n#define N 1\n#else\n#define N 0\n#endif\n", "other.cu": "#ifdef ON\nN\n#endif\n",
    }  # fmt: skip
    project = Project(str(write(tmp_path, files)))
    assert [text_of(project, name) for name in files] == [f"{KERNEL} 1", "1", "", ""]
    assert project.file(str(tmp_path / "b.cpp")).scan.assumed == []
    assert project.file(str(tmp_path / "a.h")).scan.assumed == [b"ON"]


def test_what_a_file_defines_somewhere_in_sight_is_not_taken_as_defined(tmp_path: Path) -> None:
    waiting = f"#ifdef ON\n{KERNEL}\n#endif\n"
    include = '#include "config.h"\n'
    assert assumed(tmp_path / "before", {"a.cu": include + waiting, "config.h": "#define ON 0\n"}) == []
    assert assumed(tmp_path / "after", {"a.cu": waiting + include, "config.h": "#define ON 0\n"}) == ["ON"]
    includer = {"b.cu": f'{include}#include "a.cuh"\n', "a.cuh": waiting, "config.h": "#undef ON\n"}
    assert assumed(tmp_path / "includer", includer, "a.cuh") == []
    assert assumed(tmp_path / "unrelated", {"a.cu": waiting, "b.cu": "#define ON 0\n"}) == ["ON"]


def test_nothing_is_taken_as_defined_where_the_user_says_what_is(tmp_path: Path) -> None:
    write(tmp_path, {"a.cu": f"#ifdef ON\n{KERNEL}\n#endif\n"})
    assert text_of(Project(str(tmp_path)), "a.cu") == KERNEL
    assert configured(tmp_path, 'defines = ["ON=0"]').assumed(str(tmp_path / "a.cu")) == {}
    commands = [{"directory": str(tmp_path), "file": "a.cu", "arguments": ["nvcc", "-c", "a.cu"]}]
    (tmp_path / "cc.json").write_text(json.dumps(commands))
    assert text_of(Project(str(tmp_path), compile_commands=str(tmp_path / "cc.json")), "a.cu") == ""


def test_what_is_taken_as_defined_changes_with_the_texts(tmp_path: Path) -> None:
    header, source = str(tmp_path / "a.h"), str(tmp_path / "a.cu")
    write(tmp_path, {"a.cu": f'#include "a.h"\n#ifdef ON\n{KERNEL}\n#endif\n', "a.h": "#ifdef ON\nN\n#endif\n"})
    project = Project(str(tmp_path))
    assert (text_of(project, "a.h"), text_of(project, "a.cu")) == ("N", KERNEL)
    project.replace({source: b'#include "a.h"\n'})
    assert text_of(project, "a.h") == ""
    project.replace({})
    assert text_of(project, "a.h") == "N"
    project.replace({header: b"#define ON 0\n"})
    assert project.assumed(source) == {}
    project.replace({header: b"#ifdef ON\nM\n#endif\n"})
    assert (text_of(project, "a.h"), text_of(project, "a.cu")) == ("M", KERNEL)


# In memory


def test_a_header_takes_from_its_includer_what_that_has_at_the_time(tmp_path: Path) -> None:
    files = {"a.cu": 'int up(int n) { return n; }\n#define TILE 8\n#include "a.cuh"\n', "a.cuh": "int x = TILE;\n"}
    project = Project(str(write(tmp_path, files)))
    source, header = str(tmp_path / "a.cu"), str(tmp_path / "a.cuh")

    def seen() -> tuple[int, object]:
        scope = project.file(header).declarations.scope
        found = scope.constant("TILE")
        return len(scope.functions("up")), found and found[1]

    assert seen() == (1, 8)
    project.replace({source: b'#define TILE 16\n#include "a.cuh"\n'})
    assert seen() == (0, 16)
    project.replace({source: b"#define TILE 16\n"})
    assert seen() == (0, None)
    project.replace({})
    assert seen() == (1, 8)


def test_an_overlay_stands_for_the_disk(tmp_path: Path) -> None:
    write(tmp_path, {"a.cu": '#include "b.h"\n#include "new.h"\nN M\n', "b.h": "#define N 1\n", "run.cu": "int r;\n"})
    overlay = {str(tmp_path / "b.h"): b"#define N 2\n", str(tmp_path / "new.h"): b"#define M 3\n",
               str(tmp_path / "run.cu"): b'#include "a.cu"\n'}  # fmt: skip
    project = Project(str(tmp_path), overlay=overlay)
    assert text_of(project, "a.cu") == "2 3"
    assert inside(project, project.includers(str(tmp_path / "a.cu"))) == ["run.cu"]
    assert inside(project, project.linked(str(tmp_path / "new.h"))) == ["a.cu", "b.h", "run.cu"]
    assert text_of(Project(str(tmp_path)), "a.cu") == "1 M"


def test_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.cu": "int a;\n"})
    monkeypatch.chdir(tmp_path)
    project = Project(".")
    file = project.file("a.cu")
    assert file is project.file(str(tmp_path / "a.cu"))
    assert file is project.file("./x/../a.cu")
    assert file.path == str(tmp_path / "a.cu")


# Which files belong together


def test_linked_are_the_includers_and_the_folder(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "src/kernels.cuh": "__global__ void k();\n",
            "src/sibling.cu": "",
            "src/notes.txt": '#include "kernels.cuh"\n',
            "src/sub/deeper.cu": "",
            "app/main.cu": '#  include "wrap.h"\n',
            "app/wrap.h": "#pragma once\r\n#include <kernels.cuh>\r\n",
            "app/lonely.cu": "",
            ".hidden/x.cu": '#include "../src/kernels.cuh"\n',
            "b/kernels2.cuh": '#include "kernels.cuh"\n',
        },
    )
    project = Project(str(tmp_path))
    linked = project.linked(str(tmp_path / "src/kernels.cuh"))
    assert inside(project, linked) == ["app/main.cu", "app/wrap.h", "b/kernels2.cuh", "src/sibling.cu"]
    assert inside(project, project.linked(str(tmp_path / "app/main.cu"))) == ["app/lonely.cu", "app/wrap.h"]
    assert project.linked(str(tmp_path / "src/sub/deeper.cu")) == []


def test_linked_survives_cycles_and_leaves_large_files_out(tmp_path: Path) -> None:
    write(tmp_path, {"a/a.h": '#include "../b/b.h"\n', "b/b.h": '#include "../a/a.h"\n#include "b.h"\n'})
    (tmp_path / "c").mkdir()
    (tmp_path / "c/big.cu").write_text('#include "../a/a.h"\n' + " " * (4 << 20))
    project = Project(str(tmp_path))
    assert inside(project, project.linked(str(tmp_path / "a/a.h"))) == ["b/b.h"]


# compile_commands.json


def test_compile_commands_say_how_a_file_is_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "src/a.cu": '#include "i.h"\n#include "s.h"\nTILE FORCED I S __cplusplus\n',
            "src/other.cu": "TILE FORCED __cplusplus\n",
            "inc1/i.h": "#define I 1\n",
            "inc2/i.h": "#define I 2\n",
            "sys/s.h": "#define S 3\n",
            "pre.h": "#define FORCED TILE\n",
        },
    )
    flags = ["nvcc", "-I", "inc2", "-isystem=sys", "-I/usr/include", "-DTILE=16", "-include", "pre.h", "-std=c++14"]
    commands = [{"directory": str(tmp_path), "file": "src/a.cu", "arguments": [*flags, "-c", "src/a.cu"]}]
    (tmp_path / "cc.json").write_text(json.dumps(commands))
    project = Project(str(tmp_path), compile_commands=str(tmp_path / "cc.json"))
    assert text_of(project, "src/a.cu") == "16 16 2 3 201402L"
    assert text_of(project, "src/other.cu") == "TILE FORCED 201703L"
    assert includes(project, "src/a.cu") == ["pre.h", "inc2/i.h", "sys/s.h"]


def test_a_bad_compilation_database_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "cc.json").write_text("{")
    with pytest.raises(UsageError, match="compile_commands"):
        Project(str(tmp_path), compile_commands=str(tmp_path / "cc.json"))
