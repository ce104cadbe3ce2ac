// What came of the run, the worst first.
function overview(summary) {
  const { counts, records, timings } = summary,
    judged = records.length - counts.skip;
  const bad = counts.fail + counts.invalid + counts.slower;
  const title = !records.length
    ? "No trials in this summary"
    : bad
      ? `${count(bad)} of ${count(records.length)} trials failed`
      : judged
        ? `All ${count(judged)} judged trials are good`
        : "Nothing was judged";
  const devices = summary.devices.map((d) => d.name).join(", ");
  const tiles = VERDICTS.map((v) =>
    h(
      "a",
      { class: "tile" + (counts[v] ? "" : " none"), href: "#/trials?verdict=" + v },
      h("span", { class: "verdict " + verdictClass(v) }, v),
      h("b", {}, count(counts[v])),
    ),
  );
  const share = h(
    "div",
    { class: "share", "aria-hidden": "true" },
    VERDICTS.filter((v) => counts[v]).map((v) => h("i", { class: verdictClass(v), style: { flex: counts[v] } })),
  );
  return [
    h("h1", {}, title),
    h("p", { class: "lead" }, [devices && "on " + devices, day(summary.run.started)].filter(Boolean).join(" · ")),
    records.length ? [h("div", { class: "tiles" }, tiles), share] : null,
    h("div", { class: "columns" }, attention(records), changes(timings), errors(records), slowest(records)),
    atAGlance(records),
    otherContents(summary),
  ];
}

// How far a record is beyond what is allowed, for the order alone.
const severity = (r) => Math.max(r.worst ?? 0, ...r.timings.map((t) => t.ratio).filter(isNumber));

function attention(records) {
  const worst = records
    .filter((r) => BAD.has(r.verdict) || r.verdict === "unclear")
    .sort((a, b) => VERDICTS.indexOf(a.verdict) - VERDICTS.indexOf(b.verdict) || severity(b) - severity(a) || 0);
  if (!worst.length) return null;
  return section(
    "Needs attention",
    table({
      first: 10,
      rows: worst,
      columns: [
        { title: "Verdict", value: (r) => VERDICTS.indexOf(r.verdict), cell: (r) => pill(r.verdict) },
        {
          title: "Trial",
          value: (r) => r.trial,
          class: "name",
          cell: (r) => [
            trialLink(r),
            h(
              "div",
              { class: "soft" },
              breaks(cut(r.failure ? r.failure.check + ": " + r.failure.text : r.reason, 150)),
            ),
          ],
        },
      ],
    }),
  );
}

// Against a copy of the same run where both runs have one: a slower card then changes nothing.
const steady = (t) => t.normalised ?? t.ratio;

function changes(timings) {
  const held = timings
    .filter((t) => isNumber(t.ratio))
    .sort((a, b) => Math.abs(Math.log(steady(b))) - Math.abs(Math.log(steady(a))));
  if (!held.length) return null;
  return section(
    "Changes against the baseline",
    h(
      "p",
      { class: "note" },
      "By the change against the yardstick: both times over that of a copy timed in the same run, which takes out how fast the card was that day. Raw is without it.",
    ),
    table({
      first: 10,
      rows: held,
      columns: [
        {
          title: "Case",
          value: (t) => t.record.name,
          class: "name",
          cell: (t) => [trialLink(t.record, t.record.name), h("div", { class: "soft" }, breaks(t.shape))],
        },
        { title: "µs", num: true, value: (t) => t.median, cell: (t) => digits(t.median) },
        { title: "Change", num: true, value: steady, cell: (t) => h("span", { class: "strong" }, change(steady(t))) },
        { title: "", optional: true, cell: (t) => changeBar(steady(t), 1.25) },
        { title: "Raw", num: true, value: (t) => t.ratio, cell: (t) => h("span", { class: "soft" }, change(t.ratio)) },
        { title: "Verdict", value: (t) => VERDICTS.indexOf(t.verdict), cell: (t) => pill(t.verdict) },
      ],
    }),
  );
}

function errors(records) {
  const judged = records.filter((r) => r.worst !== null).sort((a, b) => b.worst - a.worst || 0);
  if (!judged.length) return null;
  return section(
    "Worst errors",
    table({
      first: 10,
      rows: judged,
      columns: [
        { title: "Trial", value: (r) => r.trial, class: "name", cell: (r) => trialLink(r) },
        {
          title: "Of what is allowed",
          num: true,
          value: (r) => r.worst,
          cell: (r) => ofAllowed(r.worst),
        },
        { title: "", optional: true, cell: (r) => shareBar(r.worst) },
        { title: "Verdict", value: (r) => VERDICTS.indexOf(r.verdict), cell: (r) => pill(r.verdict) },
      ],
    }),
  );
}

function slowest(records) {
  if (!records.length) return null;
  const longest = Math.max(...records.map((r) => r.duration));
  return section(
    "Longest trials",
    table({
      first: 10,
      rows: [...records].sort((a, b) => b.duration - a.duration),
      columns: [
        { title: "Trial", value: (r) => r.trial, class: "name", cell: (r) => trialLink(r) },
        { title: "Cases", num: true, value: (r) => r.cases, cell: (r) => count(r.cases) },
        { title: "s", num: true, value: (r) => r.duration, cell: (r) => digits(r.duration, 3) },
        { title: "", optional: true, cell: (r) => shareBar(r.duration / longest) },
      ],
    }),
  );
}

function atAGlance(records) {
  const rows = [...groups(records, (r) => r.operator)].map(([operator, list]) => ({
    operator,
    list,
    of: Object.fromEntries(VERDICTS.map((v) => [v, list.filter((r) => r.verdict === v).length])),
  }));
  if (rows.length < 2) return null;
  const present = VERDICTS.filter((v) => rows.some((r) => r.of[v]));
  return section(
    "Operators",
    table({
      rows,
      sort: "Operator",
      columns: [
        {
          title: "Operator",
          value: (r) => r.operator,
          class: "name",
          cell: (r) => link("operator/" + part(r.operator), breaks(r.operator)),
        },
        { title: "Candidates", num: true, value: (r) => unique(r.list.map((x) => x.candidate)).length },
        ...present.map((v) => ({
          title: v,
          num: true,
          value: (r) => r.of[v],
          cell: (r) =>
            r.of[v]
              ? h(
                  "a",
                  {
                    href: "#/trials?verdict=" + v + "&operator=" + part(r.operator),
                    class: BAD.has(v) ? "strong " + v : "",
                  },
                  count(r.of[v]),
                )
              : h("span", { class: "soft" }, "–"),
        })),
        {
          title: "s",
          num: true,
          value: (r) => r.list.reduce((sum, x) => sum + x.duration, 0),
          cell: (r) =>
            digits(
              r.list.reduce((sum, x) => sum + x.duration, 0),
              3,
            ),
        },
      ],
    }),
  );
}

function otherContents(summary) {
  if (summary.records.length) return null;
  return h(
    "p",
    {},
    VIEWS.filter((v) => v.path !== "overview" && v.shows(summary)).map((v) => [link(v.path, v.title), " "]),
  );
}
const cut = (text, n) => (text.length > n ? text.slice(0, n) + " …" : text);
