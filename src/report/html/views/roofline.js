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

// Two sloped roofs, and a flat one for each pipe that the points use.
function roofs(summary, device, dtypes) {
  const of = (name) => (summary.ceilings.find((c) => c.device === device && c.name === name) || {}).value;
  const tera = (value) => digits(value / 1e3, 3) + " Tflop/s";
  const flats = [];
  if (of("fma")) flats.push({ title: `f32 FMA, ${tera(of("fma"))}`, value: of("fma") });
  for (const dtype of dtypes.filter((d) => /^b?f16$/.test(d) && of("tensor_" + d))) {
    const value = of("tensor_" + dtype),
      like = flats.find((f) => f.dtypes && Math.abs(value / f.value - 1) <= 0.1);
    if (!like) flats.push({ dtypes: [dtype], least: value, value });
    else {
      like.dtypes.push(dtype);
      [like.least, like.value] = [Math.min(like.least, value), Math.max(like.value, value)];
    }
  }
  const slopes = ["copy", "read"].filter(of).map((name) => ({ name, value: of(name) }));
  const top = Math.max(...flats.map((f) => f.value)),
    steepest = Math.max(...slopes.map((s) => s.value));
  return [
    ...slopes.map((s) => ({
      title: `${s.name === "copy" ? "copying" : "reading"}, ${digits(s.value)} GB/s`,
      at: (x) => (flats.length ? Math.min(s.value * x, top) : s.value * x),
      dash: s.name === "copy" ? [8, 4] : [2, 4],
    })),
    ...flats.map((f) => ({
      title:
        f.title ||
        `${f.dtypes.join(", ")} tensor cores, ${f.least < f.value ? digits(f.least / 1e3, 3) + " to " : ""}${tera(f.value)}`,
      at: (x) => (slopes.length && steepest * x < f.value ? null : f.value),
    })),
  ];
}

function plotRoofline(summary, device, kept) {
  const operators = unique(kept.map((t) => t.record.operator)),
    dtypes = unique(kept.map((t) => t.record.dtype)),
    few = operators.length <= PALETTE.length;
  const group = (t) => (operators.length === 1 ? t.record.candidate : few ? t.record.operator : t.record.dtype);
  const host = h("div", { class: "chart" });
  const lines = roofs(summary, device, dtypes);
  const without = dtypes.filter(
    (d) => /^b?f16$/.test(d) && !summary.ceilings.some((c) => c.device === device && c.name === "tensor_" + d),
  );
  const legend = scatter(host, {
    label: "Operations a second over operations a byte, under the roofs of the device",
    lines,
    xLabel: "flop/byte",
    yLabel: "Gflop/s",
    points: kept.map((t) => ({
      x: t.flops / t.bytes,
      y: rate(t),
      group: group(t),
      mark: t.record.dtype,
      path: "#/trial/" + t.record.index,
      tip:
        `${t.record.name}\n${t.shape}\n${digits(t.median)} µs, ${digits(rate(t))} Gflop/s` +
        (isNumber(t.ofCeiling) ? `\n${percent(t.ofCeiling)} of the ceiling` : ""),
    })),
  });
  const note =
    without.length && lines.length
      ? h(
          "p",
          { class: "note" },
          `No roof of tensor cores is known here for ${without.join(" and ")}: such points may lie above the f32 FMA roof, and have no share of a ceiling where arithmetic is the limit. The file of kernelgate calibrate, given beside the summary, adds it.`,
        )
      : null;
  return h("div", {}, host, legend, note);
}
