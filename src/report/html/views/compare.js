// Two summaries against each other, and two builds as `kernelgate ab` compared them.
function compare(summary, _, query) {
  const number = (key, other) => {
    const n = Number(query.get(key) ?? other);
    return SUMMARIES[n] ? n : other;
  };
  const a = number("a", summary.number === 0 ? SUMMARIES.length - 1 : 0),
    b = number("b", summary.number);
  const choose = (key, now) =>
    h(
      "select",
      {
        "aria-label": key === "a" ? "Before" : "After",
        onchange: (e) => {
          const next = { a, b, [key]: e.target.value };
          location.hash = `#/compare?a=${next.a}&b=${next.b}`;
        },
      },
      SUMMARIES.map((s) => h("option", { value: s.number, selected: s.number === now }, s.label)),
    );
  return [
    h("h1", {}, "Compare"),
    h("div", { class: "filters" }, choose("a", a), " → ", choose("b", b)),
    ...differences(SUMMARIES[a], SUMMARIES[b]),
  ];
}

function differences(a, b) {
  const key = (r) => r.trial + "\n" + (r.device || "");
  const before = new Map(a.records.map((r) => [key(r), r])),
    after = new Map(b.records.map((r) => [key(r), r]));
  const both = b.records.filter((r) => before.has(key(r))).map((r) => ({ r, old: before.get(key(r)) }));
  const turned = both
    .filter((x) => x.r.verdict !== x.old.verdict)
    .sort((x, y) => VERDICTS.indexOf(x.r.verdict) - VERDICTS.indexOf(y.r.verdict));
  const only = [
    ...b.records.filter((r) => !before.has(key(r))).map((r) => ({ r, where: "after" })),
    ...a.records.filter((r) => !after.has(key(r))).map((r) => ({ r, where: "before" })),
  ];
  const timed = both.flatMap(({ r, old }) =>
    r.timings.flatMap((t) => {
      const was = old.timings.find((o) => o.shape === t.shape && o.heat === t.heat);
      return was && was.median > 0 && t.median > 0
        ? [
            {
              r,
              t,
              was,
              ratio: t.median / was.median,
              counts: Math.abs(Math.log(t.median / was.median)) > Math.log(1 + (t.threshold ?? 0.02)),
            },
          ]
        : [];
    }),
  );
  timed.sort((x, y) => Math.abs(Math.log(y.ratio)) - Math.abs(Math.log(x.ratio)));
  const slower = timed.filter((x) => x.counts && x.ratio > 1).length,
    faster = timed.filter((x) => x.counts && x.ratio < 1).length;
  const wrong = both
    .filter(
      (x) =>
        x.r.worst !== null && x.old.worst !== null && x.r.worst !== x.old.worst,
    )
    .sort((x, y) => y.r.worst - y.old.worst - (x.r.worst - x.old.worst) || 0);
  const to = (r) => (b.number === shownSummary().number ? trialLink(r) : r.trial);
  return [
    h(
      "div",
      { class: "tiles" },
      [
        ["in both", both.length],
        ["other verdict", turned.length],
        ["slower", slower],
        ["faster", faster],
        ["only in one", only.length],
      ].map(([title, n]) =>
        h(
          "div",
          { class: "tile" + (n ? "" : " none") },
          h("span", { class: title === "slower" || title === "faster" ? "verdict " + title : "soft" }, title),
          h("b", {}, count(n)),
        ),
      ),
    ),
    turned.length
      ? section(
          "Other verdicts",
          table({
            rows: turned,
            columns: [
              {
                title: "Trial",
                value: (x) => x.r.trial,
                class: "name",
                cell: (x) => [to(x.r), x.r.reason ? h("div", { class: "soft" }, breaks(cut(x.r.reason, 150))) : null],
              },
              { title: "Before", value: (x) => VERDICTS.indexOf(x.old.verdict), cell: (x) => pill(x.old.verdict) },
              { title: "After", value: (x) => VERDICTS.indexOf(x.r.verdict), cell: (x) => pill(x.r.verdict) },
            ],
          }),
        )
      : null,
    timed.length
      ? section(
          "Times",
          h(
            "p",
            { class: "note" },
            "Two runs at two times: what is beyond the threshold of the device, or 2 % where none is known, stands out. `kernelgate ab` measures two builds side by side.",
          ),
          table({
            rows: timed,
            columns: [
              {
                title: "Case",
                value: (x) => x.r.name,
                class: "name",
                cell: (x) => [
                  b.number === shownSummary().number ? trialLink(x.r, x.r.name) : x.r.name,
                  h("div", { class: "soft" }, breaks(x.t.shape)),
                ],
              },
              { title: "Before µs", num: true, value: (x) => x.was.median, cell: (x) => digits(x.was.median) },
              { title: "After µs", num: true, value: (x) => x.t.median, cell: (x) => digits(x.t.median) },
              {
                title: "Change",
                num: true,
                value: (x) => x.ratio,
                cell: (x) =>
                  h(
                    "span",
                    { class: x.counts ? "strong " + (x.ratio > 1 ? "slower" : "faster") : "soft" },
                    change(x.ratio),
                  ),
              },
              { title: "", optional: true, cell: (x) => changeBar(x.ratio, 1.25) },
              {
                title: "Code",
                optional: true,
                value: (x) => (x.t.code && x.was.code ? Number(x.t.code !== x.was.code) : null),
                cell: (x) =>
                  x.t.code && x.was.code
                    ? x.t.code === x.was.code
                      ? h("span", { class: "soft" }, "the same")
                      : "changed"
                    : "–",
              },
            ],
          }),
        )
      : null,
    wrong.length
      ? section(
          "Errors, of what is allowed",
          table({
            first: 20,
            rows: wrong,
            columns: [
              { title: "Trial", value: (x) => x.r.trial, class: "name", cell: (x) => to(x.r) },
              {
                title: "Before",
                num: true,
                value: (x) => x.old.worst,
                cell: (x) => ofAllowed(x.old.worst, 1),
              },
              { title: "After", num: true, value: (x) => x.r.worst, cell: (x) => ofAllowed(x.r.worst, 1) },
            ],
          }),
        )
      : null,
    only.length
      ? section(
          "Only in one of them",
          table({
            first: 20,
            rows: only,
            columns: [
              { title: "Trial", value: (x) => x.r.trial, class: "name" },
              { title: "In", value: (x) => x.where },
              { title: "Verdict", value: (x) => VERDICTS.indexOf(x.r.verdict), cell: (x) => pill(x.r.verdict) },
            ],
          }),
        )
      : null,
    ...runDifferences(a, b),
    both.length + only.length ? null : h("p", { class: "empty" }, "Neither has a trial."),
  ];
}

