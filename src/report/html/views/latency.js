// Where the times of a launch lie: median, p5 and p95.
function latency(summary, _, query) {
  const host = h("div"),
    list = timingTable(summary.timings, true);
  const { bar, start } = filters(
    query,
    choicesOf({ ...summary, records: summary.timings.map((t) => t.record) }, [
      "operator",
      "candidate",
      "dtype",
      "device",
    ]),
    (state, counter) => {
      const rows = summary.timings.filter((t) => fits(state, t.record) && found(state, t.record.name, t.shape));
      const spreads = rows
        .map(spread)
        .filter(isNumber)
        .sort((a, b) => a - b);
      counter.textContent =
        `${count(rows.length)} timed shapes` +
        (spreads.length ? `; half of them spread less than ${percent(spreads[spreads.length >> 1])}` : "");
      list.update(rows);
      host.replaceChildren(plotSpread(rows));
    },
  );
  start();
  return [
    h("h1", {}, "Latency"),
    h(
      "p",
      { class: "lead" },
      "How far the times of each shape spread: the median, and the range from the 5th to the 95th percentile of its batches. A summary keeps these three and no samples, so there is no shape of a distribution to see. A point leads to its trial.",
    ),
    bar,
    host,
    list,
  ];
}

// From p5 to p95 around the median, which is the tick in the middle; both ends of the strip are 5 % off.
const STRIP = 0.05;
function rangeBar(t) {
  if (!isNumber(t.p5) || !isNumber(t.p95) || !(t.median > 0)) return "";
  const at = (x) => 50 + Math.max(-1, Math.min(1, (x / t.median - 1) / STRIP)) * 50;
  return h(
    "span",
    { class: "bar range", title: `${digits(t.p5)} to ${digits(t.p95)} µs` },
    h("i", { class: "band", style: { left: at(t.p5) + "%", width: Math.max(1, at(t.p95) - at(t.p5)) + "%" } }),
    h("i", { class: "mid", style: { left: "calc(50% - 1px)" } }),
  );
}

// How far the times of each shape spread, over how long they are.
function plotSpread(timings) {
  const points = timings.filter((t) => spread(t) > 0 && t.median > 0);
  if (!points.length) return "";
  const host = h("div", { class: "chart" });
  const legend = scatter(host, {
    label: "Spread of the times of each shape over their median",
    lines: [],
    height: 320,
    xLabel: "median, µs",
    yLabel: "spread, %",
    points: points.map((t) => ({
      x: t.median,
      y: spread(t) * 100,
      group: t.record.dtype,
      mark: t.record.dtype,
      path: "#/trial/" + t.record.index,
      tip: `${t.record.name}\n${t.shape}\n${digits(t.p5)} to ${digits(t.p95)} µs, median ${digits(t.median)}`,
    })),
  });
  return h("div", {}, host, legend);
}
