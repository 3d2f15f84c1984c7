"""The page of ``cudalint confirm --html``: read as a browser reads it, then in a real one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cudalint

_FAULTY = """\
__global__ void add(const float* in, float* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = in[i] + 1.0f;
}
__global__ void reverse(const float* in, float* out, int n) {
    __shared__ float tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    tile[threadIdx.x] = in[i];
    __syncthreads();
    out[i] = tile[63 - threadIdx.x];
}
__global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
__global__ void twice(float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x) x[i] += 1.0f;
}
void run(const float* in, float* out, int n) {
    if (n < 64) return;
    reverse<<<(n - 1) / 64 + 1, 64>>>(in, out, n);
    scale<<<n / 64, 64>>>(out, n); // </script> "é" &amp;
    twice<<<8, 64>>>(out, n);
}
"""
_VOID = {"meta", "input"}
_CHROMIUM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)


class Page(HTMLParser):
    """Tags must close as they opened; keeps ids, links and the data of the pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.data: list[Any] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"]] if given.get("id") else []  # type: ignore[list-item]  # a string, once it is there
        self.links += [given["href"]] if given.get("href") else []  # type: ignore[list-item]  # as above
        self.loaded += [f"{tag} {k}" for k in given if k in ("src", "srcset", "poster")] + ["link"] * (tag == "link")
        if tag not in _VOID:
            self.open.append(f"{tag} {given.get('type', '')}".strip())

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().split()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script application/json":
            self.data.append(json.loads(data))
        elif not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the faulty file, with the folder that it was made in."""
    from conftest import Cudalint

    folder = tmp_path_factory.mktemp("page")
    (folder / "k.cu").write_text(_FAULTY, encoding="utf-8")
    done = Cudalint(folder)(
        "confirm", "--backend", "sim", "--select", "CL201,CL203,CL301", "--html", "page.html", "k.cu"
    )
    assert done.returncode == 1
    assert "cudalint: wrote page.html" in done.stderr
    return folder / "page.html"


def test_it_is_whole_and_needs_nothing_else(made: Path) -> None:
    text = made.read_text("utf-8")
    page = Page(text)
    assert len(set(page.ids)) == len(page.ids)
    assert not page.loaded
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", text)
    assert {link[1:] for link in page.links if link.startswith("#")} <= {*page.ids}
    assert all("/rules/CL" in link for link in page.links if not link.startswith("#"))


def test_it_says_what_the_report_says(made: Path) -> None:
    page = Page(made.read_text("utf-8")).text
    assert "3 confirmed. Kernels were simulated" in page
    assert "CL203 floor-div-grid in run" in page
    assert "processed the first 64 elements only" in page
    assert 'scale<<<n / 64, 64>>>(out, n); // </script> "é" &amp;' in page
    assert "n = 65, as launched: wrong@64" in page
    assert "n = 64, as launched: ok" in page


def test_the_map_is_who_wrote_what(made: Path) -> None:
    maps = [d for d in Page(made.read_text("utf-8")).data if d["kind"] == "map"]
    floored = [m for m in maps if m["end"] == 65 and [1, 3, -1, -1, 0, -1, -1] in m["stretches"]]
    assert [m["stretches"] for m in floored] == [[[64, 1, 0, 0, 1, 0, -1], [1, 3, -1, -1, 0, -1, -1]]]
    # Element 64: thread 0 of block 0 on its second pass, and thread 0 of block 1, which is thread 64 of the grid.
    several = [s for m in maps for s in m["stretches"] if s[1] == 2]
    assert several == [[1, 2, 0, 0, 0, 1, 64]]


def test_the_chart_is_who_arrived(made: Path) -> None:
    charts = [d for d in Page(made.read_text("utf-8")).data if d["kind"] == "barrier"]
    assert {"kind": "barrier", "arrivals": [[1, 1], [63, 0]], "block": 1} in charts
    assert {"kind": "barrier", "arrivals": [[64, 1]], "block": 0} in charts
    assert "1 of 64 threads of block 1 arrive once" in Page(made.read_text("utf-8")).text


def test_a_large_buffer_is_shown_whole_and_where_it_matters(folder: Path, cudalint: Cudalint) -> None:
    (folder / "k.cu").write_text(_FAULTY, encoding="utf-8")
    cudalint("confirm", "--backend", "sim", "--select", "CL203", "--sizes", "10001", "--html", "p.html", "k.cu")
    views = [(d["first"], d["each"], d["end"]) for d in Page((folder / "p.html").read_text("utf-8")).data]
    assert views == [(0, 10, 10001), (0, 1, 128), (9873, 1, 10001)]
    last = Page((folder / "p.html").read_text("utf-8")).data[-1]["stretches"]
    assert last[-1][:2] == [17, 3]


def test_kernels_without_a_finding(folder: Path, cudalint: Cudalint) -> None:
    (folder / "k.cu").write_text(_FAULTY, encoding="utf-8")
    done = cudalint("confirm", "--backend", "sim", "--as", "CL402", "--kernel", "add", "--sizes", "65,300", "--html",
                    "p.html", "k.cu")  # fmt: skip
    assert done.returncode == 0
    page = Page((folder / "p.html").read_text("utf-8"))
    assert "1 not reproduced." in page.text
    assert "CL402 on add" in page.text
    assert "n = 300, <<<10000,32>>>: ok" in page.text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (".", "--html: . is no file"),
        ("", "--html: an empty name is no file"),
        ("no/such/page.html", "--html: there is no folder for no/such/page.html"),
        ("k.cu", "is a source file and is not overwritten"),
    ],
)
def test_where_no_page_can_be_written(name: str, said: str, folder: Path, cudalint: Cudalint) -> None:
    (folder / "k.cu").write_text(_FAULTY, encoding="utf-8")
    done = cudalint("confirm", "--backend", "sim", "--select", "CL203", "--html", name, "k.cu")
    assert done.returncode == 2
    assert said in done.stderr
    assert (folder / "k.cu").read_text("utf-8") == _FAULTY


_DRIVE = """<script>addEventListener("load", () => setTimeout(() => {
  const report = [];
  for (const figure of document.querySelectorAll("figure.map")) {
    const canvas = figure.querySelector("canvas"), said = figure.querySelector("output");
    canvas.scrollIntoView();
    canvas.focus();
    const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
    const first = said.textContent;
    press("End");
    const last = said.textContent;
    press("ArrowLeft");
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    report.push({ first, last, left: said.textContent, colours: new Set(new Uint32Array(pixels.buffer)).size });
  }
  const wide = document.documentElement.scrollWidth > innerWidth;
  document.body.innerHTML = "<pre id=report></pre>";
  document.querySelector("#report").textContent = JSON.stringify({ maps: report, wide });
}, 300));</script></body>"""


@pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium on the PATH")
@pytest.mark.parametrize("width", [1200, 520])
def test_in_a_browser(made: Path, width: int) -> None:
    """The maps are drawn, the arrow keys read them out, nothing is wider than the window, nothing fails."""
    driven = made.with_name("driven.html")
    driven.write_text(made.read_text("utf-8").replace("</body>", _DRIVE), encoding="utf-8")
    assert _CHROMIUM is not None
    done = subprocess.run(
        [_CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
         f"--user-data-dir={made.parent / 'profile'}", f"--window-size={width},900", "--enable-logging=stderr",
         "--virtual-time-budget=5000", "--dump-dom", driven.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    found = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-500:]
    report = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert not report["wide"]
    assert all(m["colours"] > 1 for m in report["maps"])
    said = [(m["first"], m["left"], m["last"]) for m in report["maps"]]
    assert (
        "element 0: thread 0 of block 0 wrote it", "element 63: thread 63 of block 0 wrote it",
        "element 64: it is due, and nobody wrote it",
    ) in said  # fmt: skip
    assert (
        "thread 0 of block 1 (warp 0, lane 0) arrives once", "thread 62 of block 1 (warp 1, lane 30) arrives never",
        "thread 63 of block 1 (warp 1, lane 31) arrives never",
    ) in said  # fmt: skip
    assert "element 64: thread 0 of block 0 and thread 0 of block 1 wrote it" in [s[2] for s in said]
