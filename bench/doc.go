// Command bench runs locks of several makers on the same work, one after the other and over again, and writes a table of how fast
// they are and a plot of the ratios. Those that need no build of ours: this module's Mutex, the wire client's own Lock, and the
// bare create, list and delete that a lock cannot do without, always; Apache Curator, Kazoo, etcd and Redis where they are
// installed (Debian: libcurator-recipes-java and a JDK, python3-kazoo, etcd-server, redis-server).
//
// It starts the servers itself, one of each, on free ports, with data in a directory that it removes: ZooKeeper standalone and
// etcd as their defaults are, Redis with its log on the disk at each write, so that all three keep what they have granted.
//
//	go run . -write ../docs            # all of it: about ten minutes on a quiet machine
//	go run . -parts peers -rounds 3    # the peers alone, to the terminal
//
// Absolute figures are those of a machine and its disk; compare ratios. Each is the median of the ratios of the rounds: in a
// round all run right after each other, so that what else the machine does meets all of them alike.
package main
