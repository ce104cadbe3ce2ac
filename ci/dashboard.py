#!/usr/bin/env python3
"""Opens dashboards in headless Chromium and uses them as a person would: views, sorting, filters, comparisons, keys.

    ci/dashboard.py --every every.html --two two.html --big big.html [--runs runs.html] [--history history.html] [--shots FOLDER PAGE]

Speaks the DevTools protocol over a pipe; needs Python and Chromium alone. Ends with 1 and a list if anything is wrong.
"""
import argparse
import base64
import itertools
import json
import math
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

SIZE_LIMIT = 3_000_000
READY_LIMIT_MS = 1000
DEADLINE_S = 60


class Browser:
    """Chromium, one page, and what it complained of."""

    def __init__(self):
        program = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
        if program is None:
            sys.exit("no Chromium: apt-get install chromium")
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        options = "--headless=new --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe --disable-background-networking"
        command = f'exec "$0" {options} --user-data-dir="$1" about:blank 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(["bash", "-c", command, program, self.profile.name], pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.numbers = itertools.count(1)
        self.buffer = b""
        self.session = None
        self.complaints, self.requests, self.loaded = [], [], 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.screen()

    def screen(self):
        self.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)

    def message(self):
        end = time.monotonic() + DEADLINE_S
        while b"\0" not in self.buffer:
            if not select.select([self.read_end], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            chunk = os.read(self.read_end, 1 << 20)
            if not chunk:
                raise EOFError("Chromium has ended")
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def event(self, message):
        name, given = message.get("method"), message.get("params", {})
        if name == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif name == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.complaints.append(given["entry"]["text"])
        elif name == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.complaints.append("console: " + json.dumps(given["args"]))
        elif name == "Page.javascriptDialogOpening":
            self.complaints.append("a dialog: " + given["message"])
            os.write(self.write_end, json.dumps({"id": next(self.numbers), "sessionId": self.session, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}).encode() + b"\0")
        elif name == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif name == "Page.loadEventFired":
            self.loaded += 1

    def call(self, method, **given):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": given}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.event(answer)

    def js(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(expression + ": " + json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def settle(self):
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))")

    def open(self, path, fragment=""):
        self.requests.clear()
        loaded = self.loaded
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + fragment)
        while self.loaded < loaded + 2 and self.js("location.href").startswith("about:"):
            self.event(self.message())
        self.settle()

    def go(self, fragment):
        self.js(f"location.hash = {json.dumps(fragment)}")
        self.settle()

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key, 0)
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else text
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)
        self.settle()

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.profile.cleanup()


class Report:
    def __init__(self, browser):
        self.browser, self.wrong = browser, []

    def check(self, what, good, found=""):
        print(("ok     " if good else "WRONG  ") + what + ("" if good else f": {found}"), flush=True)
        if not good:
            self.wrong.append(what)

    def quiet(self, what):
        self.check(f"{what}: no complaint", not self.browser.complaints, self.browser.complaints[:3])
        self.browser.complaints.clear()
        foreign = [url for url in self.browser.requests if not url.startswith(("file:", "data:", "about:"))]
        self.check(f"{what}: no request to a network", not foreign, foreign)


COLUMN = """(title => { const heads = [...document.querySelectorAll('main table')].at(-1).querySelectorAll('thead th');
  const at = [...heads].findIndex(th => th.textContent.startsWith(title));
  return [...document.querySelectorAll('main table')].at(-1).querySelectorAll('tbody tr').values().map(tr => tr.children[at].textContent).toArray(); })"""
SORT = "(title => [...document.querySelectorAll('main th button')].find(b => b.textContent === title).click())"
TYPE = "(text => { const box = document.querySelector('input[type=search]'); box.value = text; box.dispatchEvent(new Event('input')); })"


def offered(browser):
    """The views that the page has, and those that it could have."""
    return [set(browser.js(f"VIEWS{chosen}.map(v => v.path)")) for chosen in (".filter(v => v.shows(shownSummary()))", "")]


