"""Counts test cases: count_tests.py CTEST_JUNIT GTEST_XML_DIR prints one PASS or FAIL line a case.

A GoogleTest program counts by its cases, any other ctest entry as one. A program that died counts as failed, whatever it had
written before.
"""
import pathlib
import sys
import xml.etree.ElementTree as xml


def cases_of(path):
    """(name, ok) of each case that ran in one GoogleTest report."""
    for suite in xml.parse(path).getroot():
        for case in suite:
            if case.get("result") == "completed":
                yield f"{suite.get('name')}.{case.get('name')}", case.find("failure") is None


def main(junit, gtest_dir):
    entries = list(xml.parse(junit).getroot().iter("testcase"))
    if not entries:
        sys.exit("no tests were found")
    for entry in entries:
        name, ok = entry.get("name"), entry.get("status") == "run"
        report = pathlib.Path(gtest_dir) / f"{name}.xml"
        cases = list(cases_of(report)) if report.exists() else []
        for case, case_ok in cases:
            print("PASS" if case_ok else "FAIL", name, case)
        if not cases or (not ok and all(case_ok for _, case_ok in cases)):
            print("PASS" if ok else "FAIL", name)


main(*sys.argv[1:])
