package yamlconf

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

type device struct {
	Name       string            `yaml:"name"`
	MaxRuntime time.Duration     `yaml:"max_runtime"`
	Labels     map[string]string `yaml:"labels"`
}

type config struct {
	Host        string   `yaml:"host"`
	Controllers []string `yaml:"controllers"`
	Devices     []device `yaml:"devices"`
	Retries     int      `yaml:"retries"`
}

func TestDecodeReadsWhatPeopleWrite(t *testing.T) {
	text := "# a host\nhost: box\ncontrollers: [a:1, 'b:2']\ndevices:\n" +
		"  - name: gpu0\n    max_runtime: 90m\n    labels: {vram: 80G, tier: \"2\"}\n  - {name: gpu1, max_runtime: '1h'}\n"
	c := config{Host: "default", Retries: 3}
	if err := Decode("agent.yaml", []byte(text), &c); err != nil {
		t.Fatal(err)
	}
	if c.Host != "box" || c.Retries != 3 || len(c.Controllers) != 2 || c.Controllers[0] != "a:1" || len(c.Devices) != 2 {
		t.Fatalf("%+v", c)
	}
	if d := c.Devices[0]; d.MaxRuntime != 90*time.Minute || d.Labels["vram"] != "80G" || d.Labels["tier"] != "2" {
		t.Fatalf("%+v", d)
	}
}

func TestEmptyFileKeepsTheDefaults(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "null\n", "---\n---\n"} {
		c := config{Host: "default"}
		if err := Decode("f", []byte(text), &c); err != nil || c.Host != "default" {
			t.Errorf("%q: %+v %v", text, c, err)
		}
	}
}

func TestMistakesNameTheirLine(t *testing.T) {
	for _, c := range []struct {
		name, text string
		line       int
	}{
		{"an unknown key", "host: a\nhots: b\n", 2},
		{"an unknown key below", "host: a\ndevices:\n  - name: x\n    lables: {a: b}\n", 4},
		{"a duplicate key", "host: a\nretries: 1\nhost: b\n", 3},
		{"a number that is none", "host: a\nretries: many\n", 2},
		{"a list that is none", "host: a\ndevices: 3\n", 2},
		{"a bad duration", "devices:\n  - name: x\n    max_runtime: soon\n", 3},
		{"a duration without a unit", "devices:\n  - name: x\n    max_runtime: 30\n", 3},
		{"a duration that stands twice", "host: soon\ndevices:\n  - max_runtime: soon\n", 0},
		{"a second document", "host: a\n---\nhost: b\n", 3},
		{"a list for the whole", "- a\n", 1},
		{"a broken line", "host: a\ndevices: [\n", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mistake *Error
			err := Decode("dir/agent.yaml", []byte(c.text), &config{})
			if !errors.As(err, &mistake) || mistake.Line != c.line || mistake.Path != "dir/agent.yaml" {
				t.Fatalf("line %d wanted: %v", c.line, err)
			}
			t.Log(err)
		})
	}
}

func TestAMistakeInTheFormIsToldInWordsOfTheFile(t *testing.T) {
	for text, want := range map[string]string{
		"host: {a: s3cret}\n":        "f:1: here is a map of keys and values, and a text is expected",
		"host: [s3cret]\n":           "f:1: here is a list, and a text is expected",
		"host: a\nretries: [1]\n":    "f:2: here is a list, and a whole number is expected",
		"host: a\nretries: {a: 1}\n": "f:2: here is a map of keys and values, and a whole number is expected",
	} {
		if err := Decode("f", []byte(text), &config{}); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestLooseIgnoresOnlyUnknownKeys(t *testing.T) {
	var c config
	if err := DecodeLoose("f", []byte("host: a\nlater: {x: 1}\n"), &c); err != nil || c.Host != "a" {
		t.Fatalf("%+v %v", c, err)
	}
	if err := DecodeLoose("f", []byte("retries: many\n"), &c); err == nil {
		t.Fatal("a mistyped value was accepted")
	}
}

func TestSizeIsBounded(t *testing.T) {
	if err := Decode("f", bytes.Repeat([]byte("#"), MaxSize+1), &config{}); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("%v", err)
	}
}