def views(browser, report):
    """Every view that the page offers is drawn, and none of them lets a name out of its text."""
    titles = browser.js("[...document.querySelectorAll('#nav a')].map(a => [a.hash, a.textContent])")
    for fragment, title in titles:
        browser.go(fragment)
        drawn = browser.js("document.querySelector('main h1') && document.querySelector('main').textContent.length")
        report.check(f"the view {title} is drawn", bool(drawn) and drawn > 20, drawn)
    return [fragment for fragment, _ in titles]


def hostile(browser, report, fragments):
    records = browser.js("shownSummary().records.length")
    pages = fragments + [f"#/trial/{i}" for i in range(records)] + ["#/operator/" + name for name in browser.js("unique(shownSummary().records.map(r => part(r.operator)))")]
    strange = []
    for fragment in pages:
        browser.go(fragment)
        if browser.js("document.querySelectorAll('main script, main img, main iframe, main [onerror]').length + document.scripts.length - 2"):
            strange.append(fragment)
    report.check(f"markup in names stays text on {len(pages)} pages", not strange, strange[:5])
    browser.go("#/trials?q=alert(1)")
    report.check("a hostile name is shown as it is", "<script>alert(1)</script>" in browser.js("document.querySelector('main').textContent"))


def sorting(browser, report):
    browser.go("#/trials")
    for title, times in (("Trial", 1), ("s", 1), ("Of allowed", 1)):
        browser.go("#/overview")
        browser.go("#/trials")
        browser.js(f"{SORT}({json.dumps(title)})")
        once = browser.js(f"{COLUMN}({json.dumps(title)})")
        way = browser.js("document.querySelector('th[aria-sort]').getAttribute('aria-sort')")
        browser.js(f"{SORT}({json.dumps(title)})")
        twice = browser.js(f"{COLUMN}({json.dumps(title)})")
        other = browser.js("document.querySelector('th[aria-sort]').getAttribute('aria-sort')")
        report.check(f"sorting by {title} turns its order", once != twice and way != other, (once[:3], twice[:3], way, other))
    browser.js(f"{SORT}('s')")
    numbers = [float(x) for x in browser.js(f"{COLUMN}('s')")]
    report.check("numbers are sorted as numbers", len(set(numbers)) > 3 and numbers == sorted(numbers, reverse=True), numbers)


def filtering(browser, report, expected):
    browser.go("#/trials")
    browser.js(f"{TYPE}('softmax')")
    rows = browser.js("document.querySelectorAll('main tbody tr').length")
    report.check("a search leaves what it names", rows == expected["softmax"], (rows, expected))
    report.check("the address keeps the search", browser.js("location.hash") == "#/trials?q=softmax")
    browser.go("#/trials?verdict=fail")
    verdicts = set(browser.js(f"{COLUMN}('Verdict')"))
    rows = browser.js("document.querySelectorAll('main tbody tr').length")
    report.check("a choice leaves what it names", verdicts == {"fail"} and rows == expected["fail"], (verdicts, rows))
    browser.go("#/operators?dtype=f16")
    report.check("operators are filtered too", 0 < browser.js("document.querySelectorAll('main tbody tr').length") < browser.js("unique(shownSummary().records.map(r => r.operator + r.candidate)).length"))


def keys(browser, report, page):
    seen = set()
    browser.open(page)
    browser.key("Tab")
    report.check("the first stop of the Tab key skips to the content", browser.js("document.activeElement.textContent") == "Skip to the content")
    browser.js("document.activeElement.blur()")
    browser.go("#/overview")
    for _ in browser.js("[...document.querySelectorAll('#nav a')].map(a => a.hash)"):
        browser.key("]")
        seen.add(browser.js("location.hash"))
    report.check("] reaches every view", seen == set(browser.js("[...document.querySelectorAll('#nav a')].map(a => a.hash)")), seen)
    browser.key("[")
    report.check("[ goes back", browser.js("location.hash") == browser.js("[...document.querySelectorAll('#nav a')].at(-1).hash"), browser.js("location.hash"))
    browser.key("3")
    report.check("a digit chooses a view", browser.js("location.hash").startswith("#/trials"), browser.js("location.hash"))
    browser.key("/")
    report.check("/ goes to the search", browser.js("document.activeElement.type") == "search")
    browser.key("Escape")
    browser.js("document.querySelector('main th button').focus()")
    before = browser.js(f"{COLUMN}('Verdict')")
    browser.key("Enter")
    browser.key("Enter")
    report.check("a table is sorted from the keyboard", browser.js("document.querySelector('th[aria-sort]').textContent") == "Verdict", before[:3])


