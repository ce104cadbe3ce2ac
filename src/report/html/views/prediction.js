// What the predictor said against what was measured: how good it is as a whole, and case by case.
const offBy = (t) => t.median / t.predicted;
const inside = (t) => (t.interval ? t.median >= t.interval[0] && t.median <= t.interval[1] : null);

function prediction(summary, _, query) {
  const host = h("div"),
    tiles = h("div", { class: "tiles" });
  const list = table({
    rows: summary.predicted,
    columns: [
      {
        title: "Case",
        value: (t) => t.record.name,
        class: "name",
        cell: (t) => [trialLink(t.record, t.record.name), h("div", { class: "soft" }, breaks(t.shape))],
      },
      { title: "Measured µs", num: true, value: (t) => t.median, cell: (t) => digits(t.median) },
      { title: "Predicted µs", num: true, value: (t) => t.predicted, cell: (t) => digits(t.predicted) },
      {
        title: "Nine of ten",
        num: true,
        optional: true,
        sparse: true,
        about: "The predictor expects nine of ten times between these, in µs",
        value: (t) => t.interval && t.interval[0],
        cell: (t) =>
          t.interval
            ? h("span", { class: inside(t) ? "" : "strong slower" }, `${digits(t.interval[0])} to ${digits(t.interval[1])}`)
            : "–",
      },
      { title: "Off by", num: true, value: offBy, cell: (t) => change(offBy(t)) },
      { title: "", optional: true, cell: (t) => changeBar(offBy(t)) },
      { title: "Bound", sparse: true, value: (t) => t.bound },
    ],
  });
  const { bar, start } = filters(
    query,
    ["operator", "dtype", "device"].map((key) => ({
      key,
      title: key,
      values: unique(summary.predicted.map((t) => t.record[key])),
    })),
    (state, counter) => {
      const rows = summary.predicted
        .filter((t) => t.median > 0 && fits(state, t.record) && found(state, t.record.name, t.shape))
        .sort((a, b) => Math.abs(Math.log(offBy(b))) - Math.abs(Math.log(offBy(a))));
      counter.textContent = `${count(rows.length)} predicted shapes`;
      tiles.replaceChildren(...quality(rows));
      host.replaceChildren(rows.length ? plotPrediction(rows) : "");
      list.update(rows);
    },
  );
  start();
  return [
    h("h1", {}, "Prediction"),
    h("p", { class: "lead" }, "What the predictor said against what was measured. On the line both are the same."),
    bar,
    tiles,
    host,
    list,
  ];
}

// Errors as shares of what was measured.
function quality(rows) {
  const errors = rows.map((t) => Math.abs(t.predicted / t.median - 1)).sort((a, b) => a - b);
  const at = (share) => errors[Math.min(errors.length - 1, Math.floor(share * errors.length))];
  const judged = rows.filter((t) => t.interval);
  const within = judged.length ? judged.filter(inside).length / judged.length : null;
  return [
    ["median error", percent(at(0.5))],
    ["P95", percent(at(0.95))],
    ["largest", percent(at(1))],
    ["in interval", percent(within, 0)],
  ].map(([title, text]) => h("div", { class: "tile" }, h("span", { class: "soft" }, title), h("b", {}, text)));
}

function plotPrediction(rows) {
  const host = h("div", { class: "chart" });
  const legend = scatter(host, {
    label: "Predicted over measured time of each shape",
    lines: [{ title: "predicted as measured", at: (x) => x, dash: [8, 4] }],
    xLabel: "measured, µs",
    yLabel: "predicted, µs",
    points: rows.map((t) => ({
      x: t.median,
      y: t.predicted,
      group: t.bound || t.record.dtype,
      mark: t.record.dtype,
      path: "#/trial/" + t.record.index,
      tip: `${t.record.name}\n${t.shape}\n${digits(t.median)} µs, predicted ${digits(t.predicted)}`,
    })),
  });
  return h("div", {}, host, legend);
}
