# SPDX-License-Identifier: Apache-2.0
"""A client whose child inherits its connection, and uses the connection after the client is dead.

heir.py SOCKET UUID: opens a session with a lease of 100 MiB, forks, and says "PARENT
CHILD"; the parent waits to be killed. For every line on stdin the child then requests 100 MiB
on the connection, and prints the status of the reply, or the error of the connection."""
import mmap
import os
import socket
import struct
import sys

HEADER = struct.Struct("<IHHIIQ")


def send(conn, kind, body, number):
    conn.send(HEADER.pack(0x42524147, 1, kind, HEADER.size + len(body), 0, number) + body)


def ask(conn, kind, body, number):
    send(conn, kind, body, number)
    reply = conn.recv(4096)
    return HEADER.unpack(reply[: HEADER.size])[4] if reply else None


def hello(conn):
    """Opens a session and maps its lease page, as every client must: the daemon takes a process
    without the mapping for another program that has replaced the client. The child does not
    inherit the mapping."""
    body = struct.pack("<II16sQIIIIIIQ", 1, 0, b"", 2**64 - 1, 0, 0, 0, 0, 0, 0, 2**64 - 1)
    send(conn, 1, body, 1)
    reply, fds, _, _ = socket.recv_fds(conn, 4096, 1)
    assert HEADER.unpack(reply[: HEADER.size])[4] == 0
    page = mmap.mmap(fds[0], 0, mmap.MAP_SHARED)
    page.madvise(mmap.MADV_DONTFORK)
    os.close(fds[0])
    return page


conn = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
conn.connect(sys.argv[1])
alloc = struct.pack("<IIQII", 0, 1, 100 << 20, 0, 0)
page = hello(conn)
assert ask(conn, 4, bytes.fromhex(sys.argv[2]), 2) == 0
assert ask(conn, 5, alloc, 3) == 0
print("ready", flush=True)
child = os.fork()
if child:
    print(os.getpid(), child, flush=True)
    os.waitpid(child, 0)
    sys.exit()
for number, line in enumerate(sys.stdin, start=4):
    try:
        print(ask(conn, 5, alloc, number), flush=True)
    except OSError as err:
        print(err.strerror, flush=True)
