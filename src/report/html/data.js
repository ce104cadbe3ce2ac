// The data of the page: taken apart once, into objects with plain names.
const RAW = JSON.parse(document.getElementById("data").textContent);
const VERDICTS = ["fail", "invalid", "slower", "unclear", "skip", "faster", "same", "pass"];
const CHECKS = ["correctness", "property", "perf"];
const BAD = new Set(["fail", "invalid", "slower"]);

function decodePeer(p, text) {
  return {
    name: text(p[0]),
    about: text(p[1]),
    verdict: VERDICTS[p[2]],
    reason: text(p[3]),
    median: p[4],
    ratio: p[5],
    low: p[6],
    high: p[7],
    samples: p[8],
    error: p[9],
  };
}

function decodeTiming(t, text, record) {
  return {
    record,
    shape: text(t[0]),
    heat: t[1] ? "hot" : "cold",
    median: t[2],
    p5: t[3],
    p95: t[4],
    low: t[5],
    high: t[6],
    samples: t[7],
    dropped: t[8],
    clock: t[9],
    bytes: t[10],
    flops: t[11],
    copy: t[12],
    read: t[13],
    fma: t[14],
    floor: t[15],
    ofCeiling: t[16],
    baseline: t[17],
    ratio: t[18],
    normalised: t[19],
    threshold: t[20],
    verdict: VERDICTS[t[21]],
    predicted: t[22],
    code: t[23],
    peers: (t[24] || []).map((p) => decodePeer(p, text)),
    interval: t[25] || null,
    bound: text(t[26]),
  };
}

function decodeRecord(r, text, index) {
  const record = {
    index,
    operator: text(r.o),
    candidate: text(r.c),
    dtype: text(r.t),
    check: CHECKS[r.k],
    kind: text(r.d),
    device: text(r.f) || text(r.d),
    verdict: VERDICTS[r.v],
    reason: text(r.r),
    cases: r.n,
    planned: r.p,
    cut: r.u,
    error: r.e ? { abs: r.e[0], rel: r.e[1], ulp: r.e[2], allowed: r.e[3] } : null,
    // The largest error of what is allowed, that of the failed case among them.
    worst: r.m === undefined ? null : r.m === "inf" ? Infinity : r.m,
    failure: r.x || null,
    notes: (r.w || []).map(text),
    source: text(r.s),
    duration: r.q,
    repeat: "",
  };
  record.name = record.operator + "::" + record.candidate + "::" + record.dtype;
  record.trial = record.name + "::" + record.check;
  record.repeat = text(r.z) + (r.y === undefined ? "" : record.trial + r.y);
  record.timings = (r.T || []).map((t) => decodeTiming(t, text, record));
  record.metrics = (r.M || []).map((m) => ({
    record,
    shape: text(m[0]),
    name: text(m[1]),
    value: m[2],
    relative: text(m[3]),
    accepted: m[4],
  }));
  return record;
}

function decodeSummary(raw, number) {
  const text = (i) => (i === undefined || i === null ? "" : RAW.strings[i]);
  const records = raw.records.map((r, i) => decodeRecord(r, text, i));
  const timings = records.flatMap((r) => r.timings);
  return {
    ...raw,
    ceilings: raw.ceilings || [],
    number,
    records,
    timings,
    metrics: records.flatMap((r) => r.metrics),
    peers: timings.filter((t) => t.peers.length),
    predicted: timings.filter((t) => t.predicted),
    counts: Object.fromEntries(VERDICTS.map((v) => [v, records.filter((r) => r.verdict === v).length])),
  };
}

const SUMMARIES = RAW.summaries.map(decodeSummary);

// Numbers as text.
const isNumber = (x) => typeof x === "number" && Number.isFinite(x);
function digits(x, n = 4) {
  if (!isNumber(x)) return "–";
  if (x !== 0 && (Math.abs(x) >= 1e7 || Math.abs(x) < 1e-4)) return x.toExponential(2);
  const whole = Math.max(1, Math.floor(Math.log10(Math.abs(x) || 1)) + 1);
  return x.toLocaleString("en", {
    minimumFractionDigits: Math.max(0, n - whole),
    maximumFractionDigits: Math.max(0, n - whole),
  });
}
const percent = (x, n = 1) => (isNumber(x) ? (x * 100).toFixed(n) + " %" : "–");
const ofAllowed = (x, n = 0) => (x === Infinity ? "not finite" : percent(x, n));
const change = (x) => (isNumber(x) ? (x >= 1 ? "+" : "−") + Math.abs((x - 1) * 100).toFixed(1) + " %" : "–");
const times = (x) => (isNumber(x) ? digits(x, 3) + " ×" : "–");
const count = (x) => (isNumber(x) ? x.toLocaleString("en") : "–");
const bytes = (x) => {
  const u = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; x >= 1024 && i < 4; i++) x /= 1024;
  return digits(x, 3) + " " + u[i];
};
const day = (text) => String(text).replace("T", " ").replace("Z", " UTC");
const unique = (list) => [...new Set(list)].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
const geomean = (list) => Math.exp(list.reduce((sum, x) => sum + Math.log(x), 0) / list.length);
function groups(list, key) {
  const map = new Map();
  for (const item of list) {
    const k = key(item);
    if (!map.has(k)) map.set(k, []);
    map.get(k).push(item);
  }
  return map;
}
