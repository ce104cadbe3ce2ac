// The machine: what it was measured to reach, how it repeats itself, and what it is.
function calibration(summary) {
  const yard = summary.timings.filter((t) => isNumber(t.copy) || isNumber(t.read) || isNumber(t.fma));
  return [
    h("h1", {}, "Calibration"),
    h(
      "p",
      { class: "lead" },
      "Ceilings come from yardsticks that were timed beside the candidates: a copy, a read, multiply-adds. The floor of a case is what they allow.",
    ),
    (summary.ceilings || []).length
      ? section(
          "Ceilings",
          table({
            rows: summary.ceilings,
            columns: [
              { title: "Device", value: (c) => c.device, class: "name" },
              { title: "What", value: (c) => c.name },
              { title: "Reached", num: true, value: (c) => c.value, cell: (c) => digits(c.value, 5) },
              { title: "Unit", value: (c) => c.unit },
            ],
          }),
        )
      : null,
    (summary.noise || []).length
      ? section(
          "Noise: a kernel against itself",
          table({
            rows: summary.noise,
            columns: [
              {
                title: "Case",
                value: (n) => n.operator + "::" + n.candidate + "::" + n.dtype,
                class: "name",
                cell: (n) => [
                  n.operator + "::" + n.candidate + "::" + n.dtype,
                  h("div", { class: "soft" }, breaks(n.shape)),
                ],
              },
              { title: "Device", optional: true, value: (n) => n.device },
              { title: "µs", num: true, value: (n) => n.launch_us, cell: (n) => digits(n.launch_us) },
              { title: "Threshold", num: true, value: (n) => n.threshold, cell: (n) => percent(n.threshold, 2) },
              { title: "Trials", num: true, value: (n) => n.trials },
              { title: "False alarms", num: true, value: (n) => n.false_slower + n.false_faster },
              { title: "Unclear", num: true, value: (n) => n.unclear },
              {
                title: "Smallest found",
                num: true,
                value: (n) => n.smallest_found,
                cell: (n) => percent(n.smallest_found, 2),
              },
            ],
          }),
        )
      : null,
    yard.length
      ? section(
          "Yardsticks beside the cases, µs",
          table({
            rows: yard,
            columns: [
              {
                title: "Case",
                value: (t) => t.record.name,
                class: "name",
                cell: (t) => [trialLink(t.record, t.record.name), h("div", { class: "soft" }, breaks(t.shape))],
              },
              { title: "Candidate", num: true, value: (t) => t.median, cell: (t) => digits(t.median) },
              { title: "Copy", num: true, value: (t) => t.copy, cell: (t) => digits(t.copy) },
              { title: "Read", num: true, value: (t) => t.read, cell: (t) => digits(t.read) },
              { title: "Multiply-add", num: true, value: (t) => t.fma, cell: (t) => digits(t.fma) },
              { title: "Floor", num: true, value: (t) => t.floor, cell: (t) => digits(t.floor) },
              { title: "Of ceiling", num: true, value: (t) => t.ofCeiling, cell: (t) => percent(t.ofCeiling) },
            ],
          }),
        )
      : null,
  ];
}

function environment(summary) {
  const run = summary.run;
  return [
    h("h1", {}, "Environment"),
    section(
      "Run",
      pairs([
        ["Package", run.package],
        ["Revision", run.revision || "not recorded"],
        ["Command", h("code", {}, run.command)],
        ["Started", day(run.started)],
        ["Seed", String(run.seed)],
        ["kernelgate", run.kernelgate],
        ["Host", run.os + ", " + run.arch],
        ["Run", run.id],
        ["Merged from", run.merged ? count(run.merged + 1) + " runs" : ""],
        ["File", summary.label],
      ]),
    ),
    summary.devices.map((d) =>
      section(
        d.name,
        pairs([
          ["Kind", d.kind],
          ["Key", d.key],
          ["Architecture", d.arch],
          ["Multiprocessors or threads", count(d.units)],
          ["Last-level cache", d.cache_bytes ? bytes(d.cache_bytes) : ""],
          ["Memory", d.memory_bytes ? bytes(d.memory_bytes) : ""],
          ["Highest clock", d.clock_mhz ? digits(d.clock_mhz, 4) + " MHz" : ""],
          ["Driver", d.driver],
          ["Compiler", d.compiler],
        ]),
      ),
    ),
  ];
}

