"""How long an editor waits for the diagnostics of a change: the real server over stdin and stdout.

    python benchmarks/lsp.py [--changes N] [FILE]

FILE is any CUDA source; without one, kernels and launches of about 1,000 lines are written. One function after the
other is edited as somebody types; the debounce, in which nothing happens, is told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lsprotocol import types as t
from pygls.lsp.client import LanguageClient

from cudalint.lsp.server import DEBOUNCE

AIM_MS = 60
_TEMPLATE = """\
__global__ void sum_{0}(const float *x, float *sums, int n) {{
    __shared__ float partial[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    partial[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {{
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }}
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}}

__global__ void smooth_{0}(const float *in, float *out, int width, int height) {{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x > 0 && x < width - 1 && y < height) {{
        int at = y * width + x;
        out[at] = (in[at - 1] + in[at] + in[at + 1]) / 3.0f;
    }}
}}

void run_{0}(const float *in, float *out, float *sums, int width, int height) {{
    dim3 block(16, 16);
    dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
    smooth_{0}<<<grid, block>>>(in, out, width, height);
    int n = width * height;
    sum_{0}<<<(n + 255) / 256, 256>>>(out, sums, n);
}}

"""


async def latencies(path: Path, text: str, changes: int) -> tuple[float, list[float], int]:
    """Seconds to the first diagnostics, and from each change to its own."""
    client = LanguageClient("benchmark", "1")
    seen: asyncio.Queue[t.PublishDiagnosticsParams] = asyncio.Queue()

    @client.feature(t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def published(params: t.PublishDiagnosticsParams) -> None:
        seen.put_nowait(params)

    await client.start_io(sys.executable, "-m", "cudalint", "lsp")
    await client.initialize_async(t.InitializeParams(t.ClientCapabilities(), root_uri=path.parent.as_uri()))
    client.initialized(t.InitializedParams())
    began = time.perf_counter()
    client.text_document_did_open(t.DidOpenTextDocumentParams(t.TextDocumentItem(path.as_uri(), "cuda", 0, text)))
    count = len((await seen.get()).diagnostics)
    first = time.perf_counter() - began
    places = [match.end() for match in re.finditer(r"\)\s*\{", text)]
    found = []
    for version in range(1, changes + 1):
        at = places[version * 7 % len(places)]
        typed = f"{text[:at]} int typed = {version};{text[at:]}"
        change = t.DidChangeTextDocumentParams(
            t.VersionedTextDocumentIdentifier(version=version, uri=path.as_uri()),
            [t.TextDocumentContentChangeWholeDocument(typed)],
        )
        await asyncio.sleep(0.05)
        began = time.perf_counter()
        client.text_document_did_change(change)
        while (await seen.get()).version != version:
            pass
        found.append(time.perf_counter() - began)
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return first, found, count


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the language server.")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE")
    parser.add_argument("--changes", type=int, default=40, metavar="N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.cu") if options.file is None else options.file.resolve()
        if options.file is None:
            path.write_text("".join(_TEMPLATE.format(k) for k in range(33)))
        text = path.read_text(errors="replace")
        first, found, count = asyncio.run(latencies(path, text, options.changes))
    after = sorted(1000 * (each - DEBOUNCE) for each in found)
    print(f"{path.name}: {text.count(chr(10)):,} lines, {count} diagnostics, the first after {1000 * first:.0f} ms")
    print(
        f"change to diagnostics, without the debounce of {1000 * DEBOUNCE:.0f} ms: median"
        f" {statistics.median(after):.0f} ms, the slowest of {len(after)} {after[-1]:.0f} ms (aim: {AIM_MS} ms)"
    )


if __name__ == "__main__":
    main()
