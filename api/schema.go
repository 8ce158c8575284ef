package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// schemas makes JSON schemas of Go types. Structures go into known under their
// names and are referred to.
type schemas struct{ known object }

// of returns the schema of a value's type.
func (s *schemas) of(value any) object { return s.ofType(reflect.TypeOf(value)) }

func (s *schemas) ofType(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{} // any
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.ofType(t.Elem()) // always with omitempty: absent, never null
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Slice:
		return object{"type": "array", "items": s.ofType(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.ofType(t.Elem())}
	case reflect.Struct:
		return s.ofStruct(t)
	}
	panic("api: no schema for " + t.String())
}

func (s *schemas) ofStruct(t reflect.Type) object {
	ref := object{"$ref": "#/components/schemas/" + t.Name()}
	if s.known[t.Name()] != nil {
		return ref
	}
	properties, required := object{}, []string{}
	s.known[t.Name()] = object{"type": "object", "properties": properties} // before its fields, which may hold it
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "-" || name == "" {
			continue // of an embedded structure the fields follow
		}
		properties[name] = s.ofType(f.Type)
		if !strings.Contains(options, "omitempty") {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		s.known[t.Name()].(object)["required"] = required
	}
	return ref
}
