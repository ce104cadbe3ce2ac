// Elements. All text goes through text nodes: a name is never markup.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
// Text that may break behind a comma or a colon, as shapes and trials are long.
const breaks = (text) =>
  String(text)
    .split(/(?<=,|::)/)
    .flatMap((piece, i) => (i ? [h("wbr"), piece] : [piece]));
const link = (path, text, attributes) => h("a", { href: "#/" + path, ...attributes }, text);
const part = (text) => encodeURIComponent(text);
const verdictClass = (verdict) => (verdict === "skip" ? "skipped" : verdict);
const pill = (verdict) => h("span", { class: "verdict pill " + verdictClass(verdict) }, verdict);
const section = (title, ...content) => h("section", {}, h("h2", {}, title), ...content);
const trialLink = (record, text) => link("trial/" + record.index, breaks(text || record.trial));
const pairs = (list) =>
  h(
    "dl",
    {},
    list.filter(([, v]) => v !== "" && v !== null && v !== undefined).map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]),
  );

// A bar from the left: a share of the whole.
const shareBar = (share, limit = 1) =>
  h(
    "span",
    { class: "bar", "aria-hidden": "true" },
    h("i", {
      class: share > limit ? "over" : "",
      style: { left: "0", width: Math.max(0, Math.min(1, share)) * 100 + "%" },
    }),
  );

// A bar from the middle, on a log scale that ends at `reach` times.
function changeBar(ratio, reach = 2) {
  const at = Math.max(-1, Math.min(1, Math.log(ratio) / Math.log(reach))) * 50;
  return h(
    "span",
    { class: "bar", "aria-hidden": "true" },
    h("i", {
      class: at > 0 ? "over" : "under",
      style: { left: (at > 0 ? 50 : 50 + at) + "%", width: Math.abs(at) + "%" },
    }),
    h("i", { class: "tick", style: { left: "50%" } }),
  );
}

// The same for a speed-up: what is faster reaches to the right.
function gainBar(times, reach = 4) {
  const at = Math.max(-1, Math.min(1, Math.log(times) / Math.log(reach))) * 50;
  return h(
    "span",
    { class: "bar", "aria-hidden": "true" },
    h("i", {
      class: at > 0 ? "under" : "over",
      style: { left: (at > 0 ? 50 : 50 + at) + "%", width: Math.abs(at) + "%" },
    }),
    h("i", { class: "tick", style: { left: "50%" } }),
  );
}

// The device of each row, where there is more than one.
const deviceColumn = (rows) =>
  unique(rows.map((r) => r.device)).length > 1 ? { title: "Device", optional: true, class: "name", value: (r) => r.device } : null;

// A table that sorts by any column and shows rows as they are asked for.
function table({ columns: given, rows, sort, ascending, first = 50, empty = "Nothing to show." }) {
  // A sparse column without any value is left out; a list that changes keeps all of them.
  const missing = (v) => v === null || v === undefined || v === "" || Number.isNaN(v);
  const columns = given.filter((c) => c && !(c.sparse && rows.length && rows.every((r) => missing(c.value(r)))));
  let by = sort === undefined ? null : columns.findIndex((c) => c.title === sort),
    up = ascending !== false,
    shown = first;
  const head = h("tr"),
    body = h("tbody"),
    more = h("div", { class: "more", hidden: true });
  const root = h("div", { class: "scroll", tabindex: "-1" }, h("table", {}, h("thead", {}, head), body), more);
  const compare = (a, b) => {
    const x = columns[by].value(a),
      y = columns[by].value(b);
    if (missing(x) || missing(y)) return missing(x) - missing(y);
    const order =
      typeof x === "number" && typeof y === "number"
        ? x - y
        : String(x).localeCompare(String(y), "en", { numeric: true });
    return up ? order : -order;
  };
  function row(item) {
    return h(
      "tr",
      {},
      columns.map((c) =>
        h(
          "td",
          { class: [c.num && "num", c.class, c.optional && "optional"].filter(Boolean).join(" ") || null },
          c.cell ? c.cell(item) : breaks(c.value(item) ?? ""),
        ),
      ),
    );
  }
  function draw() {
    const ordered = by === null ? rows : [...rows].sort(compare);
    body.replaceChildren(...ordered.slice(0, shown).map(row));
    if (!rows.length) body.append(h("tr", {}, h("td", { class: "empty", colspan: columns.length }, empty)));
    more.hidden = rows.length <= shown;
    more.replaceChildren(
      `${count(Math.min(shown, rows.length))} of ${count(rows.length)}`,
      h(
        "button",
        {
          class: "plain",
          onclick: () => {
            shown += 200;
            draw();
          },
        },
        "Show 200 more",
      ),
      h(
        "button",
        {
          class: "plain",
          onclick: () => {
            shown = rows.length;
            draw();
          },
        },
        "Show all",
      ),
    );
    head
      .querySelectorAll("th")
      .forEach((th, i) =>
        i === by ? th.setAttribute("aria-sort", up ? "ascending" : "descending") : th.removeAttribute("aria-sort"),
      );
  }
  head.append(
    ...columns.map((c, i) =>
      h(
        "th",
        { class: [c.num && "num", c.optional && "optional"].filter(Boolean).join(" ") || null, scope: "col" },
        c.value
          ? h(
              "button",
              {
                type: "button",
                title: c.about,
                onclick: () => {
                  up = by === i ? !up : !c.num;
                  by = i;
                  draw();
                },
              },
              c.title,
            )
          : c.title,
      ),
    ),
  );
  draw();
  root.update = (next) => {
    rows = next;
    shown = first;
    draw();
  };
  return root;
}

// Search and choices above a table; the state stands in the address.
function filters(query, choices, changed) {
  const state = { q: query.get("q") || "" };
  const counter = h("span", { class: "count", role: "status" });
  const search = h("input", {
    type: "search",
    placeholder: "Search ( / )",
    "aria-label": "Search",
    value: state.q,
    oninput: (event) => {
      state.q = event.target.value;
      apply();
    },
  });
  const selects = choices
    .filter((c) => c.values.length > 1 || query.get(c.key))
    .map((c) => {
      state[c.key] = query.get(c.key) || "";
      const option = (value) => h("option", { value, selected: state[c.key] === value }, value);
      return h(
        "select",
        {
          "aria-label": c.title,
          onchange: (event) => {
            state[c.key] = event.target.value;
            apply();
          },
        },
        h("option", { value: "" }, "Any " + c.title),
        c.values.map(option),
      );
    });
  function apply() {
    const kept = Object.entries(state).filter(([, v]) => v);
    const path = location.hash.split("?")[0] || document.querySelector("#nav a[aria-current]").hash;
    history.replaceState(null, "", path + (kept.length ? "?" + new URLSearchParams(kept) : ""));
    changed(state, counter);
  }
  const bar = h("div", { class: "filters" }, search, selects, counter);
  return { bar, state, start: () => changed(state, counter) };
}
const found = (state, ...texts) =>
  state.q
    .toLowerCase()
    .split(/\s+/)
    .every((word) => texts.some((text) => text.toLowerCase().includes(word)));
const choicesOf = (summary, keys) =>
  keys.map((key) => ({
    key,
    title: key,
    values:
      key === "verdict"
        ? VERDICTS.filter((v) => summary.counts[v])
        : unique(summary.records.map((r) => r[key]).filter(Boolean)),
  }));
const fits = (state, record) =>
  ["verdict", "operator", "candidate", "dtype", "check", "device"].every(
    (key) => !state[key] || record[key] === state[key],
  );
