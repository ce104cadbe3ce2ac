"""Holds a JUnit XML file against the summary that it was made of: python3 ci/junit.py SUMMARY JUNIT"""

import collections
import json
import lzma
import sys

from junitparser import Error, Failure, JUnitXml, Skipped

FAILED, SKIPPED = {"fail", "slower", "invalid"}, {"skip", "unclear"}
RESULTS = {Failure: "failed", Error: "failed", Skipped: "skipped"}


def of_verdict(verdict):
    return "failed" if verdict in FAILED else "skipped" if verdict in SKIPPED else "passed"


def main(summary, junit):
    read = lzma.open if summary.endswith(".xz") else open
    with read(summary, "rt", encoding="utf-8") as file:
        expected = collections.Counter(of_verdict(record["verdict"]) for record in json.load(file)["records"])
    found, names = collections.Counter(), set()
    for suite in JUnitXml.fromfile(junit):
        for case in suite:
            names.add((suite.name, case.classname, case.name))
            results = {RESULTS[type(result)] for result in case.result}
            found[results.pop() if results else "passed"] += 1
            assert not results, f"{case.name} has several results"
            assert case.time is not None and case.time >= 0, f"{case.name} has no time"
    assert found == expected, f"{junit}: {dict(found)}, {summary} has {dict(expected)}"
    assert len(names) == sum(found.values()), "two cases have one name"
    print(f"{summary}: {dict(found)}")


main(*sys.argv[1:])
