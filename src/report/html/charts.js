// Charts, drawn by uPlot in the colours of the page.
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const PALETTE = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8", "--c9"];
const colour = (i) => css(PALETTE[i % PALETTE.length]);
const liveCharts = new Set();

const decades = (u, splits) =>
  splits.map((v) => (v && Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-6 ? v : null));

function axis(label, size, values) {
  const filter = values ? { filter: decades } : {};
  return {
    ...filter,
    label,
    labelSize: 18,
    labelGap: 2,
    labelFont: "12px system-ui, sans-serif",
    font: "12px system-ui, sans-serif",
    stroke: () => css("--soft"),
    grid: { stroke: () => css("--line"), width: 1, ...filter },
    ticks: { stroke: () => css("--line"), width: 1, size: 4, ...filter },
    size,
    values,
  };
}

// A power of ten, as both axes have it.
const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const power = (v) =>
  "10" + String(Math.round(Math.log10(v))).replace("-", "⁻").replace(/\d/g, (digit) => RAISED[digit]);

// What lies under points of another colour is still seen by its corners.
const MARKS = { f16: "triangle", bf16: "square" };
const markOf = (dtype) => MARKS[dtype] || "circle";
function drawMark(ctx, mark, x, y, size) {
  ctx.beginPath();
  if (mark === "square") ctx.rect(x - size * 0.85, y - size * 0.85, size * 1.7, size * 1.7);
  else if (mark === "triangle") {
    ctx.moveTo(x, y - size * 1.15);
    ctx.lineTo(x + size * 1.1, y + size * 0.85);
    ctx.lineTo(x - size * 1.1, y + size * 0.85);
    ctx.closePath();
  } else ctx.arc(x, y, size, 0, 2 * Math.PI);
  ctx.fill();
  ctx.stroke();
}

// `points`: [{x, y, group, mark, tip, path}]; `lines`: [{title, at: x => y, dash}]; both axes logarithmic.
function scatter(host, { points, lines, xLabel, yLabel, label, height = 430 }) {
  const names = unique(points.map((p) => p.group));
  const order = [...points].sort((a, b) => a.x - b.x);
  // Lines reach over the whole axis, which has whole decades.
  const low = 10 ** Math.floor(Math.log10(order[0].x) + 1e-9),
    high = Math.max(10 * low, 10 ** Math.ceil(Math.log10(order[order.length - 1].x) - 1e-9));
  const stations = lines.length ? Array.from({ length: 41 }, (_, i) => low * (high / low) ** (i / 40)) : [];
  const all = [...order, ...stations.map((x) => ({ x }))].sort((a, b) => a.x - b.x);
  const data = [
    all.map((p) => p.x),
    ...lines.map((line) => all.map((p) => line.at(p.x))),
    ...names.map((name) => all.map((p) => (p.group === name ? p.y : null))),
  ];
  const short = (values) => values.map((v) => (v === null || v === undefined ? "" : power(v)));
  const marks = unique(points.map((p) => p.mark).filter(Boolean));
  const drawPoints = (u) => {
    const { ctx } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([]);
    for (const p of order) {
      ctx.strokeStyle = colour(names.indexOf(p.group));
      ctx.fillStyle = ctx.strokeStyle + "90";
      drawMark(ctx, markOf(p.mark), u.valToPos(p.x, "x", true), u.valToPos(p.y, "y", true), 3.5 * devicePixelRatio);
    }
    ctx.restore();
  };
  const tip = h("div", { class: "tip", hidden: true });
  let near = null;
  const nearest = (chart) => {
    const { left, top } = chart.cursor;
    let best = 18 ** 2;
    near = null;
    if (left >= 0)
      for (const p of order) {
        const distance = (chart.valToPos(p.x, "x") - left) ** 2 + (chart.valToPos(p.y, "y") - top) ** 2;
        if (distance < best) {
          best = distance;
          near = p;
        }
      }
    tip.hidden = !near;
    chart.over.classList.toggle("pointing", !!near);
    if (!near) return;
    tip.textContent = near.tip;
    const x = chart.valToPos(near.x, "x") + chart.over.offsetLeft,
      y = chart.valToPos(near.y, "y") + chart.over.offsetTop;
    const right = x > host.clientWidth / 2;
    tip.style.left = right ? "" : x + 12 + "px";
    tip.style.right = right ? host.clientWidth - x + 12 + "px" : "";
    tip.style.top = y + 10 + "px";
  };
  const series = [
    {},
    ...lines.map((line) => ({
      label: line.title,
      stroke: () => css("--soft"),
      width: 1.5,
      dash: line.dash,
      points: { show: false },
    })),
    ...names.map((name) => ({
      label: name,
      paths: () => null,
      points: { show: false },
    })),
  ];
  mount(
    host,
    (width) =>
      new uPlot(
        {
          width,
          height,
          series,
          legend: { show: false },
          cursor: { points: { show: false }, x: false, y: false, drag: { x: true, y: true } },
          scales: { x: { time: false, distr: 3 }, y: { distr: 3 } },
          axes: [axis(xLabel, 34, (u, v) => short(v)), axis(yLabel, 56, (u, v) => short(v))],
          hooks: {
            draw: [drawPoints],
            setCursor: [nearest],
            ready: [(u) => u.over.addEventListener("click", () => near && (location.hash = near.path))],
          },
        },
        data,
        host,
      ),
    tip,
    label,
  );
  return h(
    "ul",
    { class: "legend" },
    names.map((name, i) => {
      const own = marks.includes(name) ? markOf(name) : marks.length === 1 ? markOf(marks[0]) : "circle";
      return h("li", {}, h("i", { class: own, style: { background: `var(${PALETTE[i % PALETTE.length]})` } }), name);
    }),
    marks.length > 1 && !marks.every((mark) => names.includes(mark))
      ? marks.map((mark) => h("li", {}, h("i", { class: "plain " + markOf(mark) }), mark))
      : null,
    lines.map((line) =>
      h("li", {}, h("i", { class: "line " + (line.dash ? (line.dash[0] < 4 ? "dotted" : "dashed") : "") }), line.title),
    ),
  );
}

