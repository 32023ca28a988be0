package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

func newJoin(to *cli.Ensemble) *cobra.Command {
	j := joinCommand{jobCommand: jobCommand{to: to, start: startJob}, layout: cli.GroupLayout()}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "join [flags] GROUP --id ID [-- CMD [ARG]...]",
		Short:                 "Be a member of a group, with or without a command",
		Long: `Creates the ephemeral znode GROUP/ID, and runs CMD once it stands. zkr members, Go
programs (package presence) and Curator's GroupMember see this member then. --layout is
for groups of Curator's PersistentNode with protection (protected), and of Kazoo's Party
(party) and ShallowParty (shallow-party). There an ID may be in the group several times,
and in Kazoo's layouts it is the znode's data. CMD inherits stdin. When it has ended,
zkr removes the znode and exits with CMD's exit code.

SIGTERM and SIGINT first remove the znode, so that nobody chooses this member any more,
and then reach CMD. A second such signal does not wait for that, and neither does zkr
for more than 5s. Other signals reach CMD at once: many programs read their
configuration again at SIGHUP. Control-C at a terminal reaches CMD itself. zkr then
waits until CMD has ended, however long that takes.

CMD goes on whatever happens to the znode. If there is no connection, others see it
until the session has expired. Then zkr makes it again in the next session. A znode
that somebody has deleted is made again within a second, and after longer pauses if it
is deleted again and again. A name that another session has is waited for: zkr never
removes its znode. --wait limits that before CMD is started. zkr says on stderr when
the znode has not stood for a second, and when it stands again. An error that only you
can mend, such as a missing right, ends a zkr whose znode has not stood yet.

Without CMD zkr prints the path of the znode when it stands, and removes it at SIGTERM,
SIGINT, SIGQUIT or SIGHUP, and exits with 0. --json prints an object when it stands, and
for each change.

If zkr is killed, its guardian (see zkr help lock) kills CMD's process group and removes
the znode; without one, CMD is killed on Linux, and the znode goes when the session
expires. If CMD runs zkr for the same GROUP and ID, that one would wait forever: it exits
with 2, unless --layout lets both stand.

It costs two requests, in each session, and one per session timeout. If you have
credentials, give --acl: otherwise anybody can delete the znode.`,
		Example: `  zkr join /services/billing --id "$(hostname)" --data 10.0.0.7:8080 -- ./billing --port 8080
  zkr join /services/billing --id standby --wait 10s     # until it gets a signal`,
		Args: j.parse,
		RunE: func(cmd *cobra.Command, _ []string) error { return j.run(cmd.Context(), j.to.ProcessOf(cmd)) },
	}
	j.addFlags(cmd)
	j.flagsOfMember(cmd)
	return cmd
}

// joinCommand keeps a znode in place, and runs a command meanwhile.
type joinCommand struct {
	jobCommand
	layout          cli.EnumFlag[presence.Layout]
	group, id, data string
	wait            time.Duration
	json            bool
}

func (j *joinCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&j.wait, "wait", 0, "how long to wait for a connection and the name at most (default: no limit)")
	j.jobCommand.addFlags(cmd)
	flags.BoolVar(&j.json, "json", false, "without CMD: print time, znode, state, session and error as one JSON object a line")
}

func (j *joinCommand) flagsOfMember(cmd *cobra.Command) {
	cmd.Flags().StringVar(&j.id, "id", "", "the name of the znode: who this is")
	cmd.Flags().StringVar(&j.data, "data", "", "the data of the znode: what others need to know, such as an address")
	cmd.Flags().Var(&j.layout, "layout", "layout of the znode: <id>, Curator's with protection, or those of Kazoo")
}

func (j *joinCommand) parse(cmd *cobra.Command, args []string) error {
	group, command, err := j.split(cmd, args, "GROUP")
	switch {
	case err != nil:
		return err
	case j.id == "" || strings.Contains(j.id, "/"):
		return cli.Usage("--id %q: want a name without a slash", j.id)
	}
	if err := framework.ValidatePath(group); err != nil {
		return cli.Usage("%w", err)
	}
	znode := group // its name has a part that is not known yet
	switch j.layout.Value() {
	case presence.LayoutMember:
		znode = cli.ChildPath(group, j.id)
	case presence.LayoutParty, presence.LayoutShallowParty:
		if j.data != "" {
			return cli.Usage("--data: with --layout %s the data of the znode are the id", &j.layout)
		}
	}
	j.group = group
	return j.check([]string{znode}, command)
}

