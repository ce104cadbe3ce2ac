// The run, and the machine that it ran on.
function environment(summary) {
  const run = summary.run;
  return [
    h("h1", {}, "Environment"),
    section(
      "Run",
      pairs([
        ["Package", run.package],
        ["Revision", run.revision || "not recorded"],
        ["Command", h("code", {}, run.command)],
        ["Started", day(run.started)],
        ["Seed", String(run.seed)],
        ["kernelgate", run.kernelgate],
        ["Host", run.os + ", " + run.arch],
        ["Run", run.id],
        ["Merged from", run.merged ? count(run.merged + 1) + " runs" : ""],
        ["File", summary.label],
      ]),
    ),
    summary.devices.map((d) =>
      section(
        d.name,
        pairs([
          ["Kind", d.kind],
          ["Key", d.key],
          ["Architecture", d.arch],
          ["Multiprocessors or threads", count(d.units)],
          ["Last-level cache", d.cache_bytes ? bytes(d.cache_bytes) : ""],
          ["Memory", d.memory_bytes ? bytes(d.memory_bytes) : ""],
          ["Highest clock", d.clock_mhz ? digits(d.clock_mhz, 4) + " MHz" : ""],
          ["Driver", d.driver],
          ["Compiler", d.compiler],
        ]),
      ),
    ),
  ];
}
