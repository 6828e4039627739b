"""Tests that do or do not leave GPU memory behind. Each name says which. pytest_test.go runs them with the plug-in."""

import subprocess
import sys

import numpy
import pytest
from numba import cuda

MIB = 1 << 20
kept = []


def block(mib):
    return cuda.device_array(mib * MIB, dtype=numpy.uint8)


@pytest.fixture
def mine():
    return block(5)


@pytest.fixture(scope="module")
def model():
    return block(16)


@pytest.fixture(scope="module")
def hoarder():
    kept.append(block(4))
    yield
    # forgets to free it


def test_nothing():
    pass


def test_freed_by_the_collector():
    cycle = [block(3)]
    cycle.append(cycle)


def test_of_a_function(mine):
    assert mine.size == 5 * MIB


def test_of_a_module(model):
    block(1)


def test_of_a_module_again(model):
    block(2)


def test_that_leaks():
    kept.append(block(7))


def test_beside_what_was_leaked():
    block(1)


@pytest.mark.xfail(strict=True)
def test_that_fails():
    local = block(6)
    assert local is None


def test_that_frees():
    kept.clear()


def test_that_leaves_a_process():
    program = subprocess.Popen([sys.executable, "-c", "import numpy, sys; from numba import cuda; a = cuda.device_array(9 << 20, numpy.uint8); print(flush=True); sys.stdin.read()"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    program.stdout.readline()
    kept.append(program)


def test_that_ends_it():
    kept[0].communicate()
    kept.clear()


def test_with_a_fixture_that_leaks(hoarder):
    pass
