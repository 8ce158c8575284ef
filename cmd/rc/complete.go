package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// completeVerb is what the completion scripts call, with the words of the line
// up to the cursor, the one under it last. It is no verb for people.
const completeVerb = "__complete"

// completePatience bounds what a press of the tab key costs.
const completePatience = time.Second

// maxCandidates bounds what a shell is given to show.
const maxCandidates = 200

// candidate is one word that could stand under the cursor.
type candidate struct{ word, about string }

// complete prints the candidates, one a line: the word, a tab and what it is.
// No error is shown: it would stand in the middle of the line being typed.
func (a *app) complete(root *kong.Node, words []string) int {
	ctx, cancel := context.WithTimeout(context.Background(), completePatience)
	defer cancel()
	a.ctx, a.stderr = ctx, io.Discard
	a.conf = loadConfig(flagValue(words, "--context"), a.env, io.Discard)
	current := ""
	if n := len(words); n > 0 {
		words, current = words[:n-1], words[n-1]
	}
	out := bufio.NewWriter(a.stdout)
	n := 0
	for _, c := range a.candidates(root, words, current) {
		if strings.HasPrefix(c.word, current) && typable(c.word) && n < maxCandidates {
			fmt.Fprintf(out, "%s\t%s\n", c.word, clean(c.about))
			n++
		}
	}
	if out.Flush() != nil {
		return exitFailed
	}
	return exitOK
}

func flagValue(words []string, name string) string {
	value, _ := oldFlag(words, name)
	return value
}

// typable reports whether a word may be put on a command line as it is. What
// the cluster says is other people's, and the shell would run it.
func typable(word string) bool { return word != "" && word == quote(word) }

// candidates returns what may stand under the cursor, not yet filtered by what
// stands there. The structs of the command line say it, so that it cannot
// drift from them.
func (a *app) candidates(root *kong.Node, words []string, current string) []candidate {
	node, at := root, 0 // the verb so far, and how many of its arguments have passed
	var pending *kong.Value
	for _, word := range words {
		switch {
		case pending != nil && !(pending.Target.Type() == bareType && !slices.Contains(formats, word)):
			pending = nil
		case word == "--":
			return nil
		case strings.HasPrefix(word, "-") && word != "-":
			pending = nil
			if flag := findFlag(node, word); flag != nil && takesNext(flag, word) {
				pending = flag.Value
			}
		default:
			pending = nil
			if child := findVerb(node, word); child != nil {
				node, at = child, 0
				continue
			}
			if len(node.Children) > 0 {
				return nil // no such verb
			}
			if at++; len(node.Positional) > 0 && passes(node.Positional[min(at, len(node.Positional))-1]) {
				return nil // the job's own words
			}
		}
	}
	name, _, attached := strings.Cut(current, "=")
	switch flag := findFlag(node, name); {
	case pending != nil && !(pending.Target.Type() == bareType && strings.HasPrefix(current, "-")):
		return a.values(node, pending)
	case attached && flag != nil && strings.HasPrefix(name, "--"):
		list := a.values(node, flag.Value)
		for i := range list {
			list[i].word = name + "=" + list[i].word
		}
		return list
	case strings.HasPrefix(current, "-"):
		return flagsOf(node)
	case len(node.Children) > 0:
		return verbsOf(node)
	case len(node.Positional) == 0:
		return nil
	}
	last := node.Positional[min(at, len(node.Positional)-1)]
	if at >= len(node.Positional) && !last.IsCumulative() || passes(last) {
		return nil
	}
	return a.values(node, last)
}

// passes reports whether an argument takes all words that follow as they are.
func passes(v *kong.Value) bool { return v.PassthroughMode != kong.PassThroughModeNone }

func findVerb(node *kong.Node, word string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == word {
			return child
		}
	}
	return nil
}

// findFlag returns the flag of a verb, or of rc itself, that a word is.
func findFlag(node *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(word, "=")
	for ; node != nil; node = node.Parent {
		for _, flag := range node.Flags {
			short := flag.Short != 0 && !strings.HasPrefix(word, "--") && strings.HasPrefix(word, "-"+string(flag.Short))
			if name == "--"+flag.Name || short {
				return flag
			}
		}
	}
	return nil
}

// takesNext reports whether the value of a flag is the word after it.
func takesNext(flag *kong.Flag, word string) bool {
	if flag.IsBool() || strings.Contains(word, "=") {
		return false
	}
	return strings.HasPrefix(word, "--") || len([]rune(word)) == len("-x")
}

func flagsOf(node *kong.Node) []candidate {
	var list []candidate
	for ; node != nil; node = node.Parent {
		for _, flag := range node.Flags {
			if !flag.Hidden {
				list = append(list, candidate{"--" + flag.Name, flag.Help})
			}
		}
	}
	return list
}

func verbsOf(node *kong.Node) []candidate {
	var list []candidate
	for _, child := range node.Children {
		if !child.Hidden {
			list = append(list, candidate{child.Name, child.Help})
		}
	}
	return list
}
