package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUseKeepsTheLinkAndTheModeOfTheFile(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "dotfiles.yaml"), filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("contexts:\n  lab:\n    token: s3cret\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	env := func(name string) string { return map[string]string{"RC_CONFIG": link}[name] }
	a := &app{stdout: io.Discard, stderr: io.Discard, env: env}
	if err := (&contextUseCmd{Context: "lab"}).Run(a); err != nil {
		t.Fatal(err)
	}
	at, err := os.Lstat(link)
	if err != nil || at.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is now %v, error %v", at.Mode(), err)
	}
	to, err := os.Stat(file)
	if err != nil || to.Mode().Perm() != 0o640 {
		t.Errorf("the file has mode %v, error %v", to.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
	if c := loadConfig("", env, io.Discard); c.context != "lab" || c.token != "s3cret" {
		t.Errorf("read back as %+v", c)
	}
}

// The token at the top of the file is for the cluster at the top of the file.
func TestATokenIsNotSentToAnotherContextsCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "controller: a:1\ntoken: of-a\ncontexts:\n  b:\n    controllers: [b:1]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) string { return map[string]string{"RC_CONFIG": path}[name] }
	if c := loadConfig("b", env, io.Discard); c.token != "" || strings.Join(c.controllers, ",") != "b:1" {
		t.Errorf("%+v", c)
	}
	if c := loadConfig("", env, io.Discard); c.token != "of-a" || strings.Join(c.controllers, ",") != "a:1" {
		t.Errorf("%+v", c)
	}
}

// The parser takes an address in a list inside of braces for a pair.
func TestAddressesAreReadInEveryFormThatYAMLHas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	env := func(name string) string { return map[string]string{"RC_CONFIG": path}[name] }
	for text, want := range map[string]string{
		"[a:1, http://b:2]":               "a:1,http://b:2",
		"a:1, b:2":                        "a:1,b:2",
		"\n    - a:1\n    - http://b:2\n": "a:1,http://b:2",
		"":                                "http://localhost:8080",
		"{a: {b: 1}}":                     "",
		"[{a: [1]}]":                      "",
		"[5]":                             "",
	} {
		forms := []string{"controllers: " + text + "\n", "contexts:\n  x:\n    controllers: " + text + "\ncurrent-context: x\n"}
		if !strings.Contains(text, "\n") && !strings.Contains(text, ", b") && text != "" {
			forms = append(forms, "contexts: {x: {token: t, controllers: "+text+"}}\ncurrent-context: x\n",
				"contexts:\n  x: {controllers: "+text+", token: t}\ncurrent-context: x\n")
		}
		for _, form := range forms {
			if err := os.WriteFile(path, []byte(form), 0o600); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			got := strings.Join(loadConfig("", env, &said).controllers, ",")
			switch {
			case want == "" && !strings.Contains(said.String(), "controllers is a list of addresses"):
				t.Errorf("%s: read as %s, said %q", form, got, said.String())
			case want != "" && (got != want || said.String() != ""):
				t.Errorf("%s: read as %s, want %s, said %q", form, got, want, said.String())
			}
		}
	}
}

// The file says which names there are; a shell would run what it completes.
func TestCompletionPutsNothingOnTheLineThatAShellWouldRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "contexts:\n  good: {}\n  \"$(touch x)\": {}\n  \"a b\": {}\n  \"a;b\": {}\n  \"`id`\": {}\n  \"'\": {}\n  \"a\\u001bb\": {}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &app{stdout: &out, env: func(name string) string { return map[string]string{"RC_CONFIG": path}[name] }, now: clock}
	if code := a.complete(grammar(t).Model.Node, []string{"context", "use", ""}); code != exitOK || out.String() != "good\t\n" {
		t.Fatalf("code %d, offered %q", code, out.String())
	}
}
