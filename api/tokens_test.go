package api

import (
	"errors"
	"strings"
	"testing"
)

func TestTokensRefused(t *testing.T) {
	for text, says := range map[string]string{
		"":                                    "empty",
		"  ":                                  "empty",
		"secret":                              "entry 1 has no role",
		"secret:client,":                      "entry 2 has no role",
		"a:client,:worker":                    "entry 2 has an empty token",
		"a:client,secret:root":                "entry 2 has an unknown role",
		"secret:":                             "entry 1 has an unknown role",
		"secret:Client":                       "entry 1 has an unknown role",
		"a:client,secret:admin,secret:worker": "entries 2 and 3 have the same token",
		"sec ret:client":                      "entry 1 holds a blank",
	} {
		tokens, err := ParseTokens(text)
		if !errors.Is(err, ErrBadTokens) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: a token is shown in %v", text, err)
		}
		if _, ok := tokens.Identify("a"); ok {
			t.Errorf("%q: a refused list lets somebody in", text)
		}
	}
}

func TestTokensName(t *testing.T) {
	tokens, err := ParseTokens("one:client, two:worker,co:lon:admin,four:worker")
	if err != nil {
		t.Fatal(err)
	}
	for secret, want := range map[string]Identity{
		"one":    {RoleClient, "client:7692c3ad3540"},
		"two":    {RoleWorker, "worker:3fc4ccfe7458"},
		"co:lon": {RoleAdmin, "admin:d544d6095186"},
	} {
		if got, ok := tokens.Identify(secret); !ok || got != want {
			t.Errorf("%q is %+v, want %+v", secret, got, want)
		}
	}
	for _, secret := range []string{"", "on", "one ", "onee", "co", "co:lon:admin"} {
		if got, ok := tokens.Identify(secret); ok {
			t.Errorf("%q is taken for %+v", secret, got)
		}
	}
	workers := tokens.Workers()
	if len(workers) != 2 || string(workers[0].Secret) != "two" || workers[1].Name != "worker:04efaf080f5a" {
		t.Errorf("%+v", workers)
	}
}