def roofline(browser, report):
    browser.go("#/roofline")
    point = browser.js("(() => { const u = [...liveCharts][0].plot, t = shownSummary().timings.find(t => t.flops > 0 && t.record.device.startsWith('nvidia'));"
                       " const r = u.over.getBoundingClientRect(); return [r.left + u.valToPos(t.flops / t.bytes, 'x'), r.top + u.valToPos(rate(t), 'y'), t.record.name]; })()")
    for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
        browser.call("Input.dispatchMouseEvent", type=kind, x=point[0], y=point[1], button="left" if kind != "mouseMoved" else "none", buttons=buttons, clickCount=0 if kind == "mouseMoved" else 1)
        if kind == "mouseMoved":
            browser.settle()
            tip = browser.js("document.querySelector('.tip').textContent")
            report.check("a point says what it is", not browser.js("document.querySelector('.tip').hidden") and "µs" in tip, tip)
    browser.settle()
    report.check("a point leads to its trial", browser.js("location.hash").startswith("#/trial/"), browser.js("location.hash"))


def compare(browser, report, page):
    browser.open(page, "#/compare")
    # The same numbers, counted here from the data of the page.
    raw = json.loads(browser.js("document.getElementById('data').textContent"))
    text = raw["strings"]
    maps = []
    for summary in raw["summaries"]:
        name = lambda r: (text[r["o"]], text[r["c"]], text[r["t"]], r["k"], text[r["f"]] if "f" in r else None)
        maps.append({name(r): r for r in summary["records"]})
    both = maps[0].keys() & maps[1].keys()
    turned = sum(maps[0][k]["v"] != maps[1][k]["v"] for k in both)
    only = len(maps[0].keys() ^ maps[1].keys())
    tiles = dict(browser.js("[...document.querySelectorAll('main .tile')].map(t => [t.firstChild.textContent, Number(t.querySelector('b').textContent.replaceAll(',', ''))])"))
    report.check("two summaries are compared", (tiles["in both"], tiles["other verdict"], tiles["only in one"]) == (len(both), turned, only) and turned > 0 and only > 0, (tiles, len(both), turned, only))
    report.check("a slower case is seen", tiles["slower"] > 0 and "+" in "".join(browser.js("[...document.querySelectorAll('main .slower')].map(e => e.textContent)")), tiles)


CONTRAST = """(() => { const css = n => getComputedStyle(document.documentElement).getPropertyValue(n).trim();
  const light = hex => { const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(css(a)), light(css(b))].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const on = ['--paper', '--raised']; const pairs = on.flatMap(p => ['--ink', '--soft', '--accent', '--good', '--bad', '--slower', '--invalid', '--unclear', '--faster', '--skip'].map(t => [t, p]))
    .concat(['good', 'bad', 'slower', 'invalid', 'unclear', 'faster', 'skip', 'accent'].map(v => ['--' + v, '--' + v + '-soft']));
  return pairs.map(([a, b]) => [a, b, ratio(a, b)]).filter(([, , r]) => r < 4.5); })()"""


def looks(browser, report, page, fragments):
    browser.open(page)
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.settle()
        report.check(f"{scheme}: every text has a contrast of 4.5", browser.js(CONTRAST) == [], browser.js(CONTRAST))
        paper = browser.js("getComputedStyle(document.body).backgroundColor")
        report.check(f"{scheme}: the page is {scheme}", (sum(map(int, paper[4:-1].split(","))) > 384) == (scheme == "light"), paper)
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    report.check("print: no menu", browser.js("getComputedStyle(document.getElementById('nav')).display") == "none")
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    wide, unseen = [], []
    for fragment in fragments + ["#/trial/0"]:
        browser.go(fragment)
        width = browser.js("document.documentElement.scrollWidth")
        if width > 390:
            wide.append((fragment, width))
        hidden = browser.js("(() => { const a = document.querySelector('#nav a[aria-current]'); if (!a) return false; const r = a.getBoundingClientRect(); return r.left < 0 || r.right > innerWidth; })()")
        if hidden:
            unseen.append(fragment)
    report.check("phone: the view that is shown stands out in the row of views", not unseen, unseen)
    report.check("phone: no view is wider than the screen", not wide, wide)
    browser.screen()


