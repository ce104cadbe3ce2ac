// What two summaries hold beside trials: models, workloads and profiles, those of both side by side.
function runDifferences(a, b) {
  const sections = [
    {
      title: "Models",
      key: (m) => [m.model, m.device, m.dtype, m.way, m.batch, m.prompt_tokens, m.tokens].join("\n"),
      name: (m) => `${m.model} ${m.dtype} ${m.way}`,
      detail: (m) => `batch ${m.batch}, prompt ${m.prompt_tokens}, tokens ${m.tokens}`,
      numbers: [
        { title: "Tokens/s", value: (m) => m.decode_per_s, more: true },
        { title: "P50 ms", value: (m) => m.token_ms.p50 },
        { title: "First ms", value: (m) => m.first_token_ms },
      ],
      of: (s) => s.models,
    },
    {
      title: "Workloads",
      key: (w) => [w.workload, w.variant, w.shape, w.dtype, w.device].join("\n"),
      name: (w) => `${w.workload} ${w.variant} ${w.dtype}`,
      detail: (w) => w.shape,
      numbers: [
        { title: "P50 µs", value: (w) => w.time && w.time.p50_us },
        { title: "Speed-up", value: (w) => w.exchange && w.exchange.measured, more: true },
      ],
      of: (s) => s.workloads,
    },
    {
      title: "Profiles",
      key: (p) => [p.subject, p.way, p.dtype, p.run, p.device].join("\n"),
      name: (p) => `${p.subject} ${p.way} ${p.dtype}`,
      detail: (p) => p.run,
      numbers: [
        { title: "µs", value: (p) => p.untraced_us },
        { title: "Idle %", value: (p) => idleShare(p) * 100 },
        { title: "Peak MiB", value: (p) => p.memory.peak_bytes / 2 ** 20 },
      ],
      of: (s) => s.profiles,
    },
  ];
  return sections.map(({ title, key, name, detail, numbers, of }) => {
    const before = new Map((of(a) || []).map((x) => [key(x), x]));
    const rows = (of(b) || []).filter((x) => before.has(key(x))).map((x) => ({ x, was: before.get(key(x)) }));
    if (!rows.length) return null;
    return section(
      title,
      table({
        first: 20,
        rows,
        columns: [
          {
            title: "Run",
            value: (r) => name(r.x),
            class: "name",
            cell: (r) => [breaks(name(r.x)), h("div", { class: "soft" }, breaks(detail(r.x)))],
          },
          ...numbers.flatMap(({ title: what, value, more }) => [
            {
              title: what,
              num: true,
              sparse: true,
              value: (r) => value(r.x),
              cell: (r) => [h("span", { class: "soft" }, digits(value(r.was)) + " → "), digits(value(r.x))],
            },
            {
              title: "Change",
              num: true,
              sparse: true,
              value: (r) => (value(r.was) > 0 ? value(r.x) / value(r.was) : null),
              cell: (r) => runChange(value(r.was) > 0 ? value(r.x) / value(r.was) : null, more),
            },
          ]),
        ],
      }),
    );
  });
}

// A ratio, of which more than 2 % stands out: to the better or to the worse.
function runChange(ratio, more) {
  const counts = isNumber(ratio) && Math.abs(ratio - 1) > 0.02;
  return h("span", { class: counts ? "strong " + (ratio > 1 === !!more ? "faster" : "slower") : "soft" }, change(ratio));
}