function builds(summary, _, query) {
  const list = table({
    rows: [],
    sort: "Head / base",
    ascending: false,
    columns: [
      { title: "Verdict", value: (c) => VERDICTS.indexOf(c.verdict), cell: (c) => pill(c.verdict) },
      {
        title: "Case",
        value: (c) => c.operator + "::" + c.candidate + "::" + c.dtype,
        class: "name",
        cell: (c) => [
          c.operator + "::" + c.candidate + "::" + c.dtype,
          h("div", { class: "soft" }, breaks(c.shape), c.reason ? " · " + c.reason : ""),
        ],
      },
      { title: "Base µs", num: true, value: (c) => c.base_us, cell: (c) => digits(c.base_us) },
      { title: "Head µs", num: true, value: (c) => c.head_us, cell: (c) => digits(c.head_us) },
      {
        title: "Head / base",
        num: true,
        value: (c) => c.ratio,
        cell: (c) => h("span", { class: "strong" }, digits(c.ratio, 5)),
      },
      {
        title: "95 % interval",
        num: true,
        optional: true,
        value: (c) => c.interval && c.interval[0],
        cell: (c) => (c.interval ? `${digits(c.interval[0], 5)} to ${digits(c.interval[1], 5)}` : "–"),
      },
      { title: "Counts from", num: true, value: (c) => c.threshold, cell: (c) => percent(c.threshold) },
      { title: "", optional: true, cell: (c) => (c.ratio > 0 ? changeBar(c.ratio, 1.1) : "") },
    ],
  });
  const { bar, start } = filters(
    query,
    [{ key: "verdict", title: "verdict", values: VERDICTS.filter((v) => summary.builds.some((c) => c.verdict === v)) }],
    (state, counter) => {
      const rows = summary.builds.filter(
        (c) =>
          (!state.verdict || c.verdict === state.verdict) &&
          found(state, c.operator + "::" + c.candidate + "::" + c.dtype, c.shape),
      );
      counter.textContent = `${count(rows.length)} comparisons`;
      list.update(rows);
    },
  );
  start();
  return [
    h("h1", {}, "Two builds"),
    h("p", { class: "lead" }, "Base and head, timed side by side on one device in random order."),
    bar,
    list,
  ];
}
