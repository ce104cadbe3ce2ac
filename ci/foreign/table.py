"""The results of the other programs of this folder as docs/results/foreign.json.xz and foreign.md.

    python table.py <folder with results> <docs/results>
"""

import json
import lzma
import re
import pathlib
import sys

RUNS = {
    "liger": "Liger Kernel",
    "fla": "flash-linear-attention",
    "fla-ieee": "flash-linear-attention, products of f32 without TF32",
}


def read(folder, name):
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def escape(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def shorten(finding):
    """Without the folders that the libraries lie in."""
    return re.sub(r"\S*site-packages/", "", finding)


def comparisons(title, run):
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    lines = [f"## {title}: {run['right']} of {run['comparisons']} right", "", f"{versions}.", ""]
    lines += ["| operator | dtypes | worst error / allowed | allowed, times the dtype's | launches | verdict |", "|---|---|---|---|---|---|"]
    by_case = {}
    for row in run["rows"]:
        by_case.setdefault(row["case"], []).append(row)
    for case, rows in by_case.items():
        worst = max((row["worst"] for row in rows if row["worst"] is not None), default=None)
        verdicts = sorted({row["verdict"] for row in rows})
        slack = f"{rows[0]['slack']:g}" + (f" ({rows[0]['because']})" if rows[0]["because"] else "")
        launches = sum(row["launches"] for row in rows)
        dtypes = ", ".join(row["dtype"] for row in rows)
        lines.append(f"| {case} | {dtypes} | {worst} | {escape(slack)} | {launches} | {', '.join(verdicts)} |")
    found = {}
    for row in run["rows"]:
        for finding in row["findings"]:
            kernel = finding.split(" in ", 1)[-1].split(":")[0]
            key = (finding.split(":")[0], kernel)
            found.setdefault(key, [shorten(finding), set()])[1].add(row["case"])
    if found:
        lines += ["", "What the checks found in these kernels, once a check and kernel:", ""]
        lines += [f"- {', '.join(sorted(cases))}: {escape(text)[:400]}" for text, cases in found.values()]
    return lines + [""]


def corpus(account):
    total = account["total"]
    share = 100 * total["loadable"] / max(total["entries"], 1)
    lines = [
        f"## PTX in wheels: {total['loadable']} of {total['entries']} kernels can be simulated ({share:.2f} %)",
        "",
        f"{total['texts']} different texts of {len(account['packages'])} packages; {total['unreadable']} could not be read.",
        "",
        "| package | version | texts | kernels | of which can be simulated | not modelled (kernels) |",
        "|---|---|---|---|---|---|",
    ]
    for row in account["packages"]:
        reasons = sorted(row["reasons"].items(), key=lambda item: -item[1])
        why = ", ".join(f"`{escape(reason)}` ({count})" for reason, count in reasons[:6])
        more = f", {len(reasons) - 6} more" if len(reasons) > 6 else ""
        lines.append(f"| {row['package']} | {row['version']} | {row['texts']} | {row['entries']} | {row['loadable']} | {why}{more} |")
    return lines + [""]


def main():
    folder, results = map(pathlib.Path, sys.argv[1:3])
    runs = {name: read(folder, name) for name in RUNS}
    planted, wheels = read(folder, "planted"), read(folder, "corpus")
    lines = [
        "# Other people's kernels in the simulator",
        "",
        "Made by `bash ci/foreign.sh` on a machine without a GPU. The host code is the libraries' own; `ci/foreign/driver.py` is",
        "Triton's driver, whose device is `kernelgate sim-server`. Each comparison is of all outputs and gradients with a",
        "reference in double precision; what is allowed is stated in `ci/foreign/compare.py` and the cases beside it.",
        "",
    ]
    for name, title in RUNS.items():
        if runs[name]:
            lines += comparisons(title, runs[name])
    if planted:
        wrong = planted["comparisons"] - planted["right"]
        lines += [
            f"## Spoilt kernels: {wrong} of {planted['comparisons']} noticed",
            "",
            "In every kernel of Liger each sum became a difference, each difference and product a sum (fused ones were left alone).",
        ]
        lines += [f"Still right: {row['case']}, {row['dtype']}." for row in planted["rows"] if row["verdict"] == "right"]
        lines += [""]
    if wheels:
        lines += corpus(wheels)
    for run in [run for run in [*runs.values(), planted] if run]:
        for row in run["rows"]:
            row.pop("trace", None)
            row.pop("seconds", None)
            row["findings"] = [shorten(finding) for finding in row["findings"]]
    account = {"version": 1, "comparisons": {k: v for k, v in runs.items() if v}, "planted": planted, "corpus": wheels}
    with lzma.open(results / "foreign.json.xz", "wt", preset=9 | lzma.PRESET_EXTREME) as file:
        file.write(json.dumps(account, indent=1) + "\n")
    (results / "foreign.md").write_text("\n".join(lines).rstrip() + "\n")


main()
