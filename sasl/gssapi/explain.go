package gssapi

import (
	"errors"
	"strings"

	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/krberror"
)

// explain says what an error of gokrb5 means, and whether it is a refusal. All
// that it has is text.
func explain(err error, cfg *config.Config) error {
	text := err.Error()
	cause := ""
	var of krberror.Krberror
	if errors.As(err, &of) {
		cause, text = of.RootCause, of.EText[len(of.EText)-1]
	}
	has := func(any ...string) bool {
		for _, one := range any {
			if strings.Contains(text, one) {
				return true
			}
		}
		return false
	}
	switch {
	case has("clock skew", "KRB_AP_ERR_SKEW", "KRB_AP_ERR_TKT_NYV", "KDC_ERR_NEVER_VALID"):
		// gokrb5 says that the password is wrong.
		return refused("the clocks of this machine and of the KDC differ by more than %v: %s", cfg.LibDefaults.Clockskew, text)
	case has("KDC_ERR_SVC_UNAVAILABLE", "KRB_ERR_GENERIC"):
		return errors.New(text)
	case cause == krberror.DecryptingError, has("KDC_ERR_PREAUTH_FAILED"):
		return refused("the password or the key in the keytab is wrong: %s", text)
	case cause == krberror.NetworkingError, cause == krberror.EncodingError:
		return errors.New(text)
	}
	return refused("%s", text)
}

// hasKDC returns an error if the configuration has no KDC for a realm.
func hasKDC(cfg *config.Config, realm string) error {
	if cfg.LibDefaults.DNSLookupKDC {
		return nil
	}
	for _, r := range cfg.Realms {
		if r.Realm == realm && len(r.KDC) > 0 {
			return nil
		}
	}
	return refused("the configuration of Kerberos has no KDC for realm %q", realm)
}
