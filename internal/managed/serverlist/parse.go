package serverlist

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// Parse splits "h1:2181,h2:2181/chroot" into addresses, each with a
// port, and the chroot, which is empty or an absolute path other than the root.
// The chroot cannot have a comma: it would be taken for a part of
// "h1:2181/chroot,h2:2181/chroot", and be another directory than that of
// clients that write the list in the right form.
func Parse(servers string) (addrs []string, chroot string, err error) {
	list := servers
	if i := strings.IndexByte(servers, '/'); i >= 0 {
		list, chroot = servers[:i], servers[i:]
	}
	if strings.Contains(chroot, ",") {
		return nil, "", fmt.Errorf("servers %q: chroot %q: cannot have a comma: it is written once, behind the last server, as in %q",
			servers, chroot, withChrootLast(servers))
	}
	for _, field := range strings.Split(list, ",") {
		field = strings.TrimSpace(field)
		if field == "" {
			continue
		}
		addr, err := parseAddress(field)
		if err != nil {
			return nil, "", fmt.Errorf("servers %q: %w", servers, err)
		}
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return nil, "", fmt.Errorf("servers %q: no server in the list", servers)
	}
	if chroot = strings.TrimSpace(chroot); chroot == "/" {
		chroot = ""
	}
	if chroot != "" {
		if err := request.ValidatePath(chroot); err != nil {
			return nil, "", fmt.Errorf("servers %q: chroot: %w", servers, err)
		}
	}
	return addrs, chroot, nil
}

// withChrootLast returns a server list that has a chroot at several places in
// the right form, with the first of them.
func withChrootLast(servers string) string {
	var hosts []string
	chroot := ""
	for field := range strings.SplitSeq(servers, ",") {
		host, path, found := strings.Cut(strings.TrimSpace(field), "/")
		if host != "" {
			hosts = append(hosts, host)
		}
		if found && chroot == "" {
			chroot = "/" + path
		}
	}
	return strings.Join(hosts, ",") + chroot
}

func parseAddress(field string) (string, error) {
	host, port, err := net.SplitHostPort(field)
	if err != nil {
		host, port = field, strconv.Itoa(zk.DefaultPort)
		switch {
		case strings.HasPrefix(field, "[") && strings.HasSuffix(field, "]"):
			host = field[1 : len(field)-1]
		case strings.Contains(field, ":"):
			return "", fmt.Errorf("server %q: %w", field, err)
		}
	}
	if host == "" {
		return "", fmt.Errorf("server %q: %w", field, errors.New("no host name"))
	}
	if err := checkHost(host); err != nil {
		return "", fmt.Errorf("server %q: %w", field, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("server %q: port %q is not a number from 1 to 65535", field, port)
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// checkHost returns an error unless host is an IP address or can be a name.
func checkHost(host string) error {
	for _, r := range host { // the zone of an address included
		if strings.ContainsRune("[]@?#", r) || !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == utf8.RuneError {
			return fmt.Errorf("a host name cannot have %q", r)
		}
	}
	if strings.Contains(host, ":") {
		_, err := netip.ParseAddr(host)
		return err
	}
	return nil
}
