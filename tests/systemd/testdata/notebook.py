# SPDX-License-Identifier: Apache-2.0
"""Opens a notebook's kernel, as a notebook server does, and runs a cell in it for each line of stdin.

notebook.py KERNEL: a line is a cell as a JSON string. It is answered with a line: what the cell prints, or the name of the
exception that ends it. What a cell prints on stderr goes to stderr at once. At the end of stdin the kernel is ended.
"""

import json
import sys

from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name=sys.argv[1], startup_timeout=600)


def cell(code):
    """Runs a cell, and returns the line with which it is answered."""
    printed = []

    def hook(message):
        if message["msg_type"] == "stream":
            text = message["content"]["text"]
            if message["content"]["name"] == "stdout":
                printed.append(text)
            else:
                print("the cell shows: " + text, end="", file=sys.stderr, flush=True)

    content = client.execute_interactive(code, output_hook=hook, timeout=600)["content"]
    if content["status"] == "error":
        return content["ename"] + ": " + content["evalue"].replace("\n", " ")
    return "".join(printed).strip().replace("\n", " ")


print("ready", flush=True)
for line in sys.stdin:
    print(cell(json.loads(line)), flush=True)
client.stop_channels()
manager.shutdown_kernel()
