package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"rcd/internal/yamlconf"
)

// listing says how things of one kind are printed, in every format of -o.
type listing[T any] struct {
	columns []column[T]
	name    func(T) string // what -o name prints, one a line
	// oneLine: -o json puts the whole array on one line, as the ancestor did.
	oneLine bool
}

// column is one column of a table. A cell that is "" shows as a dash.
type column[T any] struct {
	heading string
	in      tables
	cell    func(T) string
}

// tables are those that have a column.
type tables int

const (
	allTables tables = iota
	wideOnly
	narrowOnly
)

func (t tables) has(wide bool) bool { return t == allTables || wide == (t == wideOnly) }

// print prints items in a format. document, if not nil, is what json and yaml
// print instead of the array of them.
func (l listing[T]) print(w io.Writer, output string, items []T, document any) error {
	if document == nil {
		if items == nil {
			items = []T{} // an empty list is [], not null
		}
		document = items
	}
	switch output {
	case formatJSON:
		return printJSON(w, document, !l.oneLine)
	case formatYAML:
		return yamlconf.Encode(w, document)
	case formatJSONL:
		for _, item := range items {
			if err := printJSON(w, item, false); err != nil {
				return err
			}
		}
		return nil
	case formatName:
		for _, item := range items {
			if _, err := fmt.Fprintln(w, clean(l.name(item))); err != nil {
				return err
			}
		}
		return nil
	}
	return l.table(w, items, output == formatWide)
}

func (l listing[T]) table(w io.Writer, items []T, wide bool) error {
	var heading []string
	rows := make([][]string, len(items))
	for _, c := range l.columns {
		if !c.in.has(wide) {
			continue
		}
		heading = append(heading, c.heading)
		for i, item := range items {
			rows[i] = append(rows[i], c.cell(item))
		}
	}
	return table(w, strings.Join(heading, "|"), rows)
}

// table prints rows under a heading, columns aligned.
func table(w io.Writer, heading string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(heading, "|", "\t"))
	for _, row := range rows {
		for i, cell := range row {
			if row[i] = clean(cell); cell == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}
