"""Packages that a test cannot do without: where one is missing the test is skipped, and says so."""

import importlib
import sys

EXIT_SKIPPED = 77  # what ./check, ctest and automake take as "skipped"


def need(module):
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(f"{error}; tests/requirements.txt could not be installed (no network?)")
        sys.exit(EXIT_SKIPPED)
