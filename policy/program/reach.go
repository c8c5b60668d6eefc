package program

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"savepoint/policy/shell"
)

// How far a use provably reaches, where its rules would guess further. "" is
// nothing proved.
const (
	Here = "here" // services and files of this machine, no others
	Asks = "asks" // others, of whom it asks and to whom it sends nothing
)

// reach proves how far a program reaches. Every word of the command has to be
// one that the proof knows: an option that is not listed may turn the program
// elsewhere, so it proves nothing.
func reach(sc *shell.Scope, c shell.Call, name string) string {
	if !trusted(c.Argv[0]) {
		return ""
	}
	args := c.Argv[1:]
	switch name {
	case "npx", "bunx", "pnpx":
		for len(args) > 0 && (args[0] == "-y" || args[0] == "--yes") {
			args = args[1:]
		}
		if len(args) == 0 {
			return ""
		}
		name, args = args[0], args[1:]
	case "pnpm", "yarn", "bun":
		if len(args) > 1 && (args[0] == "exec" || args[0] == "dlx" || args[0] == "run" || args[0] == "x") {
			args = args[1:]
		}
		if len(args) > 0 && slices.Contains([]string{"prisma", "supabase", "wrangler", "serve", "http-server"}, args[0]) {
			name, args = args[0], args[1:]
		}
	}
	at := &reacher{sc: sc, call: c, name: name, args: args}
	switch {
	case at.serves(), at.stores(), at.pushes(), (at.sends() || at.publishes() || at.emulates()) && !at.turned():
		return Here
	case at.rehearses(), at.inquires():
		return Asks
	}
	return ""
}

// reacher is one command that reach looks at.
type reacher struct {
	sc   *shell.Scope
	call shell.Call
	name string
	args []string
}

// strictly takes the arguments apart. It fails when an option is not listed,
// is abbreviated, or may be any.
func (r *reacher) strictly(options string) (parsed, bool) { return strictly(options, r.args) }

func strictly(options string, args []string) (parsed, bool) {
	s := &Spec{Options: options}
	p, ok := taken(s, args)
	for _, a := range args {
		if name, _, _ := strings.Cut(a, "="); strings.HasPrefix(a, "--") && a != "--" {
			if _, ok := s.options[name]; !ok {
				return parsed{}, false
			}
		}
	}
	return p, ok && !p.loose && once(p)
}

// taken takes the arguments apart by a list of options that is not in a table.
// It fails when an option is not listed; whether the others are sure is for
// the caller to say.
func taken(s *Spec, args []string) (parsed, bool) {
	s.Effect, s.Operands = "change", "text*"
	if s.compile() != nil {
		return parsed{}, false
	}
	p := s.parse(args)
	return p, !p.odd
}

// single returns the option by any of its names, when it is there only once.
func (p *parsed) single(names ...string) (Option, bool) {
	found, n := Option{}, 0
	for _, o := range p.options {
		if slices.Contains(names, o.Name) {
			found, n = o, n+1
		}
	}
	return found, n == 1
}

// once reports whether no option that takes a value is there twice: which of
// two values counts differs between programs.
func once(p parsed) bool {
	for i, o := range p.options {
		for _, q := range p.options[:i] {
			if o.Has && q.Name == o.Name && o.Name != "-H" && o.Name != "--header" && o.Name != "-f" && o.Name != "-F" {
				return false
			}
		}
	}
	return true
}

