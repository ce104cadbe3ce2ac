// What the devices reach: ceilings of this run, calibrations that were given beside it, noise, yardsticks.
function calibration(summary) {
  const yard = summary.timings.filter((t) => isNumber(t.copy) || isNumber(t.read) || isNumber(t.fma));
  return [
    h("h1", {}, "Calibration"),
    h(
      "p",
      { class: "lead" },
      "Ceilings come from yardsticks that were timed beside the candidates: a copy, a read, multiply-adds. The floor of a case is what they allow.",
    ),
    summary.ceilings.length ? section("Ceilings", ceilingTable(summary.ceilings)) : null,
    (RAW.calibrations || []).map(calibrated),
    (summary.noise || []).length ? section("Noise: a kernel against itself", noiseTable(summary.noise)) : null,
    yard.length ? section("Yardsticks beside the cases, µs", yardTable(yard)) : null,
  ];
}

function ceilingTable(ceilings) {
  return table({
    rows: ceilings,
    columns: [
      { title: "Device", value: (c) => c.device, class: "name" },
      { title: "What", value: (c) => c.name },
      { title: "Reached", num: true, value: (c) => c.value, cell: (c) => digits(c.value, 5) },
      { title: "Unit", value: (c) => c.unit },
    ],
  });
}

function noiseTable(noise) {
  return table({
    rows: noise,
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
      deviceColumn(noise),
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
  });
}

function yardTable(yard) {
  return table({
    rows: yard,
    first: 20,
    columns: [
      {
        title: "Case",
        value: (t) => t.record.name,
        class: "name",
        cell: (t) => [trialLink(t.record, t.record.name), h("div", { class: "soft" }, breaks(t.shape))],
      },
      { title: "Candidate", num: true, value: (t) => t.median, cell: (t) => digits(t.median) },
      { title: "Copy", num: true, sparse: true, value: (t) => t.copy, cell: (t) => digits(t.copy) },
      { title: "Read", num: true, sparse: true, value: (t) => t.read, cell: (t) => digits(t.read) },
      { title: "Multiply-add", num: true, sparse: true, value: (t) => t.fma, cell: (t) => digits(t.fma) },
      { title: "Floor", num: true, value: (t) => t.floor, cell: (t) => digits(t.floor) },
      { title: "Of ceiling", num: true, value: (t) => t.ofCeiling, cell: (t) => percent(t.ofCeiling) },
    ],
  });
}

// One file of `kernelgate calibrate`.
function calibrated(c) {
  const PIPES = { fma: "FMA", special: "special functions", tensor: "tensor cores" };
  const pipe = (x) => `${PIPES[x.pipe] || x.pipe}, ${x.pipe === "tensor" && x.dtype === "f32" ? "tf32" : x.dtype}`;
  const heat = (b) => (b.heat === "hot" ? "hot" : "cold");
  return section(
    `Calibration of ${c.device.name}`,
    h(
      "p",
      { class: "note" },
      [day(c.measured), c.revision && "revision " + c.revision, `${digits(c.seconds, 3)} s`].filter(Boolean).join(" · "),
    ),
    h("div", { class: "columns" }, [
      section(
        "Peaks",
        table({
          rows: c.peaks,
          columns: [
            { title: "Pipe", value: pipe, class: "name" },
            { title: "Burst Tflop/s", num: true, value: (p) => p.burst_tflops, cell: (p) => digits(p.burst_tflops) },
            { title: "Sustained", num: true, value: (p) => p.sustained_tflops, cell: (p) => digits(p.sustained_tflops) },
            { title: "MHz then", num: true, optional: true, value: (p) => p.sustained_mhz, cell: (p) => digits(p.sustained_mhz) },
          ],
        }),
      ),
      section(
        "Ridge points",
        table({
          rows: c.ridges,
          first: 10,
          columns: [
            { title: "Pipe", value: pipe, class: "name" },
            { title: "Over", value: (r) => r.level },
            { title: "Burst flop/byte", num: true, value: (r) => r.burst, cell: (r) => digits(r.burst, 3) },
            { title: "Sustained", num: true, value: (r) => r.sustained, cell: (r) => digits(r.sustained, 3) },
          ],
        }),
      ),
      section(
        "Memory levels",
        table({
          rows: c.bandwidths,
          first: 10,
          columns: [
            { title: "Level", value: (b) => b.level },
            { title: "Read : written", value: (b) => `${b.reads} : ${b.writes}`, class: "nowrap" },
            { title: "Caches", value: heat },
            { title: "Footprint", num: true, value: (b) => b.footprint_bytes, cell: (b) => bytes(b.footprint_bytes) },
            { title: "GB/s", num: true, value: (b) => b.gb_per_s, cell: (b) => digits(b.gb_per_s) },
          ],
        }),
      ),
      section(
        "Latencies",
        table({
          rows: c.latencies,
          first: 10,
          columns: [
            { title: "Level", value: (l) => l.level },
            { title: "Footprint", num: true, value: (l) => l.footprint_bytes, cell: (l) => bytes(l.footprint_bytes) },
            { title: "ns a load", num: true, value: (l) => l.load_ns, cell: (l) => digits(l.load_ns) },
          ],
        }),
      ),
      section("Launches", launchTable(c)),
    ]),
    c.notes.length ? h("ul", { class: "note" }, c.notes.map((note) => h("li", {}, note))) : null,
  );
}

function launchTable(c) {
  const rows = c.launches.map((l) => ({ what: `in a graph, ${count(l.blocks)} blocks`, us: l.node_us, range: l.p5_p95_us }));
  if (isNumber(c.dependent_us)) rows.push({ what: "one that waits for the one before", us: c.dependent_us });
  if (c.host) rows.push({ what: "by the host, until it has returned", us: c.host.launch_us });
  return table({
    rows,
    columns: [
      { title: "Launch", value: (r) => r.what, class: "name" },
      { title: "µs", num: true, value: (r) => r.us, cell: (r) => digits(r.us) },
      {
        title: "P5 to P95",
        num: true,
        value: (r) => r.range && r.range[0],
        cell: (r) => (r.range ? `${digits(r.range[0])} to ${digits(r.range[1])}` : "–"),
      },
    ],
  });
}
