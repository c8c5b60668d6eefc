package policy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Case is one labelled command of a corpus.
type Case struct {
	Line    int      `json:"line"` // in the file, from 1
	Want    Decision `json:"want"`
	Class   string   `json:"class"`
	Command string   `json:"command"`
}

// caseHeader is the first line of a file of cases.
const caseHeader = "expected\tclass\tcommand"

// ReadCases reads labelled commands: one header line, then one case a line,
// the expected decision, the class and the command parted by tabs. Commands
// are escaped: \\ is a backslash, \n a newline, \t a tab, \r a carriage return,
// \0 a zero byte and \e an escape byte; any other byte, also a lone backslash,
// stands for itself. Empty lines are errors, as is everything else that is not
// a case: a corpus that lost lines must not pass.
func ReadCases(r io.Reader) ([]Case, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxCheckLine)
	in.Split(newlines)
	var list []Case
	n := 0
	for in.Scan() {
		n++
		line := in.Text()
		if n == 1 {
			if line != caseHeader {
				return nil, fmt.Errorf("read cases: line 1: the header is %q; write %q", readable(line), caseHeader)
			}
			continue
		}
		c, err := parseCase(line)
		if err != nil {
			return nil, fmt.Errorf("read cases: line %d: %w", n, err)
		}
		c.Line = n
		list = append(list, c)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read cases: line %d: %w", n+1, err)
	}
	if len(list) == 0 {
		return nil, errors.New("read cases: there are none; write a header line and one case a line")
	}
	return list, nil
}

// newlines splits at newlines alone: bufio.ScanLines would drop a carriage
// return that belongs to a command.
func newlines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func parseCase(line string) (Case, error) {
	fields := strings.Split(line, "\t")
	if len(fields) != 3 {
		return Case{}, fmt.Errorf("%d columns; want three, parted by tabs: expected, class, command (a tab inside the command is written \\t)", len(fields))
	}
	want, err := ParseDecision(fields[0])
	if err != nil {
		return Case{}, err
	}
	switch {
	case fields[1] == "":
		return Case{}, errors.New("the class is empty; name the kind of command")
	case fields[2] == "":
		return Case{}, errors.New("the command is empty")
	case !utf8.ValidString(line):
		return Case{}, errors.New("not valid UTF-8")
	}
	return Case{Want: want, Class: fields[1], Command: unescapeCase.Replace(fields[2])}, nil
}

// unescapeCase works from the left, so "\\n" is a backslash and an n.
var unescapeCase = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t", `\r`, "\r", `\0`, "\x00", `\e`, "\x1b")
