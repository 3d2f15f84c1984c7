"use strict";
(() => {
  const [NOBODY, ONE, SEVERAL, MISSING, NOT_RUN] = [0, 1, 2, 3, 4];
  // Told apart by most of those who see colours otherwise, and of much the same weight on light and on dark paper.
  const HUES = ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#aa3377", "#99ddcc", "#ee9944", "#8899dd"];
  const number = (n) => n.toLocaleString("en");
  const colour = (name) => {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const product = (triple) => triple[0] * triple[1] * triple[2];
  const triple = (n, of) => (of[1] * of[2] === 1 ? `${n}` :
    `(${n % of[0]}, ${Math.floor(n / of[0]) % of[1]}, ${Math.floor(n / (of[0] * of[1]))})`);

  const cellsOf = (data) => {
    if (data.kind === "barrier") {
      return data.arrivals.flatMap(([count, arrivals]) => Array.from({ length: count }, () => ({ arrivals })));
    }
    return data.stretches.flatMap(([count, state, block, thread, step, turn, other]) =>
      Array.from({ length: count }, (_, k) =>
        ({ state, block, thread: thread + k * step, turn, other: other < 0 ? other : other + k * step })));
  };

  const told = (map, at) => {
    const cell = map.cells[at];
    const { data } = map;
    if (data.kind === "barrier") {
      const times = cell.arrivals === 1 ? "once" : cell.arrivals === 0 ? "never" : `${number(cell.arrivals)} times`;
      return `thread ${at} of block ${data.block} (warp ${at >> 5}, lane ${at % 32}) arrives ${times}`;
    }
    const first = data.first + at * data.each;
    const last = Math.min(data.end, first + data.each) - 1;
    const where = last > first ? `elements ${number(first)} to ${number(last)}` : `element ${number(first)}`;
    const size = product(data.block);
    const who = `thread ${triple(cell.thread, data.block)} of block ${cell.block}`;
    const turn = cell.turn > 0 ? `, on its pass ${cell.turn}` : "";
    const some = last > first ? "the one that tells most: " : "";
    const words = {
      [NOBODY]: "nobody wrote it",
      [ONE]: `${who} wrote it${turn}`,
      [SEVERAL]: `${who} and thread ${triple(cell.other % size, data.block)} of block `
        + `${Math.floor(cell.other / size)} wrote it`,
      [MISSING]: "it is due, and nobody wrote it",
      [NOT_RUN]: "no block that was run wrote it",
    };
    return `${where}: ${some}${words[cell.state]}`;
  };

  const paint = (ink, cell, map, x, y, size, by, theme) => {
    const hatch = (stroke, both) => {
      ink.strokeStyle = stroke;
      ink.lineWidth = Math.max(1, size / 7);
      ink.beginPath();
      ink.moveTo(x, y + size);
      ink.lineTo(x + size, y);
      if (both) {
        ink.moveTo(x, y);
        ink.lineTo(x + size, y + size);
      }
      ink.stroke();
    };
    ink.save();
    ink.beginPath();
    ink.rect(x, y, size, size);
    ink.clip();
    const fill = (how) => { ink.fillStyle = how; ink.fillRect(x, y, size, size); };
    if (map.data.kind === "barrier") {
      if (cell.arrivals === map.most) fill(HUES[0]);
      else if (cell.arrivals > 0) { fill(HUES[3]); } else { fill(theme.empty); hatch(theme.bad, true); }
    } else if (cell.state === ONE || cell.state === SEVERAL) {
      if (by === "thread") {
        const part = cell.thread / Math.max(1, product(map.data.block) - 1);
        fill(`hsl(${Math.round(250 - 200 * part)} 55% ${Math.round(38 + 30 * part)}%)`);
      } else if (by === "turn" && cell.turn < 0) fill(theme.empty);
      else fill(HUES[cell[by] % HUES.length]);
      if (cell.state === SEVERAL) hatch(theme.ink, true);
    } else if (cell.state === MISSING) { fill(theme.paper); hatch(theme.bad, true); } else if (cell.state === NOBODY) {
      fill(theme.empty);
    } else { fill(theme.paper); hatch(theme.dim, false); }
    ink.restore();
  };

  const theme = () => Object.fromEntries(["paper", "ink", "dim", "bad", "empty", "link"].map((n) => [n, colour(`--${n}`)]));
  const by = () => document.querySelector('input[name="by"]:checked')?.value ?? "block";

  const draw = (map) => {
    const { canvas, cells } = map;
    const width = canvas.clientWidth;
    if (!width) return;
    map.columns = map.data.kind === "barrier" ? 32 : width < 480 ? 32 : 64;
    const size = Math.min(width / map.columns, 18);
    const rows = Math.ceil(cells.length / map.columns);
    const scale = window.devicePixelRatio || 1;
    map.size = size;
    canvas.style.height = `${rows * size}px`;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(rows * size * scale);
    const ink = canvas.getContext("2d");
    ink.scale(scale, scale);
    const [colours, how] = [theme(), by()];
    cells.forEach((cell, k) => {
      const [x, y] = [(k % map.columns) * size, Math.floor(k / map.columns) * size];
      paint(ink, cell, map, x, y, size - (size > 5 ? 1 : 0), how, colours);
    });
    if (map.at !== undefined) {
      ink.strokeStyle = colours.link;
      ink.lineWidth = 2.5;
      ink.strokeRect((map.at % map.columns) * size, Math.floor(map.at / map.columns) * size, size - 1, size - 1);
    }
  };

  const maps = [...document.querySelectorAll("figure.map")].map((figure) => {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const map = { canvas: figure.querySelector("canvas"), output: figure.querySelector("output"), data };
    map.cells = cellsOf(data);
    map.most = data.kind === "barrier" ? Math.max(...data.arrivals.map((a) => a[1])) : 0;
    return map;
  });

  const move = (map, at) => {
    map.at = Math.max(0, Math.min(map.cells.length - 1, at));
    map.output.textContent = told(map, map.at);
    draw(map);
  };
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(maps.find((m) => m.canvas === entry.target));
  }, { rootMargin: "200px" });
  for (const map of maps) {
    const { canvas } = map;
    seen.observe(canvas);
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / map.size);
      const at = column + map.columns * Math.floor((event.clientY - box.top) / map.size);
      if (column < map.columns && at < map.cells.length && at !== map.at) move(map, at);
    });
    canvas.addEventListener("focus", () => move(map, map.at ?? 0));
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: map.columns, ArrowUp: -map.columns,
        Home: -map.cells.length, End: map.cells.length };
      if (!(event.key in steps) || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      move(map, (map.at ?? 0) + steps[event.key]);
    });
  }

  const swatches = () => {
    const colours = theme();
    const backs = {
      0: colours.empty,
      2: `repeating-linear-gradient(45deg, ${colours.ink} 0 2px, ${HUES[0]} 2px 5px)`,
      3: `repeating-linear-gradient(45deg, ${colours.bad} 0 2px, ${colours.paper} 2px 5px)`,
      4: `repeating-linear-gradient(45deg, ${colours.dim} 0 1px, ${colours.paper} 1px 5px)`,
    };
    for (const each of document.querySelectorAll(".swatch")) each.style.background = backs[each.dataset.state];
  };
  const again = () => { swatches(); maps.filter((m) => m.size).forEach(draw); };
  document.querySelector(".key")?.addEventListener("change", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  addEventListener("resize", again);
  const opened = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target?.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", opened);
  opened();
  swatches();
})();
