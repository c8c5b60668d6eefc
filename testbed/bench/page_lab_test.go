package bench_test

import (
	"bytes"
	_ "embed"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"savepoint/testbed/bench"
)

// lookScript finds what is wrong with a page that is shown.
//
//go:embed testdata/look.js
var lookScript string

// leastText is the smallest text that is readable, in CSS pixels.
const leastText = 12

// look is what lookScript says of a page.
type look struct {
	Problems []string
	Plots    []struct {
		Title string
		Marks int
	}
	Texts      int
	Smallest   float64
	Height     int
	Background []float64
}

func lookAt(t *testing.T, b *browser) look {
	t.Helper()
	var l look
	b.eval(t, fmt.Sprintf("(%s)(%d)", strings.TrimRight(lookScript, "; \n"), leastText), &l)
	return l
}

func needBrowser(t *testing.T) *browser {
	t.Helper()
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("starts a browser: set SAVEPOINT_LAB=1")
	}
	return openBrowser(t)
}

// write puts a page into a directory of its own and returns its address.
func write(t *testing.T, page []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, page, 0o600); err != nil {
		t.Fatal(err)
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// The report is readable on a desk and on a telephone, by day and by night, and
// a browser without network shows all of it. SAVEPOINT_SHOTS is a directory that
// keeps the pictures.
func TestLabPage(t *testing.T) {
	b := needBrowser(t)
	rep, history := drawnRun(t)
	var page bytes.Buffer
	if err := rep.Document().HTML(&page, history); err != nil {
		t.Fatal(err)
	}
	address := write(t, page.Bytes())
	shots := os.Getenv("SAVEPOINT_SHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	for _, width := range []int{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprintf("%d-%s", width, scheme), func(t *testing.T) {
				b.open(t, address, width, scheme)
				for _, state := range []string{"closed", "opened"} {
					if state == "opened" {
						b.eval(t, `document.querySelectorAll("details").forEach((d) => d.open = true)`, nil)
					}
					l := lookAt(t, b)
					for _, p := range l.Problems {
						t.Errorf("%s: %s", state, p)
					}
					plotsDrawn(t, rep, l)
					shot := b.screenshot(t, width, l.Height)
					file := filepath.Join(shots, fmt.Sprintf("report-%d-%s-%s.png", width, scheme, state))
					if err := os.WriteFile(file, shot, 0o600); err != nil {
						t.Fatal(err)
					}
					t.Logf("%s: %d × %d px, %d plots, %d texts, the smallest %.1f px", filepath.Base(file), width, l.Height, len(l.Plots), l.Texts, l.Smallest)
					if err := painted(shot, width, l.Height, scheme == "dark"); err != nil {
						t.Errorf("%s: %v", file, err)
					}
				}
				asked, complaints := b.requests(t)
				if !slices.Equal(asked, []string{address}) {
					t.Errorf("the page asked for %q, want only itself", asked)
				}
				if len(complaints) > 0 {
					t.Errorf("the browser complains: %q", complaints)
				}
			})
		}
	}
}

// plotsDrawn checks that every plot of every experiment is on the page with
// something to see, and the trend beside them.
func plotsDrawn(t *testing.T, rep *bench.Report, l look) {
	t.Helper()
	marks := map[string]int{}
	for _, p := range l.Plots {
		marks[p.Title] = p.Marks
	}
	for _, res := range rep.Results {
		for _, p := range res.Plots {
			if marks[p.Title] == 0 {
				t.Errorf("%s: the plot %q is not drawn", res.Experiment, p.Title)
			}
		}
	}
	trend := 0
	for _, g := range bench.Targets(rep) {
		if marks[g.Name] >= 7 {
			trend++
		}
	}
	if trend < 5 {
		t.Errorf("%d targets have a trend of seven nights, want at least 5", trend)
	}
}

// painted checks that a screenshot is of that size, has the scheme's background
// and shows something on it.
func painted(shot []byte, width, height int, dark bool) error {
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return err
	}
	if got, want := img.Bounds().Size(), image.Pt(width, min(height, tallest)); got != want {
		return fmt.Errorf("it is %v, want %v", got, want)
	}
	flat := image.NewRGBA(img.Bounds())
	draw.Draw(flat, flat.Bounds(), img, image.Point{}, draw.Src)
	count, all := map[color.RGBA]int{}, len(flat.Pix)/4
	for p := range slices.Chunk(flat.Pix, 4) {
		count[color.RGBA{p[0], p[1], p[2], p[3]}]++
	}
	var most color.RGBA
	for c, n := range count {
		if n > count[most] {
			most = c
		}
	}
	gray := color.GrayModel.Convert(most).(color.Gray).Y
	switch {
	case dark != (gray < 128):
		return fmt.Errorf("its background is %v (dark: %v)", most, !dark)
	case len(count) < 50 || all-count[most] < all/50:
		return fmt.Errorf("it is blank: %d colours, %d of %d pixels are not background", len(count), all-count[most], all)
	}
	return nil
}

