package shell

import (
	"errors"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const maxSettle = 8 // times a text is parsed again for its comments

var errComments = errors.New("comments that end in a backslash hide one another")

// parseFile parses a whole text.
func parseFile(src string) (*syntax.File, error) {
	return settled(src, func(p *syntax.Parser, s string) (*syntax.File, error) { return p.Parse(strings.NewReader(s), "") })
}

// parseDocument parses the inside of a here-document or of double quotes.
func parseDocument(src string) (*syntax.Word, error) {
	return settled(src, func(p *syntax.Parser, s string) (*syntax.Word, error) { return p.Document(strings.NewReader(s)) })
}

// settled parses a text in which no comment goes on in the next line. For the
// shell a comment ends where its line ends; the parser takes a backslash there
// for a continuation and would hide the line that follows. Such a backslash
// is replaced by a blank, and the text is parsed again.
func settled[T syntax.Node](src string, parse func(*syntax.Parser, string) (T, error)) (T, error) {
	risky := strings.Contains(src, "#") && strings.Contains(src, "\\\n")
	for range maxSettle {
		node, err := parse(syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(risky)), src)
		if !risky || err != nil && !strings.Contains(src, "\\\n") {
			return node, err
		}
		next := []byte(src)
		if err == nil {
			syntax.Walk(node, func(n syntax.Node) bool {
				c, ok := n.(*syntax.Comment)
				if !ok {
					return true
				}
				from := int(c.Hash.Offset())
				if eol := strings.IndexByte(src[min(from, len(src)):], '\n'); eol > 0 && src[from+eol-1] == '\\' {
					next[from+eol-1] = ' '
				}
				return true
			})
		}
		if string(next) == src {
			return node, err
		}
		src = string(next)
	}
	var none T
	return none, errComments
}
