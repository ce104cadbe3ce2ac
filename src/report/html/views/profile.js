// Where the time of a run goes: parts, classes, idle time, memory, hints.
function profiles(summary, rest) {
  const all = summary.profiles,
    name = (p) => `${p.subject} ${p.way} ${p.dtype}, ${p.run}`;
  const chosen = all[Number(rest[0])] || all[0];
  const list = table({
    rows: all.map((p, index) => ({ ...p, index })),
    first: 12,
    columns: [
      { title: "Run", value: name, class: "name", cell: (p) => link("profiles/" + p.index, breaks(name(p))) },
      deviceColumn(all),
      { title: "µs", num: true, value: (p) => p.untraced_us, cell: (p) => digits(p.untraced_us) },
      { title: "Tracing adds", num: true, value: (p) => p.overhead, cell: (p) => percent(p.overhead) },
      { title: "Idle", num: true, value: (p) => idleShare(p), cell: (p) => percent(idleShare(p)) },
      { title: "Peak memory", num: true, value: (p) => p.memory.peak_bytes, cell: (p) => bytes(p.memory.peak_bytes) },
      { title: "Hints", num: true, value: (p) => (p.hints || []).length },
    ],
  });
  return [h("h1", {}, "Profiles"), all.length > 1 ? list : null, ...profileOf(chosen, name(chosen))];
}

const idleShare = (p) => p.idle.reduce((sum, slice) => sum + slice.share, 0);

function profileOf(p, name) {
  return [
    section(
      name,
      h(
        "p",
        { class: "lead" },
        `${digits(p.untraced_us)} µs a run; ${count(p.runs)} runs traced by ${p.source}, which adds ${percent(p.overhead)}.`,
      ),
    ),
    section("Operators", partTable(p.operators)),
    section("Bound by", sliceTable(p.classes)),
    p.idle.length ? section("Idle", sliceTable(p.idle)) : null,
    p.hints ? section("Hints", hintTable(p.hints)) : null,
    section("Kernels", partTable(p.kernels)),
    p.layers && p.layers.length > 1 ? section("Layers", sliceTable(p.layers)) : null,
    p.memory.peak_bytes ? section("Memory", ...memoryOf(p.memory)) : null,
    p.against ? section("Beside " + p.against.way, againstTable(p)) : null,
    p.counters ? section("Nsight Compute", counterTable(p.counters)) : null,
    p.notes ? section("Notes", h("ul", {}, p.notes.map((note) => h("li", {}, note)))) : null,
  ];
}

function partTable(parts) {
  const rate = (amount) => (part) => (amount(part) > 0 ? amount(part) / part.total_us / 1e3 : null);
  return table({
    rows: parts,
    first: 20,
    columns: [
      {
        title: "Part",
        value: (x) => x.name + " " + (x.shape || ""),
        class: "name",
        cell: (x) => [
          breaks(x.name),
          x.within ? h("div", { class: "soft" }, "counted in " + x.within) : null,
          x.shape ? h("div", { class: "soft" }, breaks(x.shape)) : null,
        ],
      },
      { title: "Calls", num: true, value: (x) => x.calls, cell: (x) => digits(x.calls, 3) },
      { title: "Total µs", num: true, value: (x) => x.total_us, cell: (x) => digits(x.total_us) },
      { title: "Share", num: true, value: (x) => x.share, cell: (x) => percent(x.share) },
      { title: "", optional: true, cell: (x) => shareBar(x.share) },
      { title: "P50 µs", num: true, value: (x) => x.p50_us, cell: (x) => digits(x.p50_us) },
      { title: "P95 µs", num: true, optional: true, value: (x) => x.p95_us, cell: (x) => digits(x.p95_us) },
      { title: "Idle before, µs", num: true, optional: true, value: (x) => x.idle_us, cell: (x) => digits(x.idle_us) },
      { title: "GB/s", num: true, value: rate((x) => x.bytes), cell: (x) => digits(rate((y) => y.bytes)(x)) },
      {
        title: "Gflop/s",
        num: true,
        optional: true,
        value: rate((x) => x.flops),
        cell: (x) => digits(rate((y) => y.flops)(x)),
      },
      { title: "Of ceiling", num: true, value: (x) => x.of_ceiling, cell: (x) => percent(x.of_ceiling) },
      { title: "Bound", value: (x) => (x.bound || "") + (x.bound === "memory" ? ` (${x.level})` : "") },
    ],
  });
}

