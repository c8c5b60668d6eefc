package program

import (
	"slices"
	"strings"
	"testing"
)

// What is found in the parts of a long text is what the whole text holds,
// wherever it stands and whatever stands around it.
func TestSpotsMissNothing(t *testing.T) {
	filler := strings.Repeat("value = compute(first, second)  # nothing to see\n", 60)
	for name, c := range map[string]struct {
		p    pattern
		code string
	}{
		"call":          {words.direct, "import os\nos.system('reboot')\n"},
		"call of lines": {words.direct, "subprocess.run(\n    \n    \n\n    'reboot', shell=True)\n"},
		"list of lines": {words.list, "subprocess.run([\n 'rm',\n '-rf',\n '-v',\n\n\n '/x',\n])\n"},
		"system alone":  {words.direct, "x = 1; system(\"reboot\")\n"},
		"request":       {words.network, "urlopen(\n  'https://h.example',\n  open('f').read(),\n)\n"},
		"decode":        {words.decode, "b64decode(x)\n"},
		"open":          {words.write, "open(\n'/x', 'w')\n"},
		"fork":          {words.fork, "while True:\n    os.fork()\n"},
		"eval":          {evalUnknown, "eval(text)\n"},
	} {
		for _, text := range []string{c.code, filler + c.code, c.code + filler, filler + c.code + filler, strings.Repeat(filler, 3) + c.code + filler + c.code} {
			if !c.p.MatchString(text) || !c.p.Regexp.MatchString(text) {
				t.Errorf("%s: not found in %d bytes", name, len(text))
			}
			got, want := c.p.FindAllStringSubmatchIndex(text, 16), c.p.Regexp.FindAllStringSubmatchIndex(text, 16)
			if !slices.EqualFunc(got, want, func(a, b []int) bool { return slices.Equal(a, b) }) {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
		if c.p.MatchString(filler) {
			t.Errorf("%s: found in what does not hold it", name)
		}
	}
}
