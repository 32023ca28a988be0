package run

import (
	"cmp"
	"encoding/json"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

func newRegister(to *cli.Ensemble) *cobra.Command {
	r := registerCommand{joinCommand: joinCommand{jobCommand: jobCommand{to: to, start: startJob}, layout: cli.GroupLayout()}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "register [flags] NAME [-- CMD [ARG]...]",
		Short:                 "Register an instance of a service, with or without a command",
		Long: `Is zkr join with the znode ROOT/NAME/ID, whose data are an instance of the service NAME
as JSON. zkr services, Go programs (package discovery) and Curator's x-discovery find it
then. All that zkr join says about signals, lost sessions, --wait and --json holds here:
SIGTERM first withdraws the instance, and then reaches CMD.`,
		Example: `  zkr register billing --port 8080 -- ./billing --port 8080
  zkr register billing --address 10.0.0.7 --ssl-port 8443 --payload '{"@class":"com.acme.Details","zone":"b"}'`,
		Args: r.parse,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context(), r.to.ProcessOf(cmd)) },
	}
	r.addFlags(cmd)
	return cmd
}

// registerCommand joins the group of a service's instances.
type registerCommand struct {
	joinCommand
	root, payload, uri string
	instance           discovery.Instance[json.RawMessage]
}

func (r *registerCommand) addFlags(cmd *cobra.Command) {
	r.joinCommand.addFlags(cmd)
	flags := cmd.Flags()
	cli.ServicesFlag(cmd, &r.root)
	flags.StringVar(&r.id, "id", "", "the id of the instance (default: ADDRESS:PORT)")
	flags.StringVar(&r.instance.Address, "address", "", "the address of the instance (default: the name of this host)")
	flags.IntVar(&r.instance.Port, "port", 0, "its port (default: none)")
	flags.IntVar(&r.instance.SSLPort, "ssl-port", 0, "its port for TLS (default: none)")
	flags.StringVar(&r.payload, "payload", "", "its payload as JSON; an object for Java has an \"@class\" (default: null)")
	flags.StringVar(&r.uri, "uri", "", "its URI, such as {scheme}://{address}:{port}/v2 (default: none)")
}

func (r *registerCommand) parse(cmd *cobra.Command, args []string) error {
	name, command, err := r.split(cmd, args, "NAME")
	if err != nil {
		return err
	}
	i := &r.instance
	if i.Address == "" {
		if i.Address, err = os.Hostname(); err != nil {
			return cli.Usage("--address: %w", err)
		}
	}
	if port := cmp.Or(i.Port, i.SSLPort); r.id == "" && port != 0 {
		r.id = net.JoinHostPort(i.Address, strconv.Itoa(port))
	}
	switch {
	case name == "" || strings.Contains(name, "/"):
		return cli.Usage("NAME %q: want a name without a slash", name)
	case r.id == "":
		return cli.Usage("want --port, --ssl-port or --id")
	case strings.Contains(r.id, "/"):
		return cli.Usage("--id %q: want a name without a slash", r.id)
	case min(i.Port, i.SSLPort) < 0 || max(i.Port, i.SSLPort) > 65535:
		return cli.Usage("--port %d, --ssl-port %d: must be from 1 to 65535", i.Port, i.SSLPort)
	case r.payload != "" && !json.Valid([]byte(r.payload)):
		return cli.Usage("--payload %q: want JSON", r.payload)
	}
	if err := framework.ValidatePath(r.root); err != nil {
		return cli.Usage("--root: %w", err)
	}
	if r.uri != "" {
		if i.URISpec, err = discovery.ParseURISpec(r.uri); err != nil {
			return cli.Usage("--uri: %w", err)
		}
	}
	i.Name, i.ID, i.Type, i.Registered = name, r.id, discovery.Dynamic, time.Now()
	if r.payload != "" {
		i.Raw = json.RawMessage(r.payload)
	}
	data, err := discovery.JSON[json.RawMessage]("").Encode(*i)
	if err != nil {
		return cli.Usage("%w", err)
	}
	r.group, r.data = cli.ChildPath(r.root, name), string(data)
	return r.check([]string{cli.ChildPath(r.group, r.id)}, command)
}
