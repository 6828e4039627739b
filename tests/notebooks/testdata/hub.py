# SPDX-License-Identifier: Apache-2.0
"""Starts a JupyterHub with the page's line of configuration, and a user's server and notebook.

hub.py DIRECTORY LINE: prints the output of the notebook's cells."""

import asyncio
import json
import os
import pathlib
import socket
import subprocess
import sys

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

directory, line = pathlib.Path(sys.argv[1]), sys.argv[2]
TOKEN = "of-the-test"
KEPT = ["GPUARB_SOCKET", "LD_LIBRARY_PATH", "SIMCUDA_DIR", "SIMCUDA_DEVICES", "HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"]
CELL = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), ctypes.c_uint64()
print(cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
print(*[cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(n << 30)) for n in (6, 3, 1)])
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


PUBLIC, HUB, PROXY = free_port(), free_port(), free_port()
(directory / "hub_config.py").write_text(f"""
c = get_config()
{line}
c.Spawner.args = ["--allow-root"]
c.Spawner.environment = {({name: os.environ[name] for name in KEPT})!r}
c.Spawner.http_timeout = c.Spawner.start_timeout = 600
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.bind_url = "http://127.0.0.1:{PUBLIC}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{HUB}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{PROXY}"
c.JupyterHub.services = [{{"name": "test", "api_token": "{TOKEN}"}}]
c.JupyterHub.load_roles = [{{"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:servers", "tokens", "access:servers"]}}]
""")


async def ask(path, method="GET", **body):
    """Sends a request to the hub, or through the hub to the user's server."""
    request = HTTPRequest(
        f"http://127.0.0.1:{PUBLIC}{path}",
        method=method,
        headers={"Authorization": "token " + TOKEN},
        body=json.dumps(body) if method == "POST" else None,
        request_timeout=600,
    )
    reply = await AsyncHTTPClient().fetch(request)
    return json.loads(reply.body or b"null")


async def asked(path, wanted):
    """Repeats a request until it has the wanted answer, and returns that."""
    while hub.poll() is None:
        try:
            answer = await ask(path)
            if wanted(answer):
                return answer
        except (HTTPClientError, OSError):
            pass
        await asyncio.sleep(0.1)
    raise RuntimeError("the hub has ended")


async def play():
    await asked("/hub/api/", lambda answer: "version" in answer)
    await ask("/hub/api/users/ann", "POST")
    await ask("/hub/api/users/ann/server", "POST")
    await asked("/hub/api/users/ann", lambda user: user["servers"].get("", {}).get("ready"))
    kernel = await ask("/user/ann/api/kernels", "POST")
    channels = await websocket_connect(
        HTTPRequest(
            f"ws://127.0.0.1:{PUBLIC}/user/ann/api/kernels/{kernel['id']}/channels",
            headers={"Authorization": "token " + TOKEN},
            request_timeout=600,
        )
    )
    header = {"msg_id": "cell", "session": "test", "username": "ann", "msg_type": "execute_request", "version": "5.3"}
    content = {"code": CELL, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    await channels.write_message(
        json.dumps({"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content})
    )
    while True:
        message = json.loads(await channels.read_message())
        if message["parent_header"].get("msg_id") != "cell":
            continue
        if message["msg_type"] == "stream":
            print(message["content"]["text"], end="", file=getattr(sys, message["content"]["name"]), flush=True)
        if message["msg_type"] == "execute_reply":
            break
    await ask("/hub/api/users/ann/server", "DELETE")
    await asked("/hub/api/users/ann", lambda user: not user["servers"])
    print("over")


with open(directory / "hub.log", "w") as log:
    hub = subprocess.Popen(["/usr/bin/python3", "-m", "jupyterhub", "--config", directory / "hub_config.py"], cwd=directory, stdout=log, stderr=log)
try:
    asyncio.run(play())
finally:
    hub.terminate()
    hub.wait()
    sys.stderr.write((directory / "hub.log").read_text())