var (
	loopHost    = `(?:localhost|127(?:\.[0-9]{1,3}){3}|\[?::1\]?|0\.0\.0\.0)`
	loopName    = regexp.MustCompile(`^` + loopHost + `$`)
	loopAddress = regexp.MustCompile(`^(?:[a-z][a-z0-9+.]*://)?(?:[A-Za-z0-9_.-]*(?::[^@/?#\\\s]*)?@)?` + loopHost + `(?::[0-9]+)?(?:[/?#][^\s\\]*)?$`)
	loopDevice  = regexp.MustCompile(`^/dev/(?:tcp|udp)/` + loopHost + `/(?:[0-9]+|[\x01\x02\x05])$`)
	loopImage   = regexp.MustCompile(`^(?:docker://|oci://)?` + loopHost + `:[0-9]+/[a-z0-9._/-]+(?:[:@][A-Za-z0-9._:-]+)?$`)
	portWord    = regexp.MustCompile(`^(?:[0-9]+(?:-[0-9]+)?|\x01|\x02)$`)
	engineDoor  = regexp.MustCompile(`(?:^|[:-])0*237[56](?:\D|$)`) // container engines listen there
)

// filledIn puts a digit in the place of text that is not known.
var filledIn = strings.NewReplacer(string(shell.HoleText), "0", string(shell.HoleMaybe), "0")

// localAddress reports whether a text names this machine and nothing else.
func localAddress(a string) bool {
	return said(a) && loopAddress.MatchString(filledIn.Replace(a)) && !engineDoor.MatchString(hostPart(a))
}

// hostPart is the part of an address that names the host and the port.
func hostPart(a string) string {
	if _, rest, ok := strings.Cut(a, "://"); ok {
		a = rest
	}
	host := a
	if end := strings.IndexAny(a, "/?#"); end >= 0 {
		host = a[:end]
	}
	return host[strings.LastIndexByte(host, '@')+1:]
}