// What the look at a page finds: each fault is planted alone in a page that has
// none.
func TestLabPageFaults(t *testing.T) {
	b := needBrowser(t)
	const bar = `<div style="position:relative;height:16px;background:#f3f4f6"><span class="bar" style="position:absolute;left:%s;width:%s;height:16px;background:%s"></span></div>`
	figure := func(inner string) string { return "<figure>" + inner + "</figure>" }
	svg := func(inner string) string {
		return figure(`<svg viewBox="0 0 200 100" width="200" height="100">` + inner + `</svg>`)
	}
	const dot = `<circle class="dot" cx="50" cy="50" r="3" fill="#000"/>`
	for _, tt := range []struct{ name, body, want string }{
		{"none", "<p>text</p>" + figure(fmt.Sprintf(bar, "0", "40%", "#3566b8")) + svg(dot+`<text x="20" y="40">a</text>`), ""},
		{"wide", `<div style="width:500px">text</div>`, "the document is"},
		{"hidden overflow", `<div style="overflow:hidden"><div style="width:500px">text</div></div>`, "reaches beyond the screen"},
		{"small text", `<p style="font-size:9px">text</p>`, "text of 9.0 px"},
		{"drawn small", figure(`<svg viewBox="0 0 400 200" width="200" height="100">` + dot + `<text x="20" y="40" font-size="16">a</text></svg>`), "text of 8.0 px"},
		{"pale text", `<p style="color:#bbb">text</p>`, "text with a contrast of 1.9"},
		{"empty plot", figure("nothing"), "plot without a visible mark"},
		{"no width", figure(fmt.Sprintf(bar, "0", "0", "#3566b8")), "plot without a visible mark"},
		{"mark like its ground", figure(fmt.Sprintf(bar, "0", "40%", "#f0f0f2")), "plot without a visible mark"},
		{"pale mark", figure(fmt.Sprintf(bar, "0", "40%", "#b0b0b8")), "mark with a contrast of"},
		{"hollow mark", svg(`<circle class="dot hollow" cx="50" cy="50" r="3" fill="#fff" stroke="#000"/>`), ""},
		{"pale hollow mark", svg(`<circle class="dot hollow" cx="50" cy="50" r="3" fill="#fff" stroke="#bbb"/>`), "mark with a contrast of 1.9"},
		{"hollow mark without outline", svg(`<circle class="dot hollow" cx="50" cy="50" r="3" fill="#fff"/>`), "plot without a visible mark"},
		{"long bar", figure(fmt.Sprintf(bar, "50%", "60%", "#3566b8")), "bar beyond its track"},
		{"flat drawing", figure(`<svg viewBox="0 0 200 100" width="200" height="20">` + dot + `</svg>`), "drawing of 200 x 20 px"},
		{"cut off", svg(dot + `<text x="190" y="40">a long text</text>`), "cut off at the edge"},
		{"no curve", svg(dot + `<polyline points="10,10 90,90"/>`), "curve that is not drawn"},
		{"texts over each other", svg(dot + `<text x="20" y="40">abc</text><text x="25" y="42">def</text>`), "texts over each other"},
		{"runs over", `<div class="row" style="width:50px"><div>` + strings.Repeat("x", 30) + `</div></div>`, "wider than its box"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.open(t, write(t, []byte(`<!doctype html><meta name="viewport" content="width=device-width"><body style="font:16px sans-serif">`+tt.body)), 390, "light")
			found := strings.Join(lookAt(t, b).Problems, "\n")
			if tt.want == "" && found != "" || !strings.Contains(found, tt.want) {
				t.Errorf("found %q, want %q", found, tt.want)
			}
		})
	}
	t.Run("request", func(t *testing.T) {
		address := write(t, []byte(`<!doctype html><p>text<img src="http://192.0.2.1/x.png"><script src="https://example.org/x.js"></script>`))
		b.open(t, address, 390, "light")
		if asked, complaints := b.requests(t); len(asked) != 3 || len(complaints) == 0 {
			t.Errorf("asked %q, complaints %q: want the page and two others, which fail", asked, complaints)
		}
	})
	t.Run("blank", func(t *testing.T) {
		b.open(t, write(t, []byte(`<!doctype html><p>`)), 390, "light")
		if err := painted(b.screenshot(t, 390, 900), 390, 900, false); err == nil || !strings.Contains(err.Error(), "blank") {
			t.Errorf("a blank page: %v", err)
		}
	})
}
