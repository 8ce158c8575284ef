package api

import (
	"strings"
	"testing"

	"rcd/wire"
)

func TestABodyOfTheWrongFormIsToldInWordsOfJSON(t *testing.T) {
	for body, want := range map[string]string{
		`[]`:                    "the request body is of the JSON type array; send an object",
		`"x"`:                   "the request body is of the JSON type string; send an object",
		`{"command":"true"}`:    "command is of the JSON type string; send an array",
		`{"command":[5]}`:       "command is of the JSON type number; send a string",
		`{"env":{"A":1}}`:       "env is of the JSON type number; send a string",
		`{"env":[]}`:            "env is of the JSON type array; send an object",
		`{"priority":1.5}`:      "priority is of the JSON type number 1.5; send a whole number that fits",
		`{"priority":1e99}`:     "priority is of the JSON type number 1e99; send a whole number that fits",
		`{"priority":"5"}`:      "priority is of the JSON type string; send a whole number that fits",
		`{"no_wait":"yes"}`:     "no_wait is of the JSON type string; send true or false",
		`{"submitter":{"a":1}}`: "submitter is of the JSON type object; send a string",
		``:                      "the request has no body; send a JSON object",
	} {
		err := decodeBody([]byte(body), &wire.SubmitRequest{})
		if err == nil || err.Error() != wire.CodeBadRequest+": "+want {
			t.Errorf("%s: got %v", body, err)
		}
	}
	var batch wire.BatchRequest
	if err := decodeBody([]byte(`{"jobs":[{"command":"true"}]}`), &batch); err == nil || strings.Contains(err.Error(), "Go ") {
		t.Errorf("got %v", err)
	}
	for _, body := range []string{`null`, `{"zzz":1} trailing`, `{"command":["true"]}`} {
		if err := decodeBody([]byte(body), &wire.SubmitRequest{}); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}
