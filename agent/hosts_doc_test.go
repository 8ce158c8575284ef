package agent

import (
	"strings"
	"testing"
	"time"
)

func TestTheHooksOfTheDocumentAreTaken(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "..", "docs", "hosts.md"), "\n## Hooks\n")
	_, rest, _ := strings.Cut(section, "```yaml\n")
	yaml, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/hosts.md shows no configuration under Hooks")
	}
	c, err := load(t, "controllers: [a:1]\n"+yaml)
	if err != nil {
		t.Fatal(err)
	}
	want := Hooks{OnAcquire: "/etc/rc/hooks/acquire", OnRelease: "/etc/rc/hooks/release", Timeout: 2 * time.Minute, Linger: defaultLinger}
	if got := c.Devices[0].Hooks; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