// turned reports whether the text sets a variable that sends requests elsewhere.
func (r *reacher) turned() bool {
	return r.sc.Assigned(r.call, "http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "CURL_HOME", "WGETRC", "HOME", "XDG_CONFIG_HOME", "HOSTALIASES", "DOCKER_HOST", "DOCKER_CONTEXT")
}

// material is a kind of file that people make to be sent to a service under
// test.
var material = regexp.MustCompile(`(?i)\.(?:json|jsonl|ndjson|xml|ya?ml|csv|tsv|txt|html?|md|graphql|gql|sql|png|jpe?g|gif|svg|webp|pdf|zip|t?gz|tar|wav|mp[34]|proto|pb|bin|wasm|parquet)$`)

// sendable reports whether a file may be handed to a service of this machine:
// test material of the working directory. What is elsewhere, hidden, or of no
// such kind may be a secret that somebody posts.
func sendable(sc *shell.Scope, path string) bool {
	if path == "/dev/null" {
		return true
	}
	if !shell.Known(path) || !material.MatchString(path) || strings.Contains("/"+path, "/.") && !strings.HasPrefix(path, "./") || strings.Contains(path, "..") {
		return false
	}
	clean := sc.Path(path)
	if sc.Path(path+"/") != shell.Clean(path, sc.Cwd()) { // a link that the line makes
		return false
	}
	if f, ok := sc.File(path); ok && !f.Content.Known && !f.Content.Fetched { // made by the line, of what nobody sees
		return false
	}
	return !strings.HasPrefix(clean, "/") || strings.HasPrefix(clean, "/tmp/") || strings.HasPrefix(clean, "/workspace/")
}

// said reports whether standard input holds text of the line, nothing, or
// material.
func (r *reacher) said() bool {
	in := r.call.Stdin
	return in.Inherit || in.Known || in.Plain || in.File != "" && !in.Made && sendable(r.sc, in.File)
}

const (
	ncOptions     = "-46nNvuzklt -w=text -q=text -i=text -W=text -p=text"
	grpcOptions   = "-plaintext -insecure -v -vv -d=text -H=text -rpc-header=text -max-time=text -connect-timeout=text -format=text -emit-defaults -import-path=text -proto=text -authority=text"
	mqttOptions   = "-dlnNrsIR -h=text -p=text -t=text -m=text -q=text -i=text -u=text -P=text -V=text -k=text -W=text -C=text -f=text --quiet --repeat=text --topic=text --message=text --host=text --port=text --qos=text --retain --id=text --file=text --stdin-file --stdin-line --null-message"
	amqpOptions   = "-pl -u=text -s=text -r=text -e=text -b=text -C=text -E=text -H=text --url=text --server=text --port=text --username=text --password=text --vhost=text --routing-key=text --exchange=text --body=text --content-type=text --persistent"
	swaksOptions  = "-t=text -f=text -s=text -p=text --to=text --from=text --server=text --port=text --helo=text --ehlo=text --header=text --h-Subject=text --body=text --timeout=text --auth=text --auth-user=text --auth-password=text -q=text --quit-after=text --silent --hide-all"
	loadOptions   = "-k -z=text -n=text -c=text -q=text -m=text -d=text -D=text -T=text -H=text -t=text -s=text -r=text -R=text --latency --no-tui -p=text --disable-keepalive"
	websocOptions = "-1Enqtbv --text --binary --one-message --no-close -B=text --exit-on-eof --ping-interval=text -H=text --header=text -c=text --connect=text -w=text -x=text --execute=text"
	sendOptions   = "-bhvdSfjpms -a=text -A=text --print=text --headers --body --verbose --download --form --json --auth=text --timeout=text --check-status --ignore-stdin --pretty=text --style=text --multipart --raw=text --unsorted --offline"
)

// Where a client takes its address from, when no option gives it.
const (
	byOption  = -1 // it has none then
	byDefault = -2 // this machine
)

// host reports whether the address that the options with these names give, or
// else the operand at a place, is of this machine.
func (r *reacher) host(p parsed, ok bool, at int, names ...string) bool {
	if !ok || !r.said() {
		return false
	}
	found := 0
	for _, o := range p.options {
		if slices.Contains(names, o.Name) {
			if found++; !localAddress(o.Value) {
				return false
			}
		}
	}
	if at >= 0 && found == 0 {
		return len(p.operands) > at && localAddress(p.operands[at])
	}
	return found > 0 || at == byDefault
}

// sends proves for clients that the one service they talk to is of this
// machine, and that what they send is text of the line or material.
func (r *reacher) sends() bool {
	switch r.name {
	case "nc", "ncat", "netcat", "nc.openbsd", "nc.traditional", "telnet":
		p, ok := r.strictly(ncOptions)
		if len(p.operands) > 0 && portWord.MatchString(p.operands[0]) { // nc -l -p
			return false
		}
		return r.host(p, ok && len(p.operands) < 4, 0) && !slices.ContainsFunc(p.operands[1:], func(o string) bool {
			return !portWord.MatchString(o) || !hasFlag(p, "-z") && (engineDoor.MatchString(o) || !r.call.Stdin.Inherit && spansDoor(o))
		})
	case "socat":
		p, ok := r.strictly("-duUv -t=text -T=text")
		return ok && r.said() && len(p.operands) == 2 && !slices.ContainsFunc(p.operands, func(o string) bool { return !r.end(o) })
	case "websocat", "wscat":
		p, ok := r.strictly(websocOptions)
		return r.host(p, ok, 0, "-c", "--connect") && len(p.operands) < 2
	case "http", "https", "httpie", "xh", "xhs", "curlie":
		return r.said() && r.items()
	case "swaks":
		p, ok := r.strictly(swaksOptions)
		return r.host(p, ok && len(p.operands) == 0, byOption, "-s", "--server") && !slices.ContainsFunc(p.options, func(o Option) bool { return strings.HasPrefix(o.Value, "@") })
	case "hey", "oha", "ab", "bombardier", "wrk":
		p, ok := r.strictly(loadOptions)
		return ok && len(p.operands) == 1 && localAddress(p.operands[0]) && !slices.ContainsFunc(p.options, func(o Option) bool {
			return o.Name == "-D" && !sendable(r.sc, o.Value) || o.Name == "-p" && r.name == "ab" && !sendable(r.sc, o.Value)
		})
	}
	return r.queues()
}

// spansDoor reports whether a range of ports takes in those of container
// engines: nc says the same to every port that is open.
func spansDoor(ports string) bool {
	low, high, ok := strings.Cut(ports, "-")
	a, _ := strconv.Atoi(low)
	b, _ := strconv.Atoi(high)
	return ok && min(a, b) <= 2376 && max(a, b) >= 2375
}

// queues proves the same for clients of message queues and of gRPC.
func (r *reacher) queues() bool {
	switch r.name {
	case "mosquitto_pub":
		p, ok := r.strictly(mqttOptions)
		return r.host(p, ok && len(p.operands) == 0, byDefault, "-h", "--host") && !slices.ContainsFunc(p.options, func(o Option) bool {
			return (o.Name == "-f" || o.Name == "--file") && !sendable(r.sc, o.Value)
		})
	case "amqp-publish":
		p, ok := r.strictly(amqpOptions)
		return r.host(p, ok, byOption, "-u", "--url", "-s", "--server")
	case "grpcurl":
		p, ok := taken(&Spec{Single: true, Options: grpcOptions}, r.args)
		return r.host(p, ok && !p.loose, 0)
	case "kcat", "kafkacat":
		p, ok := r.strictly("-PCLQqeTZ -b=text -t=text -p=text -K=text -k=text -D=text -o=text -c=text -f=text -H=text")
		return r.host(p, ok && len(p.operands) == 0, byOption, "-b")
	case "nats":
		p, ok := r.strictly("-s=text --server=text --count=text --timeout=text -H=text")
		return r.host(p, ok, byOption, "-s", "--server")
	}
	return false
}

var socatPort = regexp.MustCompile(`^(?i:TCP|TCP4|UDP|UDP4|TCP-CONNECT|UDP-CONNECT|OPENSSL):` + loopHost + `:[0-9]+(?:,(?:crnl|shut-(?:none|down)|connect-timeout=[0-9]+|verify=0|reuseaddr))*$`)

// end reports whether one of the two ends of socat stays here.
func (r *reacher) end(o string) bool {
	if o == "-" || strings.EqualFold(o, "STDIO") || strings.EqualFold(o, "STDIN") || strings.EqualFold(o, "STDOUT") {
		return true
	}
	if socatPort.MatchString(o) {
		return !engineDoor.MatchString(o)
	}
	kind, path, ok := strings.Cut(o, ":")
	plain := shell.Known(path) && !strings.ContainsAny(path, ",!:") && !strings.Contains(path, "..")
	return ok && plain && (strings.EqualFold(kind, "OPEN") || strings.EqualFold(kind, "FILE") || strings.EqualFold(kind, "CREATE")) && (strings.HasPrefix(path, "/tmp/") || sendable(r.sc, path))
}

var (
	webMethod = regexp.MustCompile(`^(?i:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)$`)
	webFile   = regexp.MustCompile(`^[\w.\[\]-]+(?:@|=@|:=@)(.+)$`)
	webItem   = regexp.MustCompile(`^[\w.\[\]-]+(?:==?|:=|:)`)
)

// items proves for httpie and its like: METHOD, address, items.
func (r *reacher) items() bool {
	p, ok := r.strictly(sendOptions)
	list := p.operands
	if ok && len(list) > 0 && webMethod.MatchString(list[0]) {
		list = list[1:]
	}
	if !ok || len(list) == 0 {
		return false
	}
	address := list[0]
	if strings.HasPrefix(address, ":") && !strings.HasPrefix(address, "::") {
		address = "localhost" + address // the short form of these programs
		if address == "localhost:" || strings.HasPrefix(address, "localhost:/") {
			address = "localhost" + list[0][1:]
		}
	}
	return localAddress(address) && !slices.ContainsFunc(list[1:], func(o string) bool {
		if !said(o) {
			return !strings.HasPrefix(o, "Authorization:")
		}
		if m := webFile.FindStringSubmatch(o); m != nil {
			return !sendable(r.sc, m[1])
		}
		return !webItem.MatchString(o)
	})
}
