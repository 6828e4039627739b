"""Runs numba's own driver tests and prints a line for each: ID RESULT."""

import os
import sys
import unittest


class Results(unittest.TestResult):
    """Prints one line for each test."""

    def addSuccess(self, test):
        self.say("ok", test)

    def addFailure(self, test, err):
        self.say("failure", test)

    def addError(self, test, err):
        self.say("error " + err[0].__name__, test)

    def addSkip(self, test, reason):
        self.say("skipped", test)

    def addExpectedFailure(self, test, err):
        self.say("expected", test)

    def addUnexpectedSuccess(self, test):
        self.say("unexpected", test)

    def say(self, result, test):
        print(test.id(), result, file=out, flush=True)


if __name__ == "__main__":  # some tests start a process that imports this file
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the tests print themselves
    folder = "numba.cuda.tests.cudadrv."
    for module in sys.argv[1:]:
        unittest.defaultTestLoader.loadTestsFromName(folder + module).run(Results())
