"""A process that contends for locks on request, with the recipes of Kazoo.

A line on standard input is a command to one of its members, by number: "3 open kazoo-lock /path id", "3 acquire",
"3 release", "3 participants". A line on standard output answers one command. Each member has its own client and thread.
The process ends with its input.
"""
import os
import queue
import sys
import threading
import traceback

from kazoo.client import KazooClient
from kazoo.security import make_acl


class Locked:
    """A Lock, ReadLock, WriteLock or Semaphore."""

    def __init__(self, recipe, participants):
        self.recipe = recipe
        self.participants = participants

    def acquire(self):
        if not self.recipe.acquire():
            raise RuntimeError("not acquired")

    def release(self):
        if not self.recipe.release():
            raise RuntimeError("not released")


class Elected:
    """An Election, which leads for as long as its function runs."""

    def __init__(self, election):
        self.election = election
        self.participants = election.contenders

    def acquire(self):
        self.leads = threading.Event()
        self.done = threading.Event()
        self.term = threading.Thread(target=self.election.run, args=(self.lead,), daemon=True)
        self.term.start()
        self.leads.wait()

    def lead(self):
        self.leads.set()
        self.done.wait()

    def release(self):
        self.done.set()
        self.term.join()


class Joined:
    """A Party or ShallowParty."""

    def __init__(self, party):
        self.acquire = party.join
        self.release = party.leave
        self.participants = lambda: list(party)


class Counted:
    """A Counter: acquiring adds 1, releasing takes 1 off, and there are as many participants as its value."""

    def __init__(self, counter):
        self.counter = counter
        self.participants = lambda: range(counter.value)

    def acquire(self):
        self.counter += 1

    def release(self):
        self.counter -= 1


class Barred:
    """A Barrier: acquiring sets it, releasing removes it, and who looks for participants waits for that."""

    def __init__(self, barrier):
        self.acquire = barrier.create
        self.release = barrier.remove
        self.wait = barrier.wait

    def participants(self):
        if not self.wait():
            raise RuntimeError("not removed")
        return []


class Double:
    """A DoubleBarrier. Each round has another one."""

    def __init__(self, client, path, n, name):
        self.make = lambda: client.DoubleBarrier(path, n, name)
        self.participants = lambda: client.get_children(path)

    def acquire(self):
        self.barrier = self.make()
        self.barrier.enter()
        if not self.barrier.participating:
            raise RuntimeError("not entered")

    def release(self):
        self.barrier.leave()


def make(client, kind, path, name):
    if kind in ("kazoo-counter", "kazoo-curator-counter"):
        return Counted(client.Counter(path, support_curator=kind == "kazoo-curator-counter"))
    if kind == "barrier":
        return Barred(client.Barrier(path))
    if kind.startswith("double:"):
        return Double(client, path, int(kind.split(":")[1]), name)
    if kind in ("kazoo-party", "kazoo-shallow-party"):
        return Joined({"kazoo-party": client.Party, "kazoo-shallow-party": client.ShallowParty}[kind](path, name))
    if kind == "kazoo-election":
        return Elected(client.Election(path, name))
    if kind.startswith("kazoo-semaphore:"):
        semaphore = client.Semaphore(path, name, max_leases=int(kind.split(":")[1]))
        return Locked(semaphore, semaphore.lease_holders)
    lock = {"kazoo-lock": client.Lock, "kazoo-read": client.ReadLock, "kazoo-write": client.WriteLock}[kind](path, name)
    return Locked(lock, lock.contenders)


def serve(number, commands, servers, session):
    client = recipe = None
    while True:
        words = commands.get()
        try:
            if words[0] == "open":
                if client is None:  # or else another recipe of the same session
                    client = KazooClient(hosts=servers, timeout=session, **identity())
                    client.start(timeout=30)
                recipe = make(client, *words[1:])
                answer = "opened"
            elif words[0] == "acquire":
                recipe.acquire()
                answer = "acquired"
            elif words[0] == "release":
                recipe.release()
                answer = "released"
            elif words[0] == "participants":
                answer = "participants %d" % len(recipe.participants())
            else:
                answer = "failed what is %s?" % words[0]
        except Exception as e:
            traceback.print_exc()
            answer = "failed %r" % e
        say("%s %s" % (number, answer.replace("\n", " ")))


def identity():
    """With a user in the environment the client authenticates, and all its znodes are for that user alone.

    Without a password that is by Kerberos."""
    user, password = os.environ.get("ZKR_NEIGHBOR_USER"), os.environ.get("ZKR_NEIGHBOR_PASSWORD")
    if user is None:
        return {}
    digest = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    return {
        "sasl_options": digest if password else {"mechanism": "GSSAPI", "service": "zookeeper"},
        "default_acl": [make_acl("sasl", user, all=True)],
    }


lock = threading.Lock()


def say(line):
    with lock:
        print(line, flush=True)


def main():
    servers, session = sys.argv[1], float(sys.argv[2])
    members = {}
    say("ready")
    for line in sys.stdin:
        number, *words = line.split()
        if number not in members:
            members[number] = queue.Queue()
            threading.Thread(target=serve, args=(number, members[number], servers, session), daemon=True).start()
        members[number].put(words)
    os._exit(0)  # whatever its threads wait for


main()
