// How many times as fast as peers, and as the baseline.
function speedup(summary, _, query) {
  const pairsOf = summary.peers.flatMap((t) =>
    t.peers.map((p) => ({ t, p, record: t.record, times: isNumber(p.ratio) && p.ratio > 0 ? 1 / p.ratio : null })),
  );
  const held = summary.timings.filter((t) => isNumber(t.ratio) && t.ratio > 0);
  const means = table({
    rows: [],
    columns: [
      { title: "Candidate", value: (r) => r.name, class: "name" },
      { title: "Over", value: (r) => r.peer, class: "name" },
      { title: "Shapes", num: true, value: (r) => r.n },
      { title: "Least", num: true, value: (r) => r.least, cell: (r) => times(r.least) },
      {
        title: "Geometric mean",
        num: true,
        value: (r) => r.mean,
        cell: (r) => h("span", { class: "strong" }, times(r.mean)),
      },
      { title: "Most", num: true, value: (r) => r.most, cell: (r) => times(r.most) },
      { title: "", optional: true, cell: (r) => gainBar(r.mean, r.reach) },
    ],
  });
  const list = peerTable([]);
  const { bar, start } = filters(
    query,
    [
      ...["operator", "dtype", "device"].map((key) => ({
        key,
        title: key,
        values: unique([...pairsOf, ...held].map((x) => x.record[key])),
      })),
      { key: "peer", title: "peer", values: unique(pairsOf.map((x) => x.p.name)) },
    ],
    (state, counter) => {
      const kept = pairsOf.filter(
        (x) =>
          fits(state, x.record) &&
          (!state.peer || x.p.name === state.peer) &&
          found(state, x.record.name, x.t.shape, x.p.name),
      );
      const base = state.peer
        ? []
        : held
            .filter((t) => fits(state, t.record) && found(state, t.record.name, t.shape))
            .map((t) => ({ record: t.record, times: 1 / t.ratio, p: { name: "accepted baseline" } }));
      const rows = [
        ...groups(
          [...kept, ...base].filter((x) => x.times && (!x.p.verdict || x.p.verdict === "pass")),
          (x) => x.record.name + "\n" + x.p.name,
        ).values(),
      ].map((of) => ({
        name: of[0].record.name,
        peer: of[0].p.name,
        n: of.length,
        reach: of[0].p.verdict ? 4 : 1.25,
        least: Math.min(...of.map((x) => x.times)),
        most: Math.max(...of.map((x) => x.times)),
        mean: geomean(of.map((x) => x.times)),
      }));
      counter.textContent = `${count(kept.length)} times of peers, ${count(base.length)} of baselines`;
      means.update(rows);
      list.update(kept);
    },
  );
  start();
  return [
    h("h1", {}, "Speed-up"),
    h(
      "p",
      { class: "lead" },
      "The other's time over the candidate's: above 1 the candidate is faster. Only peers whose outputs were right enter a mean.",
    ),
    bar,
    section("Means over shapes", means),
    pairsOf.length ? section("Shape by shape", list) : null,
  ];
}

function peerTable(timings) {
  return table({
    rows: timings.flatMap((t) =>
      t.peers.map((p) => ({ t, p, record: t.record, times: isNumber(p.ratio) && p.ratio > 0 ? 1 / p.ratio : null })),
    ),
    columns: [
      {
        title: "Case",
        value: (x) => x.record.name,
        class: "name",
        cell: (x) => [trialLink(x.record, x.record.name), h("div", { class: "soft" }, breaks(x.t.shape))],
      },
      { title: "µs", num: true, value: (x) => x.t.median, cell: (x) => digits(x.t.median) },
      { title: "Peer", value: (x) => x.p.name, class: "name", cell: (x) => h("span", { title: x.p.about }, x.p.name) },
      { title: "Peer µs", num: true, value: (x) => x.p.median, cell: (x) => digits(x.p.median) },
      {
        title: "Speed-up",
        num: true,
        value: (x) => x.times,
        cell: (x) => h("span", { class: "strong" }, times(x.times)),
      },
      {
        title: "95 % interval",
        num: true,
        optional: true,
        value: (x) => x.p.high && 1 / x.p.high,
        cell: (x) => (isNumber(x.p.low) ? `${digits(1 / x.p.high, 3)} to ${digits(1 / x.p.low, 3)}` : "–"),
      },
      { title: "", optional: true, cell: (x) => (x.times ? gainBar(x.times) : "") },
      {
        title: "Peer is",
        value: (x) => VERDICTS.indexOf(x.p.verdict),
        class: "name",
        cell: (x) => [pill(x.p.verdict), x.p.reason ? h("div", { class: "soft" }, x.p.reason) : null],
      },
    ],
  });
}
