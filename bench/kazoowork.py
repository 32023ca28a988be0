# Does the work with Kazoo's Lock ("lock") or Counter ("counter"), or acquires a lock and keeps it ("hold"). It answers each line
# "THREADS LOCKS SECONDS" of standard input with the number of cycles, how long they took, and the median and the longest of them,
# in seconds.
import logging
import sys
import threading
import time

from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)
servers, root, recipe, timeout = sys.argv[1:]
client = KazooClient(hosts=servers, timeout=float(timeout))
client.start(timeout=60)
print("ready", flush=True)


def cycle_of(path):
    if recipe == "counter":
        counter = client.Counter(path)
        return lambda: counter.__add__(1)
    lock = client.Lock(path)

    def turn():
        with lock:
            pass

    return turn


def work(cycle, until, cycles, me):
    mine = []
    now = time.monotonic()
    while not mine or now < until:
        cycle()
        began, now = now, time.monotonic()
        mine.append(now - began)
    cycles[me] = mine


for line in sys.stdin:
    if recipe == "hold":
        client.Lock(root).acquire()
        print("1 0 0 0", flush=True)
        continue
    threads, locks, seconds = line.split()
    threads, locks = int(threads), int(locks)
    cycles = [None] * threads
    began = time.monotonic()
    until = began + float(seconds)
    all_threads = [
        threading.Thread(target=work, args=(cycle_of("%s/%d" % (root, i % locks)), until, cycles, i)) for i in range(threads)
    ]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    took = time.monotonic() - began
    if None in cycles:
        print("a thread has failed", flush=True)
        sys.exit(1)
    times = sorted(sum(cycles, []))
    print(len(times), took, times[len(times) // 2], times[-1], flush=True)
client.stop()
client.close()
