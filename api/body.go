package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"unicode/utf8"
)

// decodeBody reads the first JSON value of a body; fields it does not know are
// ignored, as the ancestor did.
func decodeBody(body []byte, into any) error {
	if !utf8.Valid(body) { // else such a byte would become another character, unseen
		return badRequest("the request body holds bytes that are not UTF-8; send names and data with such bytes in a file on the device's host")
	}
	err := json.NewDecoder(bytes.NewReader(body)).Decode(into)
	var mistyped *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return badRequest("the request has no body; send a JSON object")
	case errors.As(err, &mistyped) && mistyped.Field == "":
		return badRequest("the request body is of the JSON type %s; send an object", mistyped.Value)
	case errors.As(err, &mistyped):
		return badRequest("%s is of the JSON type %s; send %s", mistyped.Field, mistyped.Value, jsonForm(mistyped.Type))
	}
	return badRequest("the request body is not the JSON this route takes: %v", err)
}

// jsonForm says in JSON's words what a type takes: whoever sends a request knows
// no Go.
func jsonForm(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonForm(t.Elem())
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	}
	return "a whole number that fits"
}
