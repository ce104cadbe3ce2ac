// Each case over several summaries: baselines, drivers, clocks, and where the time changed for good.
function historyView(_, [chosen], query) {
  const cases = RAW.history.cases.map((c, index) => ({ ...c, index }));
  if (chosen !== undefined && cases[Number(chosen)]) return oneCase(cases[Number(chosen)]);
  const last = (c) => c.points[c.points.length - 1],
    total = (c) => last(c)[1] / c.points[0][1];
  const list = table({
    rows: [],
    columns: [
      {
        title: "Case",
        value: (c) => c.name,
        class: "name",
        cell: (c) => [
          link("history/" + c.index, c.name),
          h("div", { class: "soft" }, breaks(c.shape + " · " + c.device)),
        ],
      },
      { title: "Runs", num: true, value: (c) => c.points.length },
      {
        title: "First µs",
        num: true,
        optional: true,
        value: (c) => c.points[0][1],
        cell: (c) => digits(c.points[0][1]),
      },
      { title: "Last µs", num: true, value: (c) => last(c)[1], cell: (c) => digits(last(c)[1]) },
      { title: "Since the first", num: true, value: total, cell: (c) => change(total(c)) },
      {
        title: "Change points",
        num: true,
        value: (c) => c.changes.length,
        cell: (c) =>
          c.changes.length
            ? c.changes.map((x) => h("div", { class: x.ratio > 1 ? "slower" : "faster" }, change(x.ratio)))
            : "–",
      },
      { title: "", optional: true, cell: spark },
    ],
  });
  const { bar, start } = filters(
    query,
    [{ key: "device", title: "device", values: unique(cases.map((c) => c.device)) }],
    (state, counter) => {
      const rows = cases.filter((c) => (!state.device || c.device === state.device) && found(state, c.name, c.shape));
      rows.sort(
        (a, b) => b.changes.length - a.changes.length || Math.abs(Math.log(total(b))) - Math.abs(Math.log(total(a))),
      );
      counter.textContent = `${count(rows.length)} cases over ${count(RAW.history.runs.length)} runs`;
      list.update(rows);
    },
  );
  start();
  return [
    h("h1", {}, "History"),
    h(
      "p",
      { class: "lead" },
      h("strong", {}, RAW.history.ratio),
      `. ${RAW.history.noise} A change point has at least ${RAW.history.segment} runs on both sides; measure it again before you act on it.`,
    ),
    bar,
    list,
  ];
}

function spark(c) {
  const svg = (tag, attributes) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    return e;
  };
  const top = Math.max(...c.points.map((p) => p[1])),
    low = Math.min(...c.points.map((p) => p[1])),
    n = Math.max(1, c.points.length - 1);
  const at = c.points
    .map((p, i) => `${2 + (i / n) * 116},${22 - (top > low ? (p[1] - low) / (top - low) : 0.5) * 20}`)
    .join(" ");
  const root = svg("svg", { width: 120, height: 24, "aria-hidden": "true" });
  const line = svg("polyline", { points: at, fill: "none", "stroke-width": 1.5 });
  line.style.stroke = "var(--accent)";
  root.append(line);
  return root;
}

function oneCase(c) {
  const host = h("div", { class: "chart" }),
    at = c.points.map((p) => p[0]);
  const marks = [
    ...c.marks.map((m) => ({ at: at[m.at], label: m.what, kind: "mark" })),
    ...c.changes.map((x) => ({ at: at[x.at], label: change(x.ratio), kind: "change" })),
  ];
  timeline(host, {
    at,
    median: c.points.map((p) => p[1]),
    low: c.points.map((p) => p[2]),
    high: c.points.map((p) => p[3]),
    baseline: c.points.map((p) => p[4]),
    marks,
    label: `Median time of ${c.name} over the runs`,
  });
  const rows = c.points.map((p, i) => ({
    at: p[0],
    median: p[1],
    low: p[2],
    high: p[3],
    baseline: p[4],
    clock: p[5],
    label: RAW.history.runs[p[6]],
    mark: marks
      .filter((m) => m.at === p[0])
      .map((m) => m.label)
      .join(", "),
    i,
  }));
  return [
    h("p", { class: "crumbs" }, link("history", "History")),
    h("h1", {}, c.name),
    h("p", { class: "lead" }, c.shape + " · " + c.device),
    host,
    h(
      "ul",
      { class: "legend" },
      h("li", {}, h("i", { style: { background: "var(--accent)" } }), "median, with the range from p5 to p95"),
      c.points.some((p) => isNumber(p[4])) ? h("li", {}, h("i", { class: "line dashed" }), "accepted baseline") : null,
    ),
    table({
      rows,
      columns: [
        {
          title: "Started",
          value: (r) => r.at,
          class: "nowrap",
          cell: (r) => day(new Date(r.at * 1000).toISOString().replace(".000", "")),
        },
        { title: "Run", value: (r) => r.label, class: "name" },
        { title: "Median µs", num: true, value: (r) => r.median, cell: (r) => digits(r.median) },
        { title: "p5", num: true, optional: true, value: (r) => r.low, cell: (r) => digits(r.low) },
        { title: "p95", num: true, optional: true, value: (r) => r.high, cell: (r) => digits(r.high) },
        { title: "Baseline", num: true, sparse: true, value: (r) => r.baseline, cell: (r) => digits(r.baseline) },
        { title: "MHz", num: true, sparse: true, optional: true, value: (r) => r.clock, cell: (r) => digits(r.clock) },
        { title: "What changed", value: (r) => r.mark },
      ],
    }),
  ];
}