def worst_errors(browser, report):
    """The failed case counts: a failure is never below what is allowed."""
    shares = browser.js("shownSummary().records.filter(r => r.failure && r.failure.worst).map(r => [r.trial, r.worst === Infinity ? 'inf' : r.worst])")
    report.check("a failure is beyond what is allowed", shares and all(share == "inf" or share > 1 for _, share in shares), shares)
    browser.go("#/overview")
    order = browser.js("[...document.querySelectorAll('main section')].filter(s => s.querySelector('h2').textContent === 'Worst errors').flatMap(s => [...s.querySelectorAll('tbody tr')].map(tr => tr.children[1].textContent))")
    numbers = [float("inf") if text == "not finite" else float(text.split()[0]) for text in order]
    report.check("the worst errors come first", len(numbers) > 1 and numbers == sorted(numbers, reverse=True) and numbers[0] > 100, order)


def severity(browser, report):
    """Of the failures of a real run the one that is farthest off comes first, though its file kept errors of passing cases alone."""
    browser.go("#/overview")
    rows = browser.js("[...document.querySelectorAll('main section')].filter(s => s.querySelector('h2').textContent === 'Needs attention').flatMap(s => [...s.querySelectorAll('tbody a')].map(a => a.textContent))")
    at = [next((i for i, row in enumerate(rows) if row == name), None) for name in ("conv2d::cudnn::bf16::correctness", "lstm::cudnn::f16::property")]
    report.check("the failure at 5.7 of the allowed error comes before the one at 1.06", None not in at and at[0] < at[1], rows)
    changes = browser.js("shownSummary().timings.filter(t => isNumber(t.ratio)).map(steady).map(r => Math.abs(Math.log(r)))")
    shown = browser.js("(() => { const s = [...document.querySelectorAll('main section')].find(s => s.querySelector('h2').textContent.startsWith('Changes')); return s.querySelector('tbody tr').children[2].textContent; })()")
    most = max(changes)
    report.check("changes are sorted by the one against the yardstick", shown in (f"+{(math.exp(most) - 1) * 100:.1f} %", f"−{(1 - math.exp(-most)) * 100:.1f} %"), (shown, most))


def runs(browser, report, page):
    """Summaries without records: their first real view is opened, and they are compared too."""
    browser.open(page)
    report.check("without trials the first view that shows something is opened", browser.js("document.querySelector('main h1').textContent") == "Models", browser.js("document.querySelector('main h1').textContent"))
    heads = browser.js("[...document.querySelectorAll('main th')].map(th => th.textContent)")
    report.check("models have their prompt and tokens", {"Prompt", "Tokens"} <= set(heads) and "Device" not in heads, heads)
    clipped = browser.js("[...document.querySelectorAll('main .scroll')].some(s => s.scrollWidth > s.clientWidth)")
    report.check("models fit into 1280 px", not clipped)
    browser.go("#/compare")
    titles = browser.js("[...document.querySelectorAll('main h2')].map(e => e.textContent)")
    report.check("models are compared", "Models" in titles, titles)
    report.quiet("runs")


def big(browser, report, page):
    size = os.path.getsize(page)
    report.check(f"5,000 records are smaller than 3 MB ({size} bytes)", size < SIZE_LIMIT, size)
    times = []
    for _ in range(3):
        browser.open(page)
        times.append(float(browser.js("document.documentElement.dataset.ready")))
    records = browser.js("shownSummary().records.length")
    report.check(f"{records} records are interactive within 1 s ({min(times):.0f} ms)", records >= 5000 and min(times) < READY_LIMIT_MS, times)
    browser.go("#/trials")
    took = browser.js(f"(() => {{ const start = performance.now(); {TYPE}('bf16 perf'); document.body.offsetHeight; return performance.now() - start; }})()")
    report.check(f"a search over them takes {took:.0f} ms", took < READY_LIMIT_MS, took)
    report.quiet("5,000 records")


