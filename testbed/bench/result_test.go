package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestReadResultRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"no JSON":         {`{`, "unexpected"},
		"another schema":  {`{"schema":2,"experiment":"x"}`, "schema 2"},
		"no schema":       {`{"experiment":"x"}`, "schema 0"},
		"no name":         {`{"schema":1}`, `experiment ""`},
		"a path":          {`{"schema":1,"experiment":"../x"}`, `experiment "../x"`},
		"a short row":     {`{"schema":1,"experiment":"x","tables":[{"title":"t","columns":["a","b"],"rows":[["1"]]}]}`, "row 1 has 1 cells for 2 columns"},
		"a huge number":   {`{"schema":1,"experiment":"x","samples":[{"arm":"a","metrics":{"m":1e200}}]}`, "m is 1e+200"},
		"a huge step":     {`{"schema":1,"experiment":"x","samples":[{"arm":"a","steps":{"s":-1e200}}]}`, "s is -1e+200"},
		"a share of five": {`{"schema":1,"experiment":"x","metrics":[{"name":"m","unit":"share"}],"samples":[{"arm":"a","metrics":{"m":5}}]}`, "a share is 0 to 1"},
		"backwards":       {`{"schema":1,"experiment":"x","took":-1}`, "took -1"},
		"something after": {`{"schema":1,"experiment":"x"} {}`, "after"},
	} {
		if _, err := ReadResult(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// Whatever is read can be written, read back the same, and shown in every form.
func FuzzReadResult(f *testing.F) {
	for _, text := range []string{
		`{"schema":1,"experiment":"x"}`,
		`{"schema":1,"experiment":"overhead","title":"T|<b>","metrics":[{"name":"m","unit":"share","better":"lower"}],
		  "plots":[{"kind":"bars","title":"p"},{"kind":"steps","title":"p"},{"kind":"lines","title":"p","x":"n","series":"arm","metric":"m","log":true},{"kind":"lines","x":"m"}],
		  "samples":[{"arm":"bare","labels":{"n":"1"},"metrics":{"seconds":1,"m":1},"steps":{"execute":0.5}},{"arm":"copy","labels":{"n":"100"},"metrics":{"seconds":-0,"m":0},"steps":{"copy":-1}},
		    {"arm":"copy","rep":1,"err":"why"}],
		  "tables":[{"title":"t","columns":["a"],"rows":[["\u0000\u001b[31m"]]}],"notes":["n"],"facts":{"k":"v"}}`,
		`{"schema":1,"experiment":"scale","plots":[{"kind":"bars","log":true},{"kind":"lines","x":"n","log":true}],"samples":[{"arm":"","labels":{"n":"NaN"},"metrics":{"seconds":9e99}},{"arm":"","labels":{"n":"-1e99"},"metrics":{"seconds":-9e99}},{"arm":"","labels":{"n":"5e-324"},"metrics":{"seconds":5e-324}}]}`,
		`{"schema":1,"experiment":"x","plots":[{"kind":"steps"}],"samples":[{"arm":"a","steps":{"execute":5,"copy":-4}}]}`,
		`{"schema":1,"experiment":"agent-turn","skipped":"s","err":"e","took":1e9,"noise":{"load":1e9,"steal":-1},"started":"0001-01-01T00:00:00Z"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := ReadResult(bytes.NewReader(raw))
		if err != nil || len(r.Samples) > 50 {
			return
		}
		written, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("write what was read: %v", err)
		}
		again, err := ReadResult(bytes.NewReader(written))
		if err != nil {
			t.Fatalf("read what was written: %v\n%s", err, written)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(twice, written) {
			t.Fatalf("%v: written\n%s\nand then\n%s", err, written, twice)
		}
		rep := &Report{Info: Info{ID: "fuzz", Experiments: []string{r.Experiment}}, Results: []*Result{r}}
		d := rep.Document()
		for name, write := range map[string]func(io.Writer) error{
			"Markdown": d.Markdown, "JSON": func(w io.Writer) error { return json.NewEncoder(w).Encode(d) }, "Go benchmarks": rep.GoBench, "comparison": Compare(rep, rep, 0.1).Markdown,
			"HTML": func(w io.Writer) error { return d.HTML(w, []Past{past(rep), past(rep)}) },
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if name == "HTML" {
				for _, problem := range faults(b.Bytes()) {
					t.Errorf("%s: %s", name, problem)
				}
			}
		}
		if bad := Compare(rep, rep, 0).Regressions(); len(bad) > 0 {
			t.Errorf("worse than itself: %+v", bad)
		}
	})
}

func TestFigures(t *testing.T) {
	r := newResult(filled("x", []Metric{{Name: "ok", Unit: Share}, {Name: "size", Unit: Bytes}}))
	r.Samples = []Sample{
		{Arm: ArmCopy, Metrics: nums{"size": 10, MetricSeconds: 9}}, {Arm: "zoo", Err: "dead"}, {Arm: ArmBare, Metrics: nums{MetricSeconds: 1, "ok": 1}},
		{Arm: ArmBare, Metrics: nums{MetricSeconds: 3, "ok": 0}}, {Arm: ArmBare, Metrics: nums{MetricSeconds: 99, "ok": 0}, Err: "slow"}, {Arm: "aye", Metrics: nums{"size": 1}},
		{Arm: ArmBare, Labels: tags{"n": "2"}, Steps: nums{StepCommit: 1, "zz": 1, StepPolicy: 1}},
	}
	var got []string
	for _, f := range r.Figures() {
		got = append(got, f.Group()+" "+f.Metric+" "+number(f.Value)+" "+number(float64(f.N))+" "+number(float64(f.Failed)))
	}
	// Known arms come first in their order, metrics as they are described; a share
	// counts failed samples, a time does not.
	want := []string{"bare seconds 2 2 1", "bare ok 0.333 3 1", "bare, n=2  0 0 0", "copy seconds 9 1 0", "copy size 10 1 0", "aye size 1 1 0", "zoo  0 0 1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if names := stepNames(r.StepTimes()); !reflect.DeepEqual(names, []string{StepPolicy, StepCommit, "zz"}) {
		t.Errorf("steps %q", names)
	}
}
