"""Tests that wait for the GPU. pytest_test.go runs them while another program holds it."""

import multiprocessing
import time

import numpy
import pytest
from numba import cuda


@pytest.mark.timeout(5)
def test_waits():
    cuda.device_array(60 << 20, numpy.uint8)


@pytest.mark.timeout(5)
def test_lets_another_wait():
    # A forked child need not import numba, which takes seconds on a busy machine and would count.
    child = multiprocessing.get_context("fork").Process(target=cuda.device_array, args=(60 << 20, numpy.uint8))
    child.start()
    child.join()
    assert child.exitcode == 0


@pytest.mark.timeout(5)
def test_waits_and_takes_too_long():
    cuda.device_array(60 << 20, numpy.uint8)
    time.sleep(60)


@pytest.mark.timeout(5)
def test_takes_too_long():
    time.sleep(60)
