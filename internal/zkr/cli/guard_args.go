package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// The flags by which a guardian reaches an ensemble: its address, TLS and SASL.
// Credentials of --auth are not among them: a close needs none.
func (e *Ensemble) addReach(flags *pflag.FlagSet) {
	flags.StringVar(&e.Servers, "servers", e.Servers, "addresses of the ensemble, host:port,host:port")
	e.sasl.add(flags)
	e.tls.add(flags)
}

// GuardArgs returns the arguments by which a child of this zkr reaches the
// ensemble as this zkr does, from another directory. It fails if that would
// need a file that can be read only once.
func (e *Ensemble) GuardArgs() (args []string, err error) {
	give := func(flag, value string) {
		if value != "" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	for _, f := range []struct{ flag, name string }{
		{"tls-ca", e.tls.ca},
		{"tls-cert", e.tls.cert},
		{"tls-key", e.tls.key},
		{"sasl-password-file", e.sasl.passwordFile},
		{"sasl-keytab", e.sasl.keytab},
		{"sasl-ccache", strings.TrimPrefix(e.sasl.ccache, "FILE:")},
	} {
		name, err := lasting(f.name)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", f.flag, err)
		}
		give(f.flag, name)
	}
	give("servers", e.Servers)
	give("tls-server-name", e.tls.hostname)
	give("sasl", e.sasl.mechanism)
	give("sasl-user", e.sasl.user)
	give("sasl-server-principal", e.sasl.server)
	if e.tls.on {
		args = append(args, "--tls")
	}
	return args, nil
}

// lasting returns the absolute path of a file that can be read again. An empty
// name is none.
func lasting(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: is no regular file", name)
	}
	if err != nil {
		return "", err
	}
	return filepath.Abs(name)
}

// GuardVariables returns the environment without the variables that a child
// with those arguments must not have: they would be read, or name files that
// are not there.
func GuardVariables(environ []string) []string {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&Ensemble{}).addFlags(flags)
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) (drop bool) {
		name, _, _ := strings.Cut(variable, "=")
		flags.VisitAll(func(f *pflag.Flag) { drop = drop || name == VariableOf(f.Name) })
		return drop
	})
}

// Several are the ensembles of a subcommand that serves more than one. Each
// --servers begins another one, to which the flags behind it belong. Flags
// before the first are for all.
type Several struct {
	of    *Ensemble
	given []struct{ flag, value string } // in their order
}

// AddSeveral adds the flags to a subcommand, in place of the global ones.
func (e *Ensemble) AddSeveral(flags *pflag.FlagSet) *Several {
	s := &Several{of: e}
	sample := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&Ensemble{Servers: "127.0.0.1:2181"}).addReach(sample)
	sample.VisitAll(func(f *pflag.Flag) {
		usage := f.Usage
		if f.Name == "servers" {
			usage += "; may be repeated: the flags of TLS and SASL behind it are its own"
		}
		added := flags.VarPF(&severalValue{s, f}, f.Name, "", usage)
		added.NoOptDefVal, added.DefValue = f.NoOptDefVal, f.DefValue
	})
	return s
}

// severalValue is the value of one flag.
type severalValue struct {
	several *Several
	flag    *pflag.Flag
}

func (v *severalValue) Set(value string) error {
	if err := v.flag.Value.Set(value); err != nil {
		return err
	}
	v.several.given = append(v.several.given, struct{ flag, value string }{v.flag.Name, value})
	return nil
}

func (v *severalValue) String() string {
	if v.flag == nil { // pflag asks a zero one
		return ""
	}
	return v.flag.DefValue
}

func (v *severalValue) Type() string { return v.flag.Value.Type() }

// Ensembles returns them. Values that were not given come from the environment.
func (s *Several) Ensembles() (all []*Ensemble, err error) {
	first := slices.IndexFunc(s.given, func(g struct{ flag, value string }) bool { return g.flag == "servers" })
	if first < 0 {
		first = len(s.given)
	}
	begin := func() (*pflag.FlagSet, error) {
		e := &Ensemble{SessionTimeout: s.of.SessionTimeout, Servers: s.of.Servers, kerberos: s.of.kerberos, Dial: s.of.Dial}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		e.addReach(flags)                   // which sets the defaults
		e.sasl, e.tls = s.of.sasl, s.of.tls // from the environment
		all = append(all, e)
		for _, g := range s.given[:first] {
			if err := flags.Set(g.flag, g.value); err != nil {
				return nil, Usage("--%s: %w", g.flag, err)
			}
		}
		return flags, nil
	}
	var flags *pflag.FlagSet
	for _, g := range s.given[first:] {
		if g.flag == "servers" {
			if flags, err = begin(); err != nil {
				return nil, err
			}
		}
		if err := flags.Set(g.flag, g.value); err != nil {
			return nil, Usage("--%s: %w", g.flag, err)
		}
	}
	if len(all) == 0 {
		_, err = begin()
	}
	return all, err
}
