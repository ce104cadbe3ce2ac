// What was reached against what the device allows, and every point leads to its trial.
function roofline(summary, _, query) {
  const points = summary.timings.filter((t) => t.flops > 0 && t.bytes > 0 && t.median > 0);
  const devices = unique(points.map((t) => t.record.device));
  const host = h("div"),
    list = table({
      rows: [],
      sort: "Of ceiling",
      ascending: false,
      columns: [
        {
          title: "Case",
          value: (t) => t.record.name,
          class: "name",
          cell: (t) => [trialLink(t.record, t.record.name), h("div", { class: "soft" }, breaks(t.shape))],
        },
        { title: "Flop/byte", num: true, value: (t) => t.flops / t.bytes, cell: (t) => digits(t.flops / t.bytes, 3) },
        { title: "Gflop/s", num: true, value: rate, cell: (t) => digits(rate(t)) },
        {
          title: "GB/s",
          num: true,
          value: (t) => t.bytes / t.median / 1e3,
          cell: (t) => digits(t.bytes / t.median / 1e3),
        },
        { title: "Of ceiling", num: true, value: (t) => t.ofCeiling, cell: (t) => percent(t.ofCeiling) },
        { title: "", optional: true, cell: (t) => (isNumber(t.ofCeiling) ? shareBar(t.ofCeiling, Infinity) : "") },
      ],
    });
  const { bar, start } = filters(
    query,
    ["operator", "candidate", "dtype", "device"].map((key) => ({
      key,
      title: key,
      values: unique(points.map((t) => t.record[key])),
    })),
    (state, counter) => {
      const device = state.device || devices[0];
      const kept = points.filter(
        (t) =>
          t.record.device === device &&
          fits({ ...state, device: "" }, t.record) &&
          found(state, t.record.name, t.shape),
      );
      counter.textContent = `${count(kept.length)} timed shapes on ${device}`;
      list.update(kept);
      host.replaceChildren(
        kept.length ? plotRoofline(summary, device, kept) : h("p", { class: "empty" }, "No timed shape fits."),
      );
    },
  );
  start();
  return [
    h("h1", {}, "Roofline"),
    h(
      "p",
      { class: "lead" },
      "Operations a second over operations a compulsory byte. The roofs are what this device was measured to reach; a point leads to its trial. Drag to zoom, double-click to see all.",
    ),
    bar,
    host,
    section("The same as a table", list),
  ];
}
const rate = (t) => t.flops / t.median / 1e3;

function roofs(summary, device) {
  const of = (name) => (summary.ceilings || []).find((c) => c.device === device && c.name === name);
  const [copy, read, fma] = ["copy", "read", "fma"].map(of),
    lines = [];
  const flat = fma ? fma.value : Infinity;
  if (read)
    lines.push({
      title: `reading, ${digits(read.value)} GB/s`,
      at: (x) => Math.min(read.value * x, flat),
      dash: [2, 4],
    });
  if (copy)
    lines.push({
      title: `copying, ${digits(copy.value)} GB/s`,
      at: (x) => Math.min(copy.value * x, flat),
      dash: [8, 4],
    });
  if (fma)
    lines.push({
      title: `multiply-add in f32, ${digits(fma.value)} Gflop/s`,
      at: (x) =>
        copy || read ? (Math.max(...[copy, read].filter(Boolean).map((c) => c.value * x)) >= flat ? flat : null) : flat,
    });
  return lines;
}

function plotRoofline(summary, device, kept) {
  const operators = unique(kept.map((t) => t.record.operator)),
    few = operators.length <= PALETTE.length;
  const group = (t) => (operators.length === 1 ? t.record.candidate : few ? t.record.operator : t.record.dtype);
  const host = h("div", { class: "chart" });
  const legend = scatter(host, {
    lines: roofs(summary, device),
    xLabel: "flop/byte",
    yLabel: "Gflop/s",
    points: kept.map((t) => ({
      x: t.flops / t.bytes,
      y: rate(t),
      group: group(t),
      path: "#/trial/" + t.record.index,
      tip:
        `${t.record.name}\n${t.shape}\n${digits(t.median)} µs, ${digits(rate(t))} Gflop/s` +
        (isNumber(t.ofCeiling) ? `\n${percent(t.ofCeiling)} of the ceiling` : ""),
    })),
  });
  return h("div", {}, host, legend);
}
