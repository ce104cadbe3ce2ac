// All trials, and one trial in full.
function trials(summary, _, query) {
  const list = table({
    rows: [],
    sort: "Trial",
    columns: [
      { title: "Verdict", value: (r) => VERDICTS.indexOf(r.verdict), cell: (r) => pill(r.verdict) },
      {
        title: "Trial",
        value: (r) => r.trial,
        class: "name",
        cell: (r) => [
          trialLink(r),
          r.verdict !== "pass" && r.reason ? h("div", { class: "soft" }, breaks(cut(r.reason, 120))) : null,
        ],
      },
      deviceColumn(summary.records),
      { title: "Cases", num: true, optional: true, value: (r) => r.cases, cell: (r) => count(r.cases) },
      {
        title: "Of allowed",
        num: true,
        about: "The largest error as a share of what is allowed",
        value: (r) => r.worst,
        cell: (r) => ofAllowed(r.worst),
      },
      {
        title: "Change",
        num: true,
        about: "The largest ratio to the baseline",
        value: worstRatio,
        cell: (r) => change(worstRatio(r)),
      },
      { title: "s", num: true, optional: true, value: (r) => r.duration, cell: (r) => digits(r.duration, 3) },
    ],
  });
  const { bar, start } = filters(
    query,
    choicesOf(summary, ["verdict", "operator", "dtype", "check", "device"]),
    (state, counter) => {
      const rows = summary.records.filter((r) => fits(state, r) && found(state, r.trial, r.reason));
      counter.textContent = `${count(rows.length)} of ${count(summary.records.length)} trials`;
      list.update(rows);
    },
  );
  start();
  return [h("h1", {}, "Trials"), bar, list];
}
const worstRatio = (r) => {
  const all = r.timings.map((t) => t.ratio).filter(isNumber);
  return all.length ? Math.max(...all) : null;
};

function trial(summary, [index]) {
  const r = summary.records[Number(index)];
  if (!r) return [h("h1", {}, "No such trial")];
  const planned = r.planned
    ? `${count(r.cases)} of ${count(r.planned)} planned${r.cut ? `, ${count(r.cut)} cut` : ""}`
    : count(r.cases);
  return [
    h(
      "p",
      { class: "crumbs" },
      link("operators", "Operators"),
      " / ",
      link("operator/" + part(r.operator), r.operator),
    ),
    h("h1", {}, breaks(r.trial)),
    h("p", { class: "lead" }, pill(r.verdict), " ", r.reason),
    pairs([
      ["Device", r.device],
      ["Cases", planned],
      ["Took", digits(r.duration, 3) + " s"],
      ["Kernel", r.source],
      ["Notes", r.notes.join("\n")],
    ]),
    r.error || r.worst !== null
      ? section(
          "Largest errors",
          pairs([
            ["Of what is allowed", ofAllowed(r.worst, 1)],
            ["In the last place", r.error && digits(r.error.ulp) + " ULP"],
            ["Absolute", r.error && (isNumber(r.error.abs) ? r.error.abs.toExponential(3) : "not finite")],
            ["Relative", r.error && (isNumber(r.error.rel) ? r.error.rel.toExponential(3) : "not finite")],
          ]),
        )
      : null,
    r.failure ? failureOf(r.failure) : null,
    r.timings.length ? section("Times", timingTable(r.timings)) : null,
    r.timings.some((t) => t.peers.length) ? section("Beside its peers", peerTable(r.timings)) : null,
    r.metrics.length ? section("Counts of the simulator", metricTable(r.metrics)) : null,
    section(
      "Repeat",
      h("pre", { tabindex: "0" }, r.repeat),
      h("button", { class: "plain", onclick: (event) => copy(r.repeat, event.target) }, "Copy"),
    ),
  ];
}

