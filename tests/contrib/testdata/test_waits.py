"""Tests that wait for the GPU. pytest_test.go runs them while another program holds it."""

import subprocess
import sys
import time

import numpy
import pytest
from numba import cuda

TWO = "import numpy; from numba import cuda; cuda.device_array(60 << 20, numpy.uint8)"


@pytest.mark.timeout(5)
def test_waits():
    cuda.device_array(60 << 20, numpy.uint8)


@pytest.mark.timeout(5)
def test_lets_another_wait():
    subprocess.run([sys.executable, "-c", TWO], check=True)


@pytest.mark.timeout(5)
def test_waits_and_takes_too_long():
    cuda.device_array(60 << 20, numpy.uint8)
    time.sleep(60)


@pytest.mark.timeout(5)
def test_takes_too_long():
    time.sleep(60)
