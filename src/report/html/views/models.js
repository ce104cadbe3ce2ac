// Language models and workloads: what came of whole runs.
function models(summary) {
  return [
    h("h1", {}, "Models"),
    h("p", { class: "lead" }, "Each model at each batch: tokens a second of all sequences together, and how long one waits."),
    table({
      rows: summary.models,
      columns: [
        { title: "Model", value: (m) => m.model, class: "name" },
        deviceColumn(summary.models),
        { title: "Type", value: (m) => m.dtype },
        { title: "Way", value: (m) => m.way },
        { title: "Batch", num: true, value: (m) => m.batch, cell: (m) => count(m.batch) },
        { title: "Prompt", num: true, about: "Tokens of each prompt", value: (m) => m.prompt_tokens, cell: (m) => count(m.prompt_tokens) },
        { title: "Tokens", num: true, about: "Tokens written behind each prompt", value: (m) => m.tokens, cell: (m) => count(m.tokens) },
        {
          title: "Tokens/s",
          num: true,
          value: (m) => m.decode_per_s,
          cell: (m) => h("span", { class: "strong" }, digits(m.decode_per_s)),
        },
        { title: "Prompt/s", num: true, about: "Prompt tokens a second", value: (m) => m.prefill_per_s, cell: (m) => digits(m.prefill_per_s) },
        { title: "First ms", num: true, about: "From the prompt to the first token", value: (m) => m.first_token_ms, cell: (m) => digits(m.first_token_ms) },
        { title: "P50 ms", num: true, about: "A token of every sequence, the median", value: (m) => m.token_ms.p50, cell: (m) => digits(m.token_ms.p50) },
        { title: "P99 ms", num: true, optional: true, value: (m) => m.token_ms.p99, cell: (m) => digits(m.token_ms.p99) },
        { title: "Memory", num: true, value: (m) => m.memory.total, cell: (m) => bytes(m.memory.total) },
        {
          title: "Of read",
          num: true,
          optional: true,
          about: "Of the measured read rate",
          value: (m) => m.of_read_ceiling,
          cell: (m) => percent(m.of_read_ceiling),
        },
      ],
    }),
  ];
}

function workloads(summary) {
  const right = (right, of) => (of ? `${count(right)} of ${count(of)}` : "–");
  const time = (w, name) => w.time && w.time[name];
  const exchange = (w, name) => w.exchange && w.exchange[name];
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
        deviceColumn(summary.workloads),
        { title: "Type", value: (w) => w.dtype },
        { title: "P50 µs", num: true, sparse: true, value: (w) => time(w, "p50_us"), cell: (w) => digits(time(w, "p50_us")) },
        { title: "P95 µs", num: true, sparse: true, value: (w) => time(w, "p95_us"), cell: (w) => digits(time(w, "p95_us")) },
        { title: "Mrows/s", num: true, sparse: true, about: "Millions of rows a second", value: (w) => time(w, "per_s"), cell: (w) => time(w, "per_s") ? digits(time(w, "per_s") / 1e6) : "–" },
        {
          title: "Right",
          num: true,
          sparse: true,
          optional: true,
          value: (w) => w.accuracy && w.accuracy.right,
          cell: (w) => (w.accuracy ? right(w.accuracy.right, w.accuracy.digits) : "–"),
        },
        {
          title: "Right, kept out",
          num: true,
          sparse: true,
          value: (w) => w.accuracy && w.accuracy.right_kept_out,
          cell: (w) => (w.accuracy ? right(w.accuracy.right_kept_out, w.accuracy.kept_out) : "–"),
        },
        { title: "Speed-up", num: true, sparse: true, value: (w) => exchange(w, "measured"), cell: (w) => times(exchange(w, "measured")) },
        { title: "Predicted", num: true, sparse: true, value: (w) => exchange(w, "predicted"), cell: (w) => times(exchange(w, "predicted")) },
        { title: "Skipped", sparse: true, optional: true, value: (w) => w.skipped },
      ],
    }),
  ];
}
