# Keeps copies of a tree with Kazoo's TreeCache. It answers lines of standard input as serveCopies in copies.go does. It has no
# leases. Memory is that of the process.
import gc
import logging
import os
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.recipe.cache import TreeCache, TreeEvent

logging.disable(logging.CRITICAL)
servers, root = sys.argv[1:]


class Copy:
    def __init__(self):
        self.client = KazooClient(hosts=servers, timeout=20, connection_retry={"max_tries": -1, "max_delay": 1})
        self.client.start(timeout=60)
        self.whole = threading.Event()
        self.reconnected = threading.Event()
        self.nodes = 0
        self.cache = TreeCache(self.client, root)
        self.cache.listen(self.listen)

    def listen(self, event):
        if event.event_type == TreeEvent.NODE_ADDED:
            self.nodes += 1
        elif event.event_type == TreeEvent.NODE_REMOVED:
            self.nodes -= 1
        elif event.event_type == TreeEvent.INITIALIZED:
            self.whole.set()
        elif event.event_type == TreeEvent.CONNECTION_RECONNECTED:
            self.reconnected.set()  # and the reads are asked for


def memory():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pause_until(done):
    while not done():
        time.sleep(0.01)


copies = []
print("ready", flush=True)
for line in sys.stdin:
    verb, znodes, clients = line.split()
    znodes, used = int(znodes), 0
    if verb == "sync":
        copies = [Copy() for _ in range(int(clients))]
        before = memory()
    began = time.monotonic()
    for copy in copies:
        if verb == "sync":
            copy.cache.start()
    for copy in copies:
        if verb == "sync":
            copy.whole.wait()
        elif verb == "again":
            copy.reconnected.wait()
            pause_until(lambda: copy.cache._outstanding_ops == 0)
        pause_until(lambda: copy.nodes >= znodes)
    took = time.monotonic() - began
    if verb == "sync":
        used = memory() - before
    print(took, used, flush=True)
for copy in copies:
    copy.client.stop()
    copy.client.close()
