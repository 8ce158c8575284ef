package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// screen is a terminal that a job draws on, and on which rc has a word to say
// now and then: in the top line, in reverse, with the cursor back where it was.
// Whatever draws the line next takes it away. A word waits while the job is in
// the middle of a control sequence or a character.
type screen struct {
	out  io.Writer
	size func() (cols, rows uint16, ok bool)

	mu    sync.Mutex // guards what follows
	state drawing
	left  int // bytes that the character still has
	words []string
}

// drawing is what the last byte was part of.
type drawing int

const (
	plainText drawing = iota
	character         // of several bytes
	escape            // ESC
	control           // ESC [ up to a final byte
	text              // ESC ] and the like, up to BEL or ESC \
	textEscape
)

// Write draws what the job prints.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.out.Write(p)
	for _, b := range p[:n] {
		s.step(b)
	}
	if err == nil {
		s.flush()
	}
	return n, err
}

func (s *screen) step(b byte) {
	switch s.state {
	case control:
		if b >= 0x40 && b <= 0x7e {
			s.state = plainText
		}
		return
	case text:
		switch b {
		case 0x07:
			s.state = plainText
		case 0x1b:
			s.state = textEscape
		}
		return
	case textEscape:
		if s.state = text; b == '\\' {
			s.state = plainText
		}
		return
	case escape:
		switch {
		case b == '[':
			s.state = control
		case strings.IndexByte("]PX^_", b) >= 0:
			s.state = text
		case b < 0x20 || b > 0x2f: // not one of those that another byte follows
			s.state = plainText
		}
		return
	case character:
		if b&0xc0 == 0x80 {
			if s.left--; s.left == 0 {
				s.state = plainText
			}
			return
		}
		s.state = plainText // it was cut short
	}
	switch {
	case b == 0x1b:
		s.state = escape
	case b >= 0xf0:
		s.state, s.left = character, 3
	case b >= 0xe0:
		s.state, s.left = character, 2
	case b >= 0xc0:
		s.state, s.left = character, 1
	}
}

// say shows one line, now or as soon as it can be.
func (s *screen) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words = append(s.words, line)
	s.flush()
}

// flush shows what there is to say; of several lines the last one stands.
func (s *screen) flush() {
	if s.state != plainText {
		return
	}
	for _, line := range s.words {
		if cols, _, ok := s.size(); ok {
			for utf8.RuneCountInString(line) > int(cols) {
				_, last := utf8.DecodeLastRuneInString(line)
				line = line[:len(line)-last]
			}
		}
		fmt.Fprintf(s.out, "\x1b7\x1b[1;1H\x1b[2K\x1b[7m%s\x1b[0m\x1b8", line)
	}
	s.words = nil
}

// talk makes a screen the place for what rc says on stderr.
type talk struct{ screen *screen }

// Write shows lines on the screen.
func (t talk) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		t.screen.say(clean(strings.TrimRight(line, "\n")))
	}
	return len(p), nil
}

// crlf ends the lines that rc says on a terminal in raw mode so that the next
// begins at the left.
type crlf struct{ w io.Writer }

// Write writes p with whole line ends.
func (c crlf) Write(p []byte) (int, error) {
	if _, err := io.WriteString(c.w, strings.ReplaceAll(string(p), "\n", "\r\n")); err != nil {
		return 0, err
	}
	return len(p), nil
}