function failureOf(f) {
  const w = f.worst;
  return section(
    "Failure",
    pairs([
      ["Check", f.check],
      ["Shape", f.case.shape],
      ["Inputs", `${f.case.dtype} ${f.case.distribution}, seed ${f.case.seed}`],
      ["Offset", f.case.offset_bytes ? f.case.offset_bytes + " bytes" : ""],
      [
        "Worst at",
        w ? `${w.output}[${w.index.join(", ")}]; ${count(w.failing)} of ${count(w.elements)} elements are wrong` : "",
      ],
      ["Expected", w && w.expected],
      ["Got", w && w.got],
      ["Allowed", w && "an error of " + w.allowed],
    ]),
    h("pre", { tabindex: "0" }, f.text),
  );
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select the line to copy it";
  }
}

function timingTable(timings, named) {
  return table({
    rows: timings,
    columns: [
      !named
        ? null
        : {
            title: "Case",
            value: (t) => t.record.name,
            class: "name",
            cell: (t) => [trialLink(t.record, t.record.name), h("div", { class: "soft" }, breaks(t.shape))],
          },
      named ? null : { title: "Shape", value: (t) => t.shape, class: "name" },
      timings.every((t) => t.heat === "cold") ? null : { title: "Caches", optional: true, value: (t) => t.heat },
      {
        title: "Median µs",
        num: true,
        value: (t) => t.median,
        cell: (t) => h("span", { class: "strong" }, digits(t.median)),
      },
      { title: "Spread", about: "p5, median and p95; the strip ends 5 % off the median", optional: true, value: spread, cell: rangeBar },
      {
        title: "p95 − p5",
        num: true,
        about: "From p5 to p95, of the median",
        value: spread,
        cell: (t) => percent(spread(t)),
      },
      {
        title: "Samples",
        num: true,
        optional: true,
        value: (t) => t.samples,
        cell: (t) => count(t.samples) + (t.dropped ? ` (−${t.dropped})` : ""),
      },
      { title: "Of ceiling", num: true, value: (t) => t.ofCeiling, cell: (t) => percent(t.ofCeiling) },
      { title: "Baseline µs", num: true, optional: true, sparse: true, value: (t) => t.baseline, cell: (t) => digits(t.baseline) },
      { title: "Change", num: true, sparse: true, value: (t) => t.ratio, cell: (t) => change(t.ratio) },
      {
        title: "Counts from",
        num: true,
        sparse: true,
        optional: true,
        about: "The change that counts, from the noise of the device",
        value: (t) => t.threshold,
        cell: (t) => percent(t.threshold),
      },
      { title: "Verdict", value: (t) => VERDICTS.indexOf(t.verdict), cell: (t) => pill(t.verdict) },
    ].filter(Boolean),
  });
}
const spread = (t) => (isNumber(t.p95) && isNumber(t.p5) && t.median ? (t.p95 - t.p5) / t.median : null);

function metricTable(metrics) {
  return table({
    rows: metrics,
    columns: [
      { title: "Case", value: (m) => m.record.name, class: "name", cell: (m) => trialLink(m.record, m.record.name) },
      { title: "Shape", value: (m) => m.shape, class: "name" },
      { title: "Count", value: (m) => m.name },
      { title: "Value", num: true, value: (m) => m.value, cell: (m) => count(m.value) },
      { title: "Against the case", optional: true, value: (m) => m.relative },
      { title: "Accepted", num: true, value: (m) => m.accepted, cell: (m) => count(m.accepted) },
      {
        title: "Change",
        num: true,
        value: (m) => (m.accepted ? m.value / m.accepted : null),
        cell: (m) => (m.accepted ? (m.value === m.accepted ? "same" : change(m.value / m.accepted)) : "–"),
      },
    ],
  });
}
function counts(summary, _, query) {
  const host = metricTable([]);
  const { bar, start } = filters(query, [], (state, counter) => {
    const rows = summary.metrics.filter((m) => found(state, m.record.trial, m.shape, m.name));
    counter.textContent = `${count(rows.length)} counts`;
    host.update(rows);
  });
  start();
  return [
    h("h1", {}, "Counts of the simulator"),
    h("p", { class: "lead" }, "Exact, and the same on every machine: any more work is a regression."),
    bar,
    host,
  ];
}
