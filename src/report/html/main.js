// The views, the address that names one of them, and the keys.
const VIEWS = [
  { path: "overview", title: "Overview", shows: () => true, draw: overview },
  {
    path: "operators",
    title: "Operators",
    shows: (s) => s.records.length,
    size: (s) => new Set(s.records.map((r) => r.operator)).size,
    draw: operators,
  },
  { path: "trials", title: "Trials", shows: (s) => s.records.length, size: (s) => s.records.length, draw: trials },
  {
    path: "roofline",
    title: "Roofline",
    shows: (s) => s.timings.some((t) => t.flops > 0 && t.bytes > 0),
    draw: roofline,
  },
  {
    path: "speedup",
    title: "Speed-up",
    shows: (s) => s.peers.length || s.timings.some((t) => isNumber(t.ratio)),
    draw: speedup,
  },
  { path: "latency", title: "Latency", shows: (s) => s.timings.length, size: (s) => s.timings.length, draw: latency },
  {
    path: "prediction",
    title: "Prediction",
    shows: (s) => s.predicted.length,
    size: (s) => s.predicted.length,
    draw: prediction,
  },
  {
    path: "models",
    title: "Models",
    shows: (s) => (s.models || []).length,
    size: (s) => s.models.length,
    draw: models,
  },
  {
    path: "workloads",
    title: "Workloads",
    shows: (s) => (s.workloads || []).length,
    size: (s) => s.workloads.length,
    draw: workloads,
  },
  {
    path: "profiles",
    title: "Profiles",
    shows: (s) => (s.profiles || []).length,
    size: (s) => s.profiles.length,
    draw: profiles,
  },
  { path: "counts", title: "Counts", shows: (s) => s.metrics.length, size: (s) => s.metrics.length, draw: counts },
  {
    path: "builds",
    title: "Two builds",
    shows: (s) => (s.builds || []).length,
    size: (s) => s.builds.length,
    draw: builds,
  },
  { path: "compare", title: "Compare", shows: () => SUMMARIES.length > 1, draw: compare },
  {
    path: "history",
    title: "History",
    shows: () => RAW.history,
    size: () => RAW.history.cases.length,
    draw: historyView,
  },
  {
    path: "calibration",
    title: "Calibration",
    shows: (s) => s.ceilings.length || (s.noise || []).length || RAW.calibrations,
    draw: calibration,
  },
  { path: "environment", title: "Environment", shows: () => true, draw: environment },
];
const DETAILS = [
  { path: "operator", under: "operators", draw: operator },
  { path: "trial", under: "trials", draw: trial },
];

let chosenSummary = SUMMARIES.length - 1;
const shownSummary = () => SUMMARIES[chosenSummary];

function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map((text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  });
  return { name: parts[0], rest: parts.slice(1), query: new URLSearchParams(query || "") };
}

// Where nothing was tried, the first view that has something to show.
const firstView = (summary) =>
  (summary.records.length ? null : VIEWS.find((v) => v.path !== "overview" && v.shows(summary))) || VIEWS[0];

function show(event) {
  const { name, rest, query } = address(),
    summary = shownSummary();
  const view = [...VIEWS, ...DETAILS].find((v) => v.path === name) || firstView(summary);
  liveCharts.forEach((chart) => chart.plot && chart.plot.destroy());
  liveCharts.clear();
  document.getElementById("nav").replaceChildren(
    ...VIEWS.filter((v) => v.shows(summary)).map((v) =>
      link(v.path, [v.title, v.size ? h("span", { class: "n" }, count(v.size(summary))) : null], {
        "aria-current": (view.under || view.path) === v.path ? "page" : null,
      }),
    ),
  );
  const current = document.querySelector("#nav a[aria-current]"),
    bar = document.getElementById("nav");
  // On a phone the views are a row that scrolls.
  if (current && bar.scrollWidth > bar.clientWidth)
    bar.scrollLeft = current.offsetLeft - (bar.clientWidth - current.offsetWidth) / 2;
  const main = document.getElementById("main");
  const shown =
    !view.shows || view.shows(summary)
      ? view.draw(summary, rest, query)
      : [h("h1", {}, view.title), h("p", { class: "empty" }, "This summary holds nothing of the kind.")];
  main.replaceChildren(...shown.flat(9).filter(Boolean));
  const title = main.querySelector("h1");
  document.title = (title ? title.textContent + " · " : "") + summary.run.package + " · kernelgate";
  if (event) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

function head() {
  document.getElementById("package").textContent = shownSummary().run.package;
  const label = (s) => `${s.label} · ${day(s.run.started)}`;
  document.getElementById("chosen").replaceChildren(
    SUMMARIES.length < 2
      ? label(shownSummary())
      : h(
          "select",
          {
            "aria-label": "Summary",
            onchange: (e) => {
              chosenSummary = Number(e.target.value);
              head();
              show();
            },
          },
          SUMMARIES.map((s) => h("option", { value: s.number, selected: s.number === chosenSummary }, label(s))),
        ),
  );
}

// 1 to 9 choose a view, [ and ] the one before and the next, / goes to the search, Escape leaves it.
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName);
  if (event.key === "Escape" && typing) document.activeElement.blur();
  if (typing) return;
  if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
  const links = document.querySelectorAll("#nav a");
  if (/^[1-9]$/.test(event.key) && links[event.key - 1]) links[event.key - 1].click();
  if (event.key === "[" || event.key === "]") {
    const at = [...links].findIndex((a) => a.getAttribute("aria-current"));
    links[(at + (event.key === "]" ? 1 : links.length - 1)) % links.length].click();
  }
});
addEventListener("hashchange", show);

// A page that `--serve` sent follows its files.
if (RAW.follow)
  setInterval(async () => {
    try {
      const answer = await fetch("version");
      if (answer.ok && (await answer.text()) !== RAW.follow) location.reload();
    } catch {
      /* The server has gone; what is shown stays. */
    }
  }, 2000);
head();
show();
document.documentElement.dataset.ready = String(Math.round(performance.now()));