// One case over time: median, the band from p5 to p95, the baseline, and marks.
function timeline(host, { at, median, low, high, baseline, marks, label, height = 300 }) {
  const drawMarks = (u) => {
    const { ctx } = u;
    ctx.save();
    ctx.setLineDash([4, 4]);
    ctx.lineWidth = devicePixelRatio;
    ctx.textAlign = "left";
    for (const mark of marks) {
      const x = Math.round(u.valToPos(mark.at, "x", true));
      ctx.strokeStyle = ctx.fillStyle = css(mark.kind === "change" ? "--slower" : "--soft");
      ctx.beginPath();
      ctx.moveTo(x, u.bbox.top);
      ctx.lineTo(x, u.bbox.top + u.bbox.height);
      ctx.stroke();
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.fillText(
        mark.label,
        x + 4 * devicePixelRatio,
        u.bbox.top + (mark.kind === "change" ? 12 : 26) * devicePixelRatio,
      );
    }
    ctx.restore();
  };
  const dots = { show: true, size: 6, fill: () => css("--accent") };
  mount(
    host,
    (width) =>
      new uPlot(
        {
          width,
          height,
          legend: { show: false },
          cursor: { drag: { x: true, y: false } },
          scales: {
            y: {
              range: (u, a, b) => [
                Math.max(0, a - Math.max(b - a, b * 0.04) * 0.4),
                b + Math.max(b - a, b * 0.04) * 0.6,
              ],
            },
          },
          series: [
            {},
            { stroke: () => css("--accent"), width: 2, points: dots },
            { stroke: "transparent", points: { show: false } },
            { stroke: "transparent", points: { show: false } },
            {
              stroke: () => css("--soft"),
              dash: [6, 4],
              width: 1,
              paths: uPlot.paths.stepped({ align: 1 }),
              points: { show: false },
            },
          ],
          bands: [{ series: [3, 2], fill: () => css("--accent") + "26" }],
          axes: [{ ...axis("", 34), space: 90, values: (u, v) => isoTicks(v) }, axis("µs", 56)],
          hooks: { draw: [drawMarks] },
        },
        [at, median, low, high, baseline],
        host,
      ),
    null,
    label,
  );
}

// Dates as YYYY-MM-DD, in UTC; with the time of the day where ticks lie closer.
function isoTicks(seconds) {
  const close = seconds.length > 1 && seconds[1] - seconds[0] < 86400;
  const text = (s) => new Date(s * 1000).toISOString();
  return seconds.map((s) => (close ? text(s).slice(0, 16).replace("T", " ") : text(s).slice(0, 10)));
}

// Sizes a chart to its host, now and later.
function mount(host, make, tip, label) {
  const chart = { host };
  chart.draw = () => {
    if (chart.plot) chart.plot.destroy();
    chart.plot = make(Math.max(280, host.clientWidth));
    const canvas = host.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", label);
    if (tip) host.append(tip);
  };
  chart.resize = () => {
    const width = Math.max(280, host.clientWidth);
    if (chart.plot && chart.plot.width !== width) chart.plot.setSize({ width, height: chart.plot.height });
  };
  requestAnimationFrame(() => {
    if (host.isConnected) {
      chart.draw();
      liveCharts.add(chart);
    }
  });
}
addEventListener("resize", () => liveCharts.forEach((chart) => chart.resize()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  liveCharts.forEach((chart) => chart.draw()),
);
