// The operators, and one operator with its candidates side by side.
function operators(summary, _, query) {
  const list = table({
    rows: [],
    sort: "Operator",
    columns: [
      {
        title: "Operator",
        value: (r) => r.operator,
        class: "name",
        cell: (r) => link("operator/" + part(r.operator), breaks(r.operator)),
      },
      { title: "Candidate", value: (r) => r.candidate, class: "name" },
      { title: "Worst", value: (r) => r.worst, cell: (r) => pill(VERDICTS[r.worst]) },
      { title: "Trials", num: true, value: (r) => r.list.length },
      {
        title: "Failed",
        num: true,
        value: (r) => r.failed,
        cell: (r) => (r.failed ? h("span", { class: "strong fail" }, count(r.failed)) : "–"),
      },
      {
        title: "Of allowed",
        num: true,
        about: "The largest error as a share of what is allowed",
        value: (r) => r.error,
        cell: (r) => ofAllowed(r.error),
      },
      { title: "", optional: true, cell: (r) => (r.error === null ? "" : shareBar(r.error)) },
      { title: "Best of ceiling", num: true, value: (r) => r.ceiling, cell: (r) => percent(r.ceiling) },
      {
        title: "Change",
        num: true,
        about: "Geometric mean of the ratios to the baseline",
        value: (r) => r.change,
        cell: (r) => change(r.change),
      },
      { title: "s", num: true, optional: true, value: (r) => r.seconds, cell: (r) => digits(r.seconds, 3) },
    ],
  });
  const best = (values) => {
    const all = values.filter(isNumber);
    return all.length ? Math.max(...all) : null;
  };
  const { bar, start } = filters(
    query,
    choicesOf(summary, ["verdict", "dtype", "check", "device"]),
    (state, counter) => {
      const kept = summary.records.filter((r) => fits(state, r) && found(state, r.operator + "::" + r.candidate));
      const rows = [...groups(kept, (r) => r.operator + "\n" + r.candidate).values()].map((of) => {
        const ratios = of.flatMap((r) => r.timings.map((t) => t.ratio)).filter((x) => isNumber(x) && x > 0);
        return {
          operator: of[0].operator,
          candidate: of[0].candidate,
          list: of,
          worst: Math.min(...of.map((r) => VERDICTS.indexOf(r.verdict))),
          failed: of.filter((r) => BAD.has(r.verdict)).length,
          error: largest(of),
          ceiling: best(of.flatMap((r) => r.timings.map((t) => t.ofCeiling))),
          change: ratios.length ? geomean(ratios) : null,
          seconds: of.reduce((sum, r) => sum + r.duration, 0),
        };
      });
      counter.textContent = `${count(rows.length)} candidates of ${count(new Set(rows.map((r) => r.operator)).size)} operators`;
      list.update(rows);
    },
  );
  start();
  return [h("h1", {}, "Operators"), bar, list];
}

// The largest error of these records, of what is allowed.
const largest = (records) => {
  const all = records.map((r) => r.worst).filter((x) => x !== null);
  return all.length ? Math.max(...all) : null;
};

function operator(summary, [name]) {
  const of = summary.records.filter((r) => r.operator === name);
  if (!of.length) return [h("h1", {}, "No such operator")];
  const candidates = unique(of.map((r) => r.candidate)),
    dtypes = unique(of.map((r) => r.dtype));
  return [
    h("p", { class: "crumbs" }, link("operators", "Operators")),
    h("h1", {}, name),
    h(
      "p",
      { class: "lead" },
      `${count(of.length)} trials, ${count(candidates.length)} candidate${candidates.length === 1 ? "" : "s"} in ${dtypes.join(", ")}`,
    ),
    section("Verdicts", verdictGrid(of, candidates, dtypes)),
    errorGrid(of, candidates, dtypes),
    sideBySide(of),
    of.some((r) => r.metrics.length)
      ? section("Counts of the simulator", metricTable(of.flatMap((r) => r.metrics)))
      : null,
  ];
}

function verdictGrid(of, candidates, dtypes) {
  const cells = groups(of, (r) => r.candidate + "\n" + r.check + "\n" + r.dtype);
  const columns = CHECKS.flatMap((check) => dtypes.map((dtype) => ({ check, dtype }))).filter((c) =>
    of.some((r) => r.check === c.check && r.dtype === c.dtype),
  );
  return table({
    first: 100,
    rows: candidates,
    columns: [
      { title: "Candidate", value: (c) => c, class: "name" },
      ...columns.map(({ check, dtype }) => ({
        title: `${check} ${dtype}`,
        cell: (c) =>
          (cells.get(c + "\n" + check + "\n" + dtype) || []).map((r) =>
            h("div", {}, h("a", { href: "#/trial/" + r.index }, pill(r.verdict))),
          ),
      })),
    ],
  });
}

function errorGrid(of, candidates, dtypes) {
  if (!of.some((r) => r.worst !== null)) return null;
  const cells = groups(of, (r) => r.candidate + "\n" + r.dtype);
  const worst = (c, d) => largest(cells.get(c + "\n" + d) || []);
  return section(
    "Largest errors, of what is allowed",
    table({
      first: 100,
      rows: candidates.filter((c) => dtypes.some((d) => worst(c, d) !== null)),
      columns: [
        { title: "Candidate", value: (c) => c, class: "name" },
        ...dtypes.map((d) => ({
          title: d,
          num: true,
          value: (c) => worst(c, d),
          cell: (c) => ofAllowed(worst(c, d)),
        })),
      ],
    }),
  );
}

// A row a shape, a column a candidate; the fastest stands out.
function sideBySide(of) {
  const timings = of.flatMap((r) => r.timings);
  if (!timings.length) return null;
  const candidates = unique(timings.map((t) => t.record.candidate));
  const rows = [...groups(timings, (t) => [t.record.device, t.record.dtype, t.shape, t.heat].join("\n")).values()];
  const fastest = (row) =>
    Math.min(...row.filter((t) => isNumber(t.median) && t.verdict !== "invalid").map((t) => t.median));
  const at = (row, c) => row.find((t) => t.record.candidate === c);
  return section(
    "Times of the candidates, µs",
    table({
      rows,
      columns: [
        {
          title: "Shape",
          value: (r) => r[0].shape,
          class: "name",
          cell: (r) => [breaks(r[0].shape), r[0].heat === "hot" ? h("span", { class: "soft" }, " hot") : null],
        },
        { title: "Type", value: (r) => r[0].record.dtype },
        ...candidates.map((c) => ({
          title: c,
          num: true,
          value: (r) => (at(r, c) || {}).median,
          cell: (r) => {
            const t = at(r, c);
            return t
              ? h(
                  "a",
                  { href: "#/trial/" + t.record.index, class: t.median === fastest(r) ? "strong" : "" },
                  digits(t.median),
                )
              : "–";
          },
        })),
        {
          title: "Best of ceiling",
          num: true,
          value: (r) => Math.max(...r.map((t) => t.ofCeiling || 0)) || null,
          cell: (r) => percent(Math.max(...r.map((t) => t.ofCeiling || 0)) || null),
        },
      ],
    }),
    section("Spread and change", timingTable(timings, true)),
  );
}