function prediction(summary) {
  const off = (t) => t.median / t.predicted;
  return [
    h("h1", {}, "Prediction"),
    h("p", { class: "lead" }, "What the predictor said against what was measured."),
    table({
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
        { title: "Off by", num: true, value: off, cell: (t) => change(off(t)) },
        { title: "", optional: true, cell: (t) => changeBar(off(t)) },
      ],
    }),
  ];
}

function models(summary) {
  return [
    h("h1", {}, "Models"),
    table({
      rows: summary.models,
      columns: [
        { title: "Model", value: (m) => m.model, class: "name" },
        { title: "Device", optional: true, value: (m) => m.device },
        { title: "Type", value: (m) => m.dtype },
        { title: "Way", value: (m) => m.way },
        { title: "Batch", num: true, value: (m) => m.batch },
        {
          title: "Tokens/s",
          num: true,
          value: (m) => m.decode_per_s,
          cell: (m) => h("span", { class: "strong" }, digits(m.decode_per_s)),
        },
        { title: "Prompt tokens/s", num: true, value: (m) => m.prefill_per_s, cell: (m) => digits(m.prefill_per_s) },
        { title: "First token ms", num: true, value: (m) => m.first_token_ms, cell: (m) => digits(m.first_token_ms) },
        {
          title: "Token ms, p50",
          num: true,
          value: (m) => m.token_ms && m.token_ms.p50,
          cell: (m) => digits(m.token_ms && m.token_ms.p50),
        },
        {
          title: "p99",
          num: true,
          optional: true,
          value: (m) => m.token_ms && m.token_ms.p99,
          cell: (m) => digits(m.token_ms && m.token_ms.p99),
        },
        {
          title: "Memory",
          num: true,
          value: (m) => m.memory && m.memory.total,
          cell: (m) => (m.memory ? bytes(m.memory.total) : "–"),
        },
        {
          title: "Of read ceiling",
          num: true,
          optional: true,
          value: (m) => m.of_read_ceiling,
          cell: (m) => percent(m.of_read_ceiling),
        },
      ],
    }),
  ];
}

function workloads(summary) {
  const right = (right, of) => (of ? `${right} of ${of}` : "–");
  const time = (w, name) => w.time && w.time[name];
  return [
    h("h1", {}, "Workloads"),
    table({
      rows: summary.workloads,
      columns: [
        {
          title: "Workload",
          value: (w) => w.workload,
          class: "name",
          cell: (w) => [w.workload, h("div", { class: "soft" }, breaks(w.shape))],
        },
        { title: "Variant", value: (w) => w.variant },
        { title: "Device", optional: true, value: (w) => w.device },
        { title: "Type", value: (w) => w.dtype },
        { title: "P50 µs", num: true, value: (w) => time(w, "p50_us"), cell: (w) => digits(time(w, "p50_us")) },
        { title: "P95 µs", num: true, value: (w) => time(w, "p95_us"), cell: (w) => digits(time(w, "p95_us")) },
        { title: "Rows/s", num: true, value: (w) => time(w, "per_s"), cell: (w) => digits(time(w, "per_s")) },
        {
          title: "Right",
          optional: true,
          value: (w) => w.accuracy && w.accuracy.right,
          cell: (w) => (w.accuracy ? right(w.accuracy.right, w.accuracy.digits) : "–"),
        },
        {
          title: "Right, kept out",
          value: (w) => w.accuracy && w.accuracy.right_kept_out,
          cell: (w) => (w.accuracy ? right(w.accuracy.right_kept_out, w.accuracy.kept_out) : "–"),
        },
        {
          title: "Speed-up",
          num: true,
          value: (w) => w.exchange && w.exchange.measured,
          cell: (w) => digits(w.exchange && w.exchange.measured),
        },
        {
          title: "Predicted",
          num: true,
          value: (w) => w.exchange && w.exchange.predicted,
          cell: (w) => digits(w.exchange && w.exchange.predicted),
        },
        { title: "", optional: true, value: (w) => w.skipped, cell: (w) => w.skipped || "" },
      ],
    }),
  ];
}