def history(browser, report, page):
    browser.open(page, "#/history")
    rows = browser.js("document.querySelectorAll('main tbody tr').length")
    report.check("the history lists its cases", rows > 0, rows)
    lead = browser.js("document.querySelector('main .lead').textContent")
    report.check("the history says the ratio of improvements to regressions", re.match(r"\d+ faster : \d+ slower over 6 runs\. ", lead), lead)
    browser.js("document.querySelector('main tbody a').click()")
    browser.settle()
    report.check("a case is drawn over time", browser.js("document.querySelectorAll('main .chart canvas[role=img][aria-label]').length") == 1)
    legend = browser.js("document.querySelector('main .legend').textContent")
    report.check("the legend has no line that is not drawn", ("baseline" in legend) == browser.js("RAW.history.cases[Number(location.hash.split('/')[2])].points.some(p => isNumber(p[4]))"), legend)
    report.check("its change is marked", "%" in "".join(browser.js(f"{COLUMN}('What changed')")), browser.js(f"{COLUMN}('What changed')"))
    report.quiet("history")


def shots(browser, folder, page):
    """Pictures to look at: each view in light, some in dark and on a phone."""
    os.makedirs(folder, exist_ok=True)
    browser.call("Emulation.setDeviceMetricsOverride", width=1280, height=860, deviceScaleFactor=1, mobile=False)
    browser.open(page)
    fragments = browser.js("[...document.querySelectorAll('#nav a')].map(a => a.hash)") + ["#/operator/" + browser.js("shownSummary().records.length ? part(shownSummary().records.find(r => r.timings.length).operator) : ''")]
    fragments.append("#/trial/" + str(browser.js("(shownSummary().records.find(r => r.failure) || shownSummary().records.find(r => r.timings.length) || { index: 0 }).index")))

    def save(name, fragment):
        browser.go(fragment)
        time.sleep(0.2)
        data = browser.call("Page.captureScreenshot", format="png")["data"]
        with open(os.path.join(folder, name + ".png"), "wb") as file:
            file.write(base64.b64decode(data))

    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for fragment in fragments:
            save(f"{scheme}-{fragment[2:].split('/')[0]}", fragment)
    browser.call("Emulation.setEmulatedMedia", features=[])
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    for fragment in fragments:
        save(f"phone-{fragment[2:].split('/')[0]}", fragment)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("every", "two", "runs", "big", "history"):
        parser.add_argument("--" + name, metavar="PAGE")
    parser.add_argument("--shots", nargs=2, metavar=("FOLDER", "PAGE"))
    given = parser.parse_args()
    browser = Browser()
    report = Report(browser)
    seen, known = set(), set()
    try:
        if given.every:
            browser.open(given.every)
            fragments = views(browser, report)
            seen, known = offered(browser)
            hostile(browser, report, fragments)
            sorting(browser, report)
            counts = browser.js("({ softmax: shownSummary().records.filter(r => r.trial.includes('softmax')).length, fail: shownSummary().counts.fail })")
            filtering(browser, report, counts)
            worst_errors(browser, report)
            roofline(browser, report)
            keys(browser, report, given.every)
            looks(browser, report, given.every, fragments)
            report.quiet("every kind of record")
        if given.two:
            compare(browser, report, given.two)
            severity(browser, report)
            seen |= offered(browser)[0]
            report.quiet("two summaries")
        if given.runs:
            runs(browser, report, given.runs)
        if given.big:
            big(browser, report, given.big)
        if given.history:
            history(browser, report, given.history)
            seen |= offered(browser)[0]
        if given.every and given.two and given.history:
            report.check("every view is in one of the pages", known and seen == known, known - seen)
        if given.shots:
            shots(browser, *given.shots)
    finally:
        browser.close()
    if report.wrong:
        sys.exit(f"{len(report.wrong)} wrong: " + "; ".join(report.wrong))


main()
