package qemu

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv("SAVEPOINT_FAKE_QEMU"); mode != "" {
		fakeProgram(mode)
	}
	goleak.VerifyTestMain(m)
}

// fakeProgram is this test binary standing in for qemu-system-x86_64: it gets
// the same arguments and inherited sockets, and answers QMP. It never returns.
func fakeProgram(mode string) {
	fmt.Fprintln(os.Stderr, "fake qemu:", mode)
	if mode == "dies" {
		fmt.Fprintln(os.Stderr, "qemu-system-x86_64: cannot set up guest memory: Cannot allocate memory")
		os.Exit(1)
	}
	control, err := net.FileListener(os.NewFile(fdQMP, "qmp"))
	if err != nil {
		os.Exit(2)
	}
	serial, err := net.FileListener(os.NewFile(fdSerial, "serial"))
	if err != nil {
		os.Exit(2)
	}
	go func() {
		for {
			c, err := serial.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "hello from the console")
		}
	}()
	for {
		c, err := control.Accept()
		if err != nil {
			os.Exit(2)
		}
		if mode == "hangs" {
			continue // never a greeting
		}
		serveFake(c, mode)
	}
}

// serveFake answers one QMP connection until it ends.
func serveFake(c net.Conn, mode string) {
	defer c.Close()
	fmt.Fprintln(c, `{"QMP": {"version": {}, "capabilities": []}}`)
	in := bufio.NewScanner(c)
	for in.Scan() {
		var m struct {
			Execute string
			ID      int
		}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			return
		}
		switch m.Execute {
		case "human-monitor-command":
			fmt.Fprintf(c, `{"return": "TCP[HOST_FORWARD] 15 127.0.0.1 42175 10.9.0.2 22 0 0\r\n", "id": %d}`+"\n", m.ID)
		case "cont":
			if mode == "wedges" {
				continue // the last step before the guest runs never ends
			}
			fmt.Fprintf(c, `{"return": {}, "id": %d}`+"\n"+`{"event": "RESUME"}`+"\n", m.ID)
		case "stop":
			fmt.Fprintf(c, `{"event": "STOP"}`+"\n"+`{"return": {}, "id": %d}`+"\n", m.ID)
		case "quit":
			if mode == "stubborn" {
				fmt.Fprintf(c, `{"error": {"class": "GenericError", "desc": "not now"}, "id": %d}`+"\n", m.ID)
				continue
			}
			fmt.Fprintf(c, `{"return": {}, "id": %d}`+"\n", m.ID)
			os.Exit(0)
		case "system_powerdown":
			fmt.Fprintf(c, `{"return": {}, "id": %d}`+"\n", m.ID)
			if mode != "deaf" {
				os.Exit(0)
			}
		default:
			fmt.Fprintf(c, `{"return": {}, "id": %d}`+"\n", m.ID)
		}
	}
}
