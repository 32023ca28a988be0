package main

import (
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// server is what peers connect to: one process, or the members of an ensemble.
type server struct {
	address string
	pids    []int
	zxid    func() (int64, error) // the number of its last transaction; nil: unknown
}

// usage is what a server has used since it was started. What is unknown is not
// a number.
type usage struct {
	cpu          float64 // microseconds of a processor
	transactions float64
}

func (s *server) usage() (usage, error) {
	u := usage{transactions: math.NaN()}
	for _, pid := range s.pids {
		u.cpu += cpuTime(pid)
	}
	if s.zxid == nil {
		return u, nil
	}
	zxid, err := s.zxid()
	u.transactions = float64(zxid)
	return u, err
}

// cpuTime returns the microseconds of a processor that a process has used, with
// a resolution of 10,000, or not a number where the system does not report it.
func cpuTime(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return math.NaN()
	}
	return parseStat(string(text))
}

// parseStat adds up the fields utime and stime of /proc/PID/stat. Its second
// field, the name of the program, may have spaces and parentheses in it.
func parseStat(text string) float64 {
	const ticksPerSecond = 100
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return math.NaN()
	}
	ticks := 0.0
	for _, field := range fields[11:13] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return math.NaN()
		}
		ticks += n
	}
	return ticks * 1e6 / ticksPerSecond
}

// leader returns the address of the ensemble's leader, and its process id.
func (s *site) leader() (address string, pid int, err error) {
	i := s.zk.Leader()
	if i < 0 {
		return "", 0, fmt.Errorf("no member leads")
	}
	return strings.Split(s.zk.Servers(), ",")[i], s.zk.PID(i), nil
}

// zxid returns the number of the last transaction of the ensemble.
func (s *site) zxid() (int64, error) {
	text, err := s.askLeader("srvr", "Zxid: ")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 0, 64)
}

// askLeader sends a four-letter word to the leader, and returns the rest of the
// line of its answer that begins with key.
func (s *site) askLeader(word, key string) (string, error) {
	address, _, err := s.leader()
	if err != nil {
		return "", err
	}
	return askServer(address, word, key)
}

// askServer is askLeader for any server.
func askServer(address, word, key string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(answer)) {
		if rest, found := strings.CutPrefix(line, key); found {
			return strings.TrimSpace(rest), nil
		}
	}
	return "", fmt.Errorf("%s: no %q in %q", word, key, answer)
}
