package fsm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"rcd/fsm/command"
	"rcd/model"
)

// tellSubmit reads one job or several with commas between them. The words
// key=, body-key= and times= are of the whole request.
func tellSubmit(_ *player, w *words) (asked, error) {
	who := w.next()
	text := who + " " + strings.Join(w.rest, " ")
	b := &command.JobEnqueue{}
	s := submission{who: who}
	for {
		spec, err := s.job(w)
		if err != nil {
			return asked{}, err
		}
		for range max(s.times, 1) {
			b.Jobs = append(b.Jobs, spec)
		}
		s.times = 0
		if !w.skip(",") {
			break
		}
	}
	a := asked{body: b}
	sum := sha256.Sum256([]byte(text))
	if s.key != "" {
		a.request = command.Request{Scope: who, ID: s.key, Digest: sum[:], Strict: true}
	}
	if s.bodyKey != "" {
		a.also = command.Request{Scope: who, ID: s.bodyKey, Digest: sum[:]}
	}
	return a, nil
}

// submission is what a submit has said so far.
type submission struct {
	who, key, bodyKey string
	times             int
}

func (s *submission) job(w *words) (command.JobSpec, error) {
	spec := command.JobSpec{Submitter: s.who}
	switch target := w.next(); {
	case target == "inside":
		n, ok := model.ParseJobID(w.next())
		if !ok {
			return spec, errors.New("a job is inside a hold such as j-1")
		}
		spec.Hold = n
	case pinnedTarget(target):
		spec.Pinned = target
	default:
		spec.Selector = target
	}
	for len(w.rest) > 0 && w.peek() != "," {
		word := w.next()
		if word == "--" {
			for len(w.rest) > 0 && w.peek() != "," {
				spec.Command = append(spec.Command, w.next())
			}
			return spec, nil
		}
		if err := s.word(&spec, word); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

// word reads one word between the target and the command.
func (s *submission) word(spec *command.JobSpec, word string) (err error) {
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "hold":
		spec.Kind = model.KindHold
	case "no-wait":
		spec.NoWait = true
	case "note":
		spec.Note = value
	case "key":
		s.key = value
	case "body-key":
		s.bodyKey, spec.ClientKey = value, value
	case "runtime":
		var ms int64
		ms, err = parseMS(value)
		spec.MaxRuntimeS = ms / 1000
	case "session":
		var ms int64
		ms, err = parseMS(value)
		spec.SessionS = ms / 1000
	case "priority":
		var n int64
		n, err = strconv.ParseInt(value, 10, 8)
		spec.Priority = int8(n)
	case "times":
		s.times, err = strconv.Atoi(value)
	case "environment":
		var n int
		n, err = strconv.Atoi(value)
		spec.Env = map[string]string{"BIG": strings.Repeat("x", max(n-len("BIG"), 0))}
	default:
		return fmt.Errorf("a submit does not know %q", word)
	}
	return err
}

func tellAllocate(_ *player, w *words) (asked, error) {
	s := submission{who: w.next()}
	spec, err := s.job(w)
	return asked{body: &command.LeaseAllocate{Job: spec}, request: command.Request{Scope: s.who}}, err
}

// reportOf reads whose report it is: the job's latest lease, by the present
// process of its host, unless options say otherwise.
func reportOf(p *player, w *words) (r command.JobRef, host, instance string, err error) {
	j, err := w.job(p)
	if err != nil {
		return r, "", "", err
	}
	r, host = ref(j), j.Host
	if word, ok := w.value("lease"); ok {
		if r.Lease, err = parseLease(word); err != nil {
			return r, "", "", err
		}
	}
	if word, ok := w.value("on"); ok {
		host = word
	}
	h, err := p.host(host)
	if err != nil {
		return r, "", "", fmt.Errorf("no host reports %s: %w", j.ID(), err)
	}
	if instance = processOption(w); instance == "" {
		instance = h.instance()
	}
	for _, id := range j.Devices {
		if _, name := model.SplitDeviceID(id); host == j.Host {
			h.begun[name] = max(h.begun[name], r.Lease)
		}
	}
	return r, host, instance, nil
}

func tellStart(p *player, w *words) (asked, error) {
	r, host, instance, err := reportOf(p, w)
	return asked{body: &command.JobStart{JobRef: r, Host: host, Instance: instance}}, err
}

func tellFinish(p *player, w *words) (asked, error) {
	r, host, instance, err := reportOf(p, w)
	if err != nil {
		return asked{}, err
	}
	b := &command.JobFinish{JobRef: r, Host: host, Instance: instance, OutputKnown: true, OutputLength: 100, OutputDigest: []byte("digest")}
	switch how := w.next(); how {
	case "exit":
		n, err := w.number()
		if err != nil {
			return asked{}, err
		}
		code := int32(n)
		b.ExitCode = &code
	case "killed":
		b.End = command.EndKilled
	case "start-failed":
		b.End, b.OutputLength, b.OutputDigest = command.EndStartFailed, 0, nil
	case "supervisor-died":
		b.End, b.OutputKnown = command.EndSupervisorDied, false
	default:
		return asked{}, fmt.Errorf("a job ends by exit, killed, start-failed or supervisor-died, not %q", how)
	}
	if w.flag("output unknown") {
		b.OutputKnown = false
	}
	b.OutputGap = w.flag("output has a gap")
	if reason, ok := w.value("because"); ok {
		b.Reason = reason
	}
	if origin, ok := w.value("origin"); ok {
		if b.Origin, err = originNamed(origin); err != nil {
			return asked{}, err
		}
	}
	if pid, ok := w.value("survivor"); ok {
		b.Survivors = pid
	}
	return asked{body: b}, nil
}

func originNamed(name string) (uint8, error) {
	for o := model.OriginJob; o <= model.OriginUser; o++ {
		if o.String() == name {
			return uint8(o), nil
		}
	}
	return 0, fmt.Errorf("there is no origin %q", name)
}

// by reads "by bob".
func by(w *words) string {
	w.expect("by")
	return w.next()
}

func tellKill(p *player, w *words) (asked, error) {
	j, err := w.job(p)
	if err != nil {
		return asked{}, err
	}
	return asked{body: &command.JobKill{Job: j.Number, By: by(w), Admin: w.flag("admin"), Detached: w.flag("detached")}}, nil
}

func tellRelease(p *player, w *words) (asked, error) {
	j, err := w.job(p)
	if err != nil {
		return asked{}, err
	}
	return asked{body: &command.LeaseRelease{
		Job: j.Number, By: by(w), Admin: w.flag("admin"), Detached: w.flag("detached"), Force: w.flag("force"),
	}}, nil
}

func tellExtend(p *player, w *words) (asked, error) {
	j, err := w.job(p)
	if err != nil {
		return asked{}, err
	}
	w.expect("to")
	ms, err := w.ms()
	if err == nil && ms%1000 != 0 {
		err = errors.New("a runtime is whole seconds")
	}
	return asked{body: &command.LeaseExtend{Job: j.Number, MaxRuntimeS: ms / 1000, By: by(w), Admin: w.flag("admin")}}, err
}