// split returns the one argument before --, and the command behind it.
func (j *joinCommand) split(cmd *cobra.Command, args []string, what string) (first string, command []string, err error) {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args, command = args[:dash], args[dash:]
		switch {
		case len(command) == 0:
			return "", nil, cli.Usage("no command after --")
		case j.json:
			return "", nil, cli.Usage("--json: only without a command, which gets stdout")
		}
	}
	switch {
	case len(args) != 1:
		return "", nil, cli.Usage("want one %s, got %d", what, len(args))
	case cmd.Flags().Changed("wait") && j.wait <= 0:
		return "", nil, cli.Usage("--wait %v: must be more than 0", j.wait)
	}
	return args[0], command, nil
}

// run makes the znode, runs the command or waits, and removes the znode.
func (j *joinCommand) run(ctx context.Context, in *cli.Process) error {
	j.in = in
	wait, cancel := cli.Waiting(ctx, j.wait)
	defer cancel()
	client, err := j.connectOrEnd(wait)
	if client != nil {
		defer func() { // it removes the znode
			if err := client.Close(); err != nil {
				cli.Say(in.Stderr, time.Second, j.left(err))
			}
		}()
	}
	if err != nil {
		return err
	}
	node, err := j.node(client)
	if err != nil {
		return cli.Usage("%w", err)
	}
	j.paths = []string{node.Path()}
	defer cli.SayDisconnects(client, in.Stderr, escape.Text(j.path())+": the session may expire")()
	defer j.sayChanges(node)()
	if err := in.Signals.EndWhile(wait, func(ctx context.Context) error { return j.stand(ctx, client, node) }); err != nil {
		return err
	}
	if len(j.command) == 0 {
		return j.hold(node)
	}
	return j.work(node)
}

func (j *joinCommand) node(c *framework.Client) (*presence.Node, error) {
	group, err := presence.NewGroup(c, j.group, presence.WithLayout(j.layout.Value()))
	if err != nil {
		return nil, err
	}
	var data []byte
	if j.data != "" {
		data = []byte(j.data)
	}
	return group.Node(j.id, data)
}

// stand makes the znode, and returns when it stands.
func (j *joinCommand) stand(ctx context.Context, c *framework.Client, node *presence.Node) error {
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	defer node.Listen(func(s presence.Status) {
		if isFinal(s.Err) {
			refuse(s.Err)
		}
	})()
	if err := node.Start(); err != nil {
		return cli.Failed(err)
	}
	switch err := node.Standing(ctx); {
	case err == nil:
		return nil
	case isFinal(context.Cause(ctx)):
		return cli.Failed(context.Cause(ctx))
	case errors.Is(err, context.DeadlineExceeded):
		return cli.EndOfWait(c, err)
	default:
		return cli.Failed(err)
	}
}

// isFinal reports whether an error of the first create is one that no wait
// would mend.
func isFinal(err error) bool {
	for _, final := range []error{zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrNoChildrenForEphemerals, framework.ErrTooLarge} {
		if errors.Is(err, final) {
			return true
		}
	}
	return missing.Chroot(err)
}

// removalTime is for how long the command does not hear of the signal that is
// to end it.
const removalTime = 5 * time.Second

// work runs the command, and returns its exit.
func (j *joinCommand) work(node *presence.Node) error {
	env := append(os.Environ(), heldVariable+"="+os.Getenv(heldVariable)+"\n"+j.held(node.Status().Session))
	job, err := j.startGuarded(j.program, j.command, env)
	if err != nil {
		return cannotRun(err)
	}
	stderr := cli.StartPrinter(j.in.Stderr)
	defer stderr.Finish(time.Second)
	pass := func(sig os.Signal) {
		if err := job.signal(sig); err != nil {
			stderr.Offer(j.cannotEnd(err))
		}
	}
	var removed chan error // nil: nobody has asked for the removal
	var first os.Signal    // what the command gets after it
	for {
		select {
		case <-job.ended:
			return job.exit()
		case sig := <-j.in.Signals.Arrived:
			leaves := sig == syscall.SIGTERM || sig == os.Interrupt
			switch {
			case leaves && removed == nil:
				first, removed = sig, make(chan error, 1)
				go func() { removed <- j.remove(node) }() // ends after removalTime
				continue
			case leaves && first != nil:
				pass(first)
				first = nil
			}
			pass(sig)
		case err := <-removed:
			if err != nil {
				stderr.Offer(j.left(err))
			}
			if first != nil {
				pass(first)
				first = nil
			}
		case <-job.stopped:
			stderr.Offer(fmt.Sprintf("zkr: %s: cannot stop %s while its znode stands\n", j.path(), j.name()))
		}
	}
}