function sliceTable(slices) {
  return table({
    rows: slices,
    first: 40,
    columns: [
      { title: "What", value: (x) => x.name, class: "name" },
      { title: "Count", num: true, value: (x) => x.count, cell: (x) => digits(x.count, 3) },
      { title: "µs", num: true, value: (x) => x.us, cell: (x) => digits(x.us) },
      { title: "Share", num: true, value: (x) => x.share, cell: (x) => percent(x.share) },
      { title: "", optional: true, cell: (x) => shareBar(x.share) },
    ],
  });
}

function hintTable(hints) {
  const realised = (x) => (x.applied ? x.applied.before_us - x.applied.after_us : null);
  return table({
    rows: hints,
    columns: [
      {
        title: "What",
        value: (x) => x.place + x.action,
        class: "name",
        cell: (x) => [
          x.action,
          h("div", { class: "soft" }, breaks(x.place)),
          h("div", { class: "soft" }, x.evidence),
          x.not_applied ? h("div", { class: "soft" }, "not applied: " + x.not_applied) : null,
        ],
      },
      { title: "Rule", value: (x) => x.rule },
      { title: "Predicted µs", num: true, value: (x) => x.gain_us, cell: (x) => digits(x.gain_us) },
      { title: "Realised µs", num: true, value: realised, cell: (x) => digits(realised(x)) },
      { title: "By", value: (x) => x.basis },
    ],
  });
}

function memoryOf(memory) {
  const most = memory.peak_bytes,
    points = memory.over_time;
  // One step up or down says no more than the peak does.
  const isFlat = unique(points.map((p) => p[1]).filter((held) => held > 0)).length < 2;
  const from = Math.min(0, ...points.map((p) => p[0])),
    to = Math.max(1, ...points.map((p) => p[0]));
  const at = ([us, held]) => `${((us - from) / (to - from)) * 600},${80 - (held / most) * 76}`;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  svg.setAttribute("viewBox", "0 0 600 82");
  svg.setAttribute("class", "curve");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Memory over the time of a run");
  line.setAttribute("points", points.map(at).join(" "));
  svg.append(line);
  return [
    h("p", {}, `At most ${bytes(most)}, ${digits(memory.peak_us)} µs into the run. Alive then:`),
    isFlat ? null : svg,
    table({
      rows: memory.alive,
      columns: [
        { title: "What", value: (x) => x.name, class: "name" },
        { title: "Bytes", num: true, value: (x) => x.bytes, cell: (x) => bytes(x.bytes) },
      ],
    }),
  ];
}

function againstTable(p) {
  const other = p.against;
  const rows = [
    ["Time of a run, µs", p.untraced_us, other.untraced_us],
    ["Launches a run", ...other.launches],
    ["Peak of memory, bytes", ...other.peak_bytes],
    other.perplexity && ["Perplexity", ...other.perplexity],
    isNumber(other.largest_difference) && ["Largest difference of outputs", other.largest_difference, null],
  ].filter(Boolean);
  return table({
    rows,
    columns: [
      { title: "", value: (x) => x[0], class: "name" },
      { title: p.way, num: true, value: (x) => x[1], cell: (x) => digits(x[1]) },
      { title: other.way, num: true, value: (x) => x[2], cell: (x) => digits(x[2]) },
      { title: "Ratio", num: true, value: (x) => x[1] / x[2], cell: (x) => (isNumber(x[2]) ? times(x[1] / x[2]) : "–") },
    ],
  });
}

function counterTable(counters) {
  const share = (key) => ({ num: true, value: (x) => x[key], cell: (x) => percent(x[key]) });
  return [
    h("p", {}, `The class is the same for ${percent(counters.agreement, 0)} of the kernels.`),
    table({
      rows: counters.kernels,
      columns: [
        { title: "Kernel", value: (x) => x.name, class: "name" },
        { title: "µs", num: true, value: (x) => x.us, cell: (x) => digits(x.us) },
        { title: "Compute", ...share("compute") },
        { title: "Memory", ...share("memory") },
        { title: "Occupancy", ...share("occupancy") },
        { title: "Tensor", optional: true, ...share("tensor") },
        { title: "DRAM", num: true, value: (x) => x.dram_bytes, cell: (x) => bytes(x.dram_bytes) },
        { title: "Bound", value: (x) => x.bound },
        { title: "Ours", value: (x) => x.ours || "–" },
      ],
    }),
  ];
}
