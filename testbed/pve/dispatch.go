package pve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/httpd"
	"savepoint/testbed/pve/schema"
)

// call is one request on its way through its handler.
type call struct {
	s    *Server
	ctx  context.Context
	who  caller
	p    schema.Values
	http *httpd.Request
	out  result
	// upload is the temporary file of an upload; it is removed with the call.
	upload string
}

// total tells how many objects there are beyond those answered.
func (c *call) total(n int) { c.out.total = &n }

// raw answers a body of its own type.
func (c *call) raw(kind string, body []byte) { c.out.raw, c.out.rawType = body, kind }

// vmid is the path's VM.
func (c *call) vmid() int { return c.p.Int("vmid", 0) }

// may reports whether the caller has one of the privileges on the path.
func (c *call) may(path string, privs ...string) bool {
	return checkPrivs(c.s.access, c.who, path, true, privs...) == nil
}

// need refuses unless the caller has the privilege on the path.
func (c *call) need(path, priv string) error {
	return checkPrivs(c.s.access, c.who, path, false, priv)
}

// serve answers one HTTP request.
func (s *Server) serve(r *httpd.Request) *httpd.Response {
	if f := s.Faults.before(r); f != nil {
		return f
	}
	a := s.dispatch(r)
	if f := s.Faults.after(r); f != nil {
		return f
	}
	return a
}

// dispatch is the order of things: who, which call, may they, here, well formed, do.
func (s *Server) dispatch(r *httpd.Request) *httpd.Response {
	path, err := url.PathUnescape(r.Path())
	if err != nil {
		path = r.Path()
	}
	rest, ok := strings.CutPrefix(path, "/api2/")
	if !ok {
		text := fmt.Sprintf("no such file '%s'", path)
		return httpd.Text(500, text, text+"\n")
	}
	formatter, rest, _ := strings.Cut(rest, "/")
	parts := strings.FieldsFunc(rest, func(c rune) bool { return c == '/' })
	rel := "/" + strings.Join(parts, "/")

	rt, vars, found := s.routes.find(r.Method, parts)
	who, err := s.authenticate(r)
	if err != nil && !(found && rt.perm.world) {
		return s.unauthorized(r, err.Error())
	}
	if formatter != "json" && formatter != "extjs" {
		text := fmt.Sprintf("no formatter for uri %s, %s", rel, formatter)
		return httpd.Text(501, text, text)
	}
	c := &call{s: s, ctx: r.Context(), who: who, http: r}
	if found && rt.upload && strings.HasPrefix(r.Header["content-type"], "multipart/form-data") {
		c.p = schema.Values{}
	} else {
		body, refused := readParams(r)
		if refused != nil {
			return refused
		}
		c.p = body
	}
	if !found {
		s.addQuery(c)
		s.tell(c)
		return s.answer(formatter, result{}, &apiError{
			code: 501, text: fmt.Sprintf("Method '%s %s' not implemented", r.Method, rel), bare: true,
		})
	}
	data, err := s.run(c, rt, vars)
	if errors.Is(err, access.ErrUnauthenticated) {
		s.hesitate(r)
		err = &apiError{code: 401, text: err.Error()}
	}
	c.out.data = data
	return s.answer(formatter, c.out, err)
}

// run makes the parameters whole, checks them and runs the call's code.
func (s *Server) run(c *call, rt *route, vars map[string]string) (any, error) {
	s.addQuery(c)
	if !rt.upload {
		s.tell(c)
	}
	for name, value := range vars {
		if given, ok := c.p[name]; ok && schema.Values(map[string]any{"x": given}).Str("x") != value {
			return nil, badParam(name, "duplicate parameter (already defined in URI) with conflicting values!")
		}
		c.p[name] = value
	}
	if rt.noToken && strings.Contains(c.who.name, "!") {
		return nil, &apiError{code: 403, text: "Permission check failed (token not allowed)"}
	}
	if err := rt.perm.check(s.access, c.who, c.p); err != nil {
		return nil, err
	}
	if rt.proxy && !c.p.Has("node") {
		return nil, badParam("node", "proxyto parameter does not exist")
	}
	if !rt.proxy && !rt.upload {
		return s.here(c, rt)
	}
	if err := s.proxied(c, c.p.Str("node")); err != nil {
		return nil, err
	}
	return c.s.guarded(c, func() (any, error) { return c.s.here(c, rt) })
}

// addQuery adds the parameters of the query to those of the body.
func (s *Server) addQuery(c *call) {
	query := schema.Values{}
	readForm(query, c.http.Query())
	maps.Copy(c.p, query)
}

// tell tells whoever wants to see requests of one.
func (s *Server) tell(c *call) {
	if s.cfg.Seen == nil {
		return
	}
	path, err := url.PathUnescape(c.http.Path())
	if err != nil {
		path = c.http.Path()
	}
	_, path, _ = strings.Cut(strings.TrimPrefix(path, "/api2/"), "/") // the formatter is no part of it
	s.cfg.Seen(schema.Request{Method: c.http.Method, Path: "/" + path, Agent: c.http.Header["user-agent"], Params: maps.Clone(c.p)})
}

// here runs a call on the node that it is for.
func (s *Server) here(c *call, rt *route) (any, error) {
	if rt.upload {
		defer func() {
			if c.upload != "" {
				os.Remove(c.upload)
			}
		}()
		err := c.receiveUpload()
		s.tell(c)
		if err != nil {
			return nil, err
		}
	}
	if errs := rt.set.Check(c.p); len(errs) > 0 {
		return nil, badParams(errs)
	}
	if rt.writes() && !s.quorate() {
		return nil, errNoQuorum
	}
	return rt.handler(c)
}