func (j *joinCommand) remove(node *presence.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), removalTime)
	defer cancel()
	return node.Close(ctx)
}

// left is what zkr says about a znode that could not be removed.
func (j *joinCommand) left(err error) string {
	return fmt.Sprintf("zkr: %s: %s (it ends with the session)\n", escape.Text(j.path()), cli.Plain(err))
}

// hold prints what there is to print, until a signal arrives.
func (j *joinCommand) hold(node *presence.Node) error {
	p := cli.StartPrinter(j.in.Stdout)
	defer close(p.Lines)
	text, changes := escape.Text(j.path())+"\n", make(chan presence.Status)
	if j.json {
		text = ""
		over := make(chan struct{})
		defer close(over)
		defer node.Listen(func(s presence.Status) {
			select {
			case changes <- s:
			case <-over:
			}
		})()
	}
	for {
		from, to := changes, p.Lines
		if text == "" {
			to = nil
		} else {
			from = nil
		}
		select {
		case s := <-from:
			var err error
			if text, err = j.line(s); err != nil {
				return cli.Failed(err)
			}
		case to <- text:
			text = ""
		case err := <-p.Results:
			if p.Note(err); err != nil {
				return cli.Failed(fmt.Errorf("%s: cannot print, so the znode is removed: %w", j.path(), err))
			}
		case sig := <-j.in.Signals.Arrived:
			if ends, err := j.endedBy(sig, p); ends {
				return err
			}
		}
	}
}

// joined is what --json prints. The names are for programs and stay as they
// are.
type joined struct {
	Time    time.Time `json:"time"`
	Znode   string    `json:"znode"`
	State   string    `json:"state"`
	Session string    `json:"session,omitempty"`
	Error   string    `json:"error,omitempty"`
}

func (j *joinCommand) line(s presence.Status) (string, error) {
	line := joined{Time: s.Since.UTC(), Znode: j.path(), State: strings.ToLower(s.State.String())}
	if s.Session != 0 {
		line.Session = wire.SessionText(s.Session)
	}
	if s.Err != nil {
		line.Error = s.Err.Error()
	}
	text, err := json.Marshal(line)
	return escape.JSON(string(text)) + "\n", err
}

// sayChanges says on stderr why the znode has not stood for a while, and when
// it stands again, until stop is called.
func (j *joinCommand) sayChanges(node *presence.Node) (stop func()) {
	over, said := make(chan struct{}), ""
	say := func(text string) {
		said = text
		fmt.Fprintf(j.in.Stderr, "zkr: %s: %s\n", escape.Text(j.path()), text)
	}
	unlisten := node.Listen(func(s presence.Status) { // it may wait for a reader of stderr: nobody waits for it
		if s.State == presence.Standing && said != "" {
			say("stands again")
			said = ""
		}
		if why(s) == "" || why(node.Status()) == "" {
			return
		}
		select {
		case <-time.After(cli.AWhile):
		case <-over:
			return
		}
		if now := why(node.Status()); now != "" && now != said {
			say(now)
		}
	})
	return func() {
		unlisten()
		close(over)
	}
}

// why says why a znode does not stand. It is empty if it does, and if the
// reason is known: there is no connection.
func why(s presence.Status) string {
	switch {
	case s.State == presence.Taken && s.Session == 0:
		return "there is a persistent znode"
	case s.State == presence.Taken:
		return fmt.Sprintf("session %s has the name: %s", wire.SessionText(s.Session), escape.Data(string(s.Data)))
	case s.State == presence.Pending && s.Err != nil:
		return cli.Plain(s.Err)
	}
	return ""
}
