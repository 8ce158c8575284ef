package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"rcd/client"
)

// What a watch shows is printed whole each time that it is another, from the
// index of the answer before; Ctrl-C ends it and says that nothing was changed.
func TestAWatchPrintsAgainOnlyWhatIsAnother(t *testing.T) {
	for output, want := range map[string]string{
		formatTable: "a\n\nb\n\na\n",
		formatWide:  "a\n\nb\n\na\n",
		formatJSONL: "a\nb\na\n",
		formatName:  "a\nb\na\n",
	} {
		t.Run(output, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			ctx, cancel := context.WithCancelCause(t.Context())
			a := &app{stdout: &stdout, stderr: &stderr, ctx: ctx, env: func(string) string { return "" }}
			texts := []string{"a", "a", "b", "a"}
			var asked []uint64
			err := watching{Watch: true}.show(a, "the jobs", output, func(since client.Since) (func(io.Writer) error, uint64, error) {
				asked = append(asked, since.Index)
				if len(asked) > len(texts) {
					cancel(errInterrupted)
					return nil, 0, ctx.Err()
				}
				text := texts[len(asked)-1]
				return func(w io.Writer) error { _, err := fmt.Fprintln(w, text); return err }, uint64(10 * len(asked)), nil
			})
			var code exitError
			if !errors.As(err, &code) || code != exitInterrupted || !strings.Contains(stderr.String(), "only watched the jobs") {
				t.Errorf("ended with %v, saying %q", err, stderr.String())
			}
			if stdout.String() != want || fmt.Sprint(asked) != "[0 10 20 30 40]" {
				t.Errorf("printed %q from %v, want %q", stdout.String(), asked, want)
			}
		})
	}
}

func TestWithoutWatchAListIsPrintedOnce(t *testing.T) {
	var stdout bytes.Buffer
	a := &app{stdout: &stdout, ctx: t.Context()}
	err := watching{}.show(a, "the jobs", formatTable, func(client.Since) (func(io.Writer) error, uint64, error) {
		return func(w io.Writer) error { _, err := io.WriteString(w, "a\n"); return err }, 7, nil
	})
	if err != nil || stdout.String() != "a\n" {
		t.Errorf("printed %q, %v", stdout.String(), err)
	}
}
