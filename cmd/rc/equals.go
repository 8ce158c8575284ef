package main

import (
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// afterEquals lets the value of a short flag stand behind an equals sign, as
// the ancestor's parser had it: -o=json, -n=50, -d=box:gpu0. Kong would take the
// sign for a part of the value.
func afterEquals() []kong.Option {
	known := kong.NewRegistry().RegisterDefaults()
	var options []kong.Option
	for _, kind := range []reflect.Type{reflect.TypeFor[string](), reflect.TypeFor[int]()} {
		options = append(options, kong.KindMapper(kind.Kind(), withoutEquals{known.ForType(kind)}))
	}
	return options
}

type withoutEquals struct{ kong.Mapper }

// Decode reads a value without the sign that joins it to its flag.
func (m withoutEquals) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	next := ctx.Scan.Peek()
	if text, ok := next.Value.(string); ok && next.Type == kong.ShortFlagTailToken && strings.HasPrefix(text, "=") {
		ctx.Scan.Pop()
		ctx.Scan.PushTyped(strings.TrimPrefix(text, "="), kong.FlagValueToken)
	}
	return m.Mapper.Decode(ctx, target)
}
