package main

import (
	"strings"

	"github.com/alecthomas/kong"

	"rcd/model"
)

// graceSignal is a flag whose value may be left out: alone it means SIGTERM
// 30 s before the limit. A value stands behind =, so that the word behind the
// flag is never taken for one.
type graceSignal string

// Decode takes what is attached to the flag and nothing else.
func (g *graceSignal) Decode(ctx *kong.DecodeContext) error {
	text := model.DefaultGraceSignal
	if token := ctx.Scan.Peek(); token.Type == kong.FlagValueToken {
		word, _ := ctx.Scan.Pop().Value.(string)
		text = strings.TrimPrefix(word, "=")
	}
	if _, err := model.ParseGraceSignal(text); err != nil {
		return err
	}
	*g = graceSignal(text)
	return nil
}
