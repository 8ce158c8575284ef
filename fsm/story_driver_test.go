package fsm

import (
	"strings"
	"testing"
)

const storyHead = "# Title\n#\n# What it shows.\n\nlead c1\n\nregister box gpu0\n\nsubmit ann box:gpu0 -- train\n\n" // 10 lines

// TestAStoryWithATypingErrorNamesFileAndLine: nothing in a story is guessed at
// or passed over.
func TestAStoryWithATypingErrorNamesFileAndLine(t *testing.T) {
	for text, want := range map[string]string{
		"sumbit ann box:gpu0 -- x":                       `s.txt:11: there is no verb "sumbit"`,
		"\nstart j-1\n\nstrat j-1":                       `s.txt:14: there is no verb "strat"`,
		"start j-1\nstrat j-1":                           `s.txt:12: there is no verb "strat"`,
		"start j-1 now":                                  `s.txt:11: "now" is not understood`,
		"start 1":                                        `s.txt:11: "1" is not a job such as j-1`,
		"start j-7":                                      `s.txt:11: no host reports j-7`,
		"kill j-1 ann":                                   `s.txt:11: "ann" should be "by"`,
		"kill j-1 by":                                    "s.txt:11: a word is missing at the end",
		"kill j-1 by ann (root)":                         `s.txt:11: the option "root" is not understood`,
		"kill j-1 by ann (admin now)":                    `s.txt:11: "now" after "admin" is not understood`,
		"submit ann box:gpu0 runtme=1h -- x":             `s.txt:11: a submit does not know "runtme=1h"`,
		"submit ann box:gpu0 runtime=soon -- x":          `s.txt:11: "soon" is not a duration`,
		"pass 5":                                         `s.txt:11: "5" is not a duration`,
		"register box gpu0":                              `s.txt:11: the story knows "box"; say (restarted)`,
		"register far gpu0 (restarted)":                  `s.txt:11: the story has not heard of "far"`,
		"register far gpu0, ":                            "s.txt:11: a device is missing after the comma",
		"hello far":                                      `s.txt:11: the story has no host "far"`,
		"sweep quiet box 5s":                             `s.txt:11: a sweep says silent, heard, unnamed, unordered or client, not "quiet"`,
		"sweep unnamed 1 5s":                             `s.txt:11: "1" is not a lease such as l-1`,
		"finish j-1 exits":                               `s.txt:11: a job ends by exit`,
		"fault box:gpu0 \"no end":                        "s.txt:11: a quotation has no end",
		"pass 5s\nstart j-1":                             "s.txt:11: only commands travel together",
		"start j-1\nas-term 0 start j-1":                 "s.txt:12: how an entry is proposed is said in its first line",
		"# half a comment\nstart j-1\n# in the way":      "", // a comment block of its own
		"start j-1\n# in the way":                        "s.txt:12: a comment stands alone",
		"labels box seen gpu0 a=b":                       `s.txt:11: labels are declared or detected, not "seen"`,
		"set aging_ms 5":                                 `s.txt:11: "aging_ms" is not name=value`,
		"knows 2":                                        "s.txt:11: what the build knows is said first",
		"checkpoint at 3 of 3 c1":                        `s.txt:11: "c1" is not node=digest`,
		"finish j-1 exit 0 (origin moon)":                `s.txt:11: there is no origin "moon"`,
		"register far gpu0 ceiling=1h (supervises j-77)": `s.txt:11: there is no job "j-77" to supervise`,
	} {
		s, err := readStory("s.txt", storyHead+text+"\n")
		if err == nil {
			_, err = s.tell()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%q:\n  %v, want\n  %s", text, err, want)
		}
	}
}

func TestAStoryBeginsWithAHeading(t *testing.T) {
	for _, text := range []string{"", "lead c1\n", "# Title\n\nlead c1\n", "# Title\n# no empty line\n# more\n\nlead c1\n", "# Title\n#\n# Only a heading.\n"} {
		if _, err := readStory("s.txt", text); err == nil {
			t.Errorf("%q is taken for a story", text)
		}
	}
}

// TestAStoryThatGoesAnotherWayIsSeen: the golden text is compared line by line,
// and the first line that differs is shown.
func TestAStoryThatGoesAnotherWayIsSeen(t *testing.T) {
	s, err := readStory("s.txt", storyHead)
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.tell()
	if err != nil {
		t.Fatal(err)
	}
	again, err := readStory("s.txt", text)
	if err != nil {
		t.Fatal(err)
	}
	if twice, err := again.tell(); err != nil || twice != text {
		t.Fatalf("told again: %v\n%s", err, firstDifference("s.txt", text, twice))
	}
	other := strings.Replace(text, "j-1 is assigned", "j-1 is queued", 1)
	if d := firstDifference("s.txt", other, text); !strings.HasPrefix(d, "s.txt:20: ") || !strings.Contains(d, "j-1 is assigned") {
		t.Errorf("%s", d)
	}
}

// TestAStoryWhoseRefusalChangesSomethingFails: law 10 is looked at in every
// story.
func TestAStoryWhoseRefusalChangesSomethingFails(t *testing.T) {
	p := newPlayer()
	if _, err := p.step([]string{"lead c1"}); err != nil {
		t.Fatal(err)
	}
	p.m.afterCommands = func(tx *txn) { tx.settings.AgingMS++ }
	if _, err := p.step([]string{"clear box:gpu0"}); err == nil || !strings.Contains(err.Error(), "a refused entry has changed something") {
		t.Errorf("%v", err)
	}
}
