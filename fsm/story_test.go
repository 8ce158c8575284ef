package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A story is a text file in testdata/stories that an operator can read: what
// was asked of the controllers, and under each step what was answered, what
// happened and what is different since. It is played against a real machine:
//
//	# A heading says what the story is about and which rule it shows.
//
//	submit ann box:gpu0 -- train
//	----
//	answer  accepted: j-1 is assigned
//	event   ...
//	state   box:gpu0 ready -> busy, lease l-1, held by ann for j-1
//
// Several command lines above one ---- travel in one entry. Lines that begin
// with # between steps are the narrator's. The verbs are in story_verbs_test.go,
// and `go test ./fsm -run TestStories -update` writes what is under the lines
// anew; read the difference as an operator would before it is kept.

const storyFolder = "testdata/stories"

// TestStoriesAreTold plays every story: each step gives the text it gave, the
// laws hold after every entry, and the log gives the same digests on a second
// machine and from a snapshot in the middle.
func TestStoriesAreTold(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(storyFolder, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 60 {
		t.Errorf("there are %d stories; some are gone", len(paths))
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { tellFile(t, path) })
	}
}

func tellFile(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := readStory(path, string(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.tell()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != string(text) {
		t.Error(firstDifference(path, string(text), got))
	}
}

// firstDifference shows where two texts part.
func firstDifference(path, want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("%s:%d: the story goes another way\n  was  %s\n  now  %s", path, i+1, a, b)
		}
	}
	return path + ": the same lines with other ends"
}

// storyPart is a block of comment, or a step.
type storyPart struct {
	comment  []string
	line     int // of the first command
	commands []string
}

type storyText struct {
	path  string
	parts []storyPart
}

var errNoHeading = errors.New("a story begins with a heading: a title, an empty comment line, and what it shows")

// readStory takes a file apart. What is under the lines is not kept: it is
// compared as a whole text.
func readStory(path, text string) (*storyText, error) {
	s := &storyText{path: path}
	block := func(i int, lines []string) error {
		if strings.HasPrefix(lines[0], "#") {
			s.parts = append(s.parts, storyPart{comment: lines})
			return nil
		}
		var commands []string
		for n, line := range lines {
			if line == "----" {
				break
			}
			if strings.HasPrefix(line, "#") {
				return fmt.Errorf("%s:%d: a comment stands alone, between empty lines", path, i+n+1)
			}
			commands = append(commands, line)
		}
		s.parts = append(s.parts, storyPart{line: i + 1, commands: commands})
		return nil
	}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		first := i
		for i < len(lines) && lines[i] != "" {
			i++
		}
		if i > first {
			if err := block(first, lines[first:i]); err != nil {
				return nil, err
			}
		}
	}
	if len(s.parts) < 2 || len(s.parts[0].comment) < 3 || s.parts[0].comment[1] != "#" {
		return nil, fmt.Errorf("%s:1: %w", path, errNoHeading)
	}
	return s, nil
}

// tell plays the story and returns its whole text as it goes now.
func (s *storyText) tell() (string, error) {
	p := newPlayer()
	var out strings.Builder
	for i, part := range s.parts {
		if i > 0 {
			out.WriteString("\n")
		}
		if part.comment != nil {
			out.WriteString(strings.Join(part.comment, "\n") + "\n")
			continue
		}
		told, err := p.step(part.commands)
		if err != nil {
			var at *lineError
			line := part.line
			if errors.As(err, &at) {
				line += at.offset
			}
			return "", fmt.Errorf("%s:%d: %w", s.path, line, err)
		}
		out.WriteString(strings.Join(part.commands, "\n") + "\n----\n" + strings.TrimRight(told, "\n") + "\n")
	}
	if err := p.again(); err != nil {
		return "", fmt.Errorf("%s: %w", s.path, err)
	}
	return out.String(), nil
}

// again replays the log on a second machine, and on a third that starts from a
// snapshot taken in the middle of it.
func (p *player) again() error {
	second := p.newMachine()
	middle := len(p.entries) / 2
	var third *Machine
	for i, e := range p.entries {
		if i == middle {
			var b bytes.Buffer
			if _, err := second.Snapshot().WriteTo(&b); err != nil {
				return err
			}
			third = p.newMachine()
			if err := third.Restore(&b); err != nil {
				return err
			}
		}
		for _, m := range []*Machine{second, third} {
			if m == nil {
				continue
			}
			if err := e.applyTo(m); err != nil {
				return err
			}
			if got := m.Digest(); got != e.digest {
				return fmt.Errorf("replaying index %d gives digest %s, it was %s", e.index, got, e.digest)
			}
		}
	}
	if third == nil {
		return errors.New("nothing was applied")
	}
	return errors.Join(second.Check(), third.Check())
}
