package fabric

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// vtyLimit bounds one answer; a fabric of thousands of guests is far below it.
const vtyLimit = 64 << 20

// vty speaks to an FRR daemon's command socket and returns the answer to the
// last command. Each command and answer looks like this:
//
//	→ show vrf \0
//	← text of the answer \0 \0 \0 code
//
// Code 0 is success, everything else an error with the text as its reason.
func vty(ctx context.Context, socket string, commands ...string) ([]byte, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var answer []byte
	for _, command := range commands {
		if strings.ContainsAny(command, "\x00\n\r") {
			return nil, fmt.Errorf("command %q has a control character in it", command)
		}
		if _, err := c.Write([]byte(command + "\x00")); err != nil {
			return nil, err
		}
		text, code, err := readAnswer(c)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		if code != 0 {
			return nil, fmt.Errorf("%q was refused (code %d): %s", command, code, bytes.TrimSpace(text))
		}
		answer = text
	}
	return answer, nil
}

func readAnswer(c net.Conn) ([]byte, byte, error) {
	var buf []byte
	chunk := make([]byte, 64<<10)
	for len(buf) < vtyLimit {
		n, err := c.Read(chunk)
		buf = append(buf, chunk[:n]...)
		if i := bytes.Index(buf, []byte{0, 0, 0}); i >= 0 && len(buf) > i+3 {
			return buf[:i], buf[i+3], nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("the daemon broke off: %w", err)
		}
	}
	return nil, 0, errors.New("the answer is too long")
}
