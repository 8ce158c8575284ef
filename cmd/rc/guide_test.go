package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// skillHead is what stands before the guide in the skill, for programs that
// choose what to read by it.
const skillHead = `---
name: leasing-a-gpu
description: Lease a GPU, board or box exclusively with the rc command line and run work on it. Use when work needs a GPU or other shared device of an rc cluster - claiming one, queueing with a deadline, reading a device's usage sheet, following a job, working inside a hold, telling a failed program from a failed host, and giving everything back.
---

`

// TestTheSkillIsTheGuideOfThisBinary fails when a verb, a flag or an exit code
// has changed and the skill has not; go test ./cmd/rc -run Skill -update writes
// it.
func TestTheSkillIsTheGuideOfThisBinary(t *testing.T) {
	path := filepath.Join("..", "..", "skills", "leasing-a-gpu", "SKILL.md")
	text, err := exec.Command("rc", "help", "agents").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := skillHead + string(text)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Fatalf("%s is not what rc help agents prints; write it with -update", path)
	}
}

var (
	fenced  = regexp.MustCompile("(?ms)^```\n(.*?)^```")
	command = regexp.MustCompile(`(?m)^(?:\w+=\$\()?(rc .*?)\)?$`)
	spans   = regexp.MustCompile("`rc ([a-z]+)")
)

// shellWords splits what the guide shows, which has no more to it than single
// and double quotes.
func shellWords(line string) []string {
	var words []string
	for _, m := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		words = append(words, m[1]+m[2]+m[3])
	}
	return words
}

func TestEveryCommandOfTheGuideIsOneOfRc(t *testing.T) {
	model := grammar(t).Model
	text, err := guide(model)
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string]bool{}
	for _, verb := range model.Children {
		verbs[verb.Name] = true
	}
	n := 0
	for _, block := range fenced.FindAllStringSubmatch(text, -1) {
		for _, line := range command.FindAllStringSubmatch(block[1], -1) {
			n++
			if _, err := grammar(t).Parse(shellWords(line[1])[1:]); err != nil {
				t.Errorf("%q: %v", line[1], err)
			}
		}
	}
	if n < 15 {
		t.Errorf("only %d commands found", n)
	}
	for _, span := range spans.FindAllStringSubmatch(text, -1) {
		if !verbs[span[1]] {
			t.Errorf("there is no verb %s", span[1])
		}
	}
}

func TestTheGuideNamesEveryExitCodeOfRc(t *testing.T) {
	text, err := guide(grammar(t).Model)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range exitCodes {
		if !strings.Contains(text, "| "+e.meaning+" |") {
			t.Errorf("code %d is missing", e.code)
		}
	}
}
