package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"time"
)

// How much of an experiment's end its trace holds. A trace of all of it would be
// larger than what reads it can take.
const (
	traceAge  = 15 * time.Second
	traceSize = 32 << 20
)

// watch profiles this process until stop is called, which writes what there is then
// into dir: NAME.cpu.pprof and NAME.heap.pprof for go tool pprof, and NAME.trace, of
// the last seconds, for go tool trace. Guests, the lab's process and the node are not
// in it. Files of an earlier start are replaced.
func watch(dir, name string) (stop func() error, err error) {
	fail := func(err error) (func() error, error) {
		return nil, fmt.Errorf("profile experiment %s: %w", name, err)
	}
	cpu, err := os.Create(filepath.Join(dir, name+".cpu.pprof"))
	if err != nil {
		return fail(err)
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return fail(errors.Join(err, cpu.Close()))
	}
	recorder := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: traceAge, MaxBytes: traceSize})
	if err := recorder.Start(); err != nil {
		pprof.StopCPUProfile()
		return fail(errors.Join(err, cpu.Close()))
	}
	return func() error {
		err := writeProfile(dir, name+".trace", func(f *os.File) error { _, err := recorder.WriteTo(f); return err })
		recorder.Stop()
		pprof.StopCPUProfile()
		runtime.GC() // a heap profile is of the latest collection
		err = errors.Join(err, cpu.Close(), writeProfile(dir, name+".heap.pprof", func(f *os.File) error { return pprof.WriteHeapProfile(f) }))
		if err != nil {
			return fmt.Errorf("profile experiment %s: %w", name, err)
		}
		return nil
	}, nil
}

func writeProfile(dir, name string, write func(*os.File) error) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
